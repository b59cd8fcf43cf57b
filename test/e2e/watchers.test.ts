/**
 * Watchers: they leave no trace, take nobody's place, hold nothing open and answer for nobody; and
 * they come back by themselves.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast, type SessionHandle } from 'holdfast'
import type { LinkOptions } from '../../src/core/index.ts'
import type { Agent } from '../../src/runners/function.ts'
import { serveConnect, type Attached, type ConnectServer } from '../support/connect-server.ts'
import { until } from '../support/gate.ts'
import type { WireClient } from '../support/wire-client.ts'

const asks: Agent = async ({ text }, context) => {
  const onNobody = text === 'deny' ? ('deny' as const) : ('wait' as const)
  const settled = await context.ask({ kind: 'permission', question: 'May I?', onNobody })
  return settled.outcome === 'answered' ? String(settled.answer) : settled.outcome
}

let server: ConnectServer

/** Less patience only where a connection is silent: a busy machine is slow to answer a probe. */
async function serve(probeMs = 60_000): Promise<void> {
  server = await serveConnect({
    agents: { asks },
    limits: { watchersMax: 8, watchersPerLinkMax: 4, answerGraceMs: 50, sweepMs: 20 },
    connectLimits: { probeMs },
  })
}

beforeEach(() => serve())
afterEach(() => server.close())

const resolve = (options: object = {}): Promise<SessionHandle> => server.holdfast.resolve(options)
const watch = (session: SessionHandle, more: object = {}): Promise<Attached> =>
  server.attach({ session: session.id, role: 'watcher', ...more })

/** How many watchers its owner knows, whichever node that is. */
const watchersOf = async ({ id }: SessionHandle): Promise<number> =>
  (await server.holdfast.authority.open(id)).watchers.count

/** The hello of a client that was lost. */
function again({ client, welcome }: Attached): object {
  const { attachment, resume, session } = welcome
  const auth = { resume: { attachment, token: resume } }
  return { session: session.id, auth, after: client.seen }
}

async function refused(client: WireClient): Promise<unknown> {
  await client.closed
  return client.of('refuse')[0]?.['code']
}

describe('a watcher', () => {
  it('leaves nothing in the log, however many come and go', async () => {
    const session = await resolve()
    const { seq } = await session.state()
    for (let n = 0; n < 10_000; n += 1) await (await session.attach({ role: 'watcher' })).lose()
    for (let n = 0; n < 20; n += 1) await (await watch(session)).client.cut()
    await until(async () => (await watchersOf(session)) === 0)
    expect(await session.state()).toMatchObject({ seq, attachments: [], ended: [] })
  })

  it('is refused beyond its own bound, and takes no place of a driver', async () => {
    const session = await resolve()
    const all = await Promise.all(Array.from({ length: 8 }, () => watch(session)))
    expect(await refused(server.dial({ session: session.id, role: 'watcher' }))).toBe('too_many')
    await server.attach({ session: session.id })
    await all[0]?.client.cut()
    await until(async () => (await watchersOf(session)) < 8)
    await watch(session)
  })

  it('by another link takes the last place of a link that has most', async () => {
    const session = await resolve()
    const [crowd, other] = await Promise.all(
      [1, 2].map(() => session.createLink({ scopes: ['watch'] })),
    )
    const comeBy = (link = '') => watch(session, { auth: { link } })
    const first = await comeBy(crowd?.token)
    for (let n = 0; n < 2; n += 1) await comeBy(crowd?.token)
    const last = await comeBy(crowd?.token)
    await comeBy(other?.token)
    expect(await last.client.closed).toMatchObject({ reason: 'attachment_ended' })
    expect(last.client.of('ending')[0]?.['reason']).toContain('crowded_out')
    expect([first.client.isClosed, await watchersOf(session)]).toEqual([false, 4])
  })

  it('holds no session open, and is told of its end', async () => {
    const session = await resolve({ reconnect: 'none' })
    const driver = await server.attach({ session: session.id })
    const { client } = await watch(session)
    driver.client.send({ type: 'bye' })
    expect(await client.closed).toMatchObject({ code: 4410 })
    expect(client.of('session.closed')).toMatchObject([{ reason: 'last_holder_left' }])
  })

  it('does not delay the end of an idle session', async () => {
    const session = await resolve({ ttlMs: 1_500 })
    const { client } = await watch(session)
    expect(await client.closed).toMatchObject({ code: 4410 })
    expect(client.of('session.closed')).toMatchObject([{ reason: 'expired' }])
  })

  it('never counts as a client to ask, but may answer what is asked', async () => {
    const session = await resolve({ agent: 'asks' })
    const { client } = await watch(session, { answers: ['permission'] })
    expect(await session.turn('deny')).toMatchObject({ reply: { text: 'nobody_to_ask' } })
    const turn = session.turn('wait')
    const { ask } = await client.frame(({ onNobody }) => onNobody === 'wait')
    client.send({ type: 'answer', id: '1', ask, answer: 'yes' })
    expect(await turn).toMatchObject({ reply: { text: 'yes' } })
  })

  it('goes on where it was, under every policy', async () => {
    for (const reconnect of ['none', 'early', 'resume', 'reopen']) {
      const session = await resolve({ reconnect })
      await session.attach()
      const first = await watch(session)
      await session.turn('one')
      await first.client.frame('turn.done')
      await first.client.cut()
      await session.turn('two')
      const second = await server.attach(again(first))
      expect(second.welcome).toMatchObject({ role: 'watcher', after: first.client.seen })
      await second.client.frame('turn.done')
      expect(second.client.of('turn.started')).toMatchObject([{ input: 'two' }])
    }
  })
})

describe('a watcher by a link', () => {
  const linked = async (options: Partial<LinkOptions> = {}) => {
    const session = await resolve()
    const link = await session.createLink({ scopes: ['watch'], ...options })
    const by = { auth: { link: link.token } }
    const used = async () =>
      (await session.read(0, 100)).events.filter(({ body }) => body.includes('"link.used"')).length
    return { session, link, used, hello: { session: session.id, role: 'watcher', ...by } }
  }

  it('is recorded where the link counts its uses, and not where it does not', async () => {
    const counted = await linked({ uses: 5 })
    const free = await linked()
    for (const { hello } of [counted, free]) {
      for (let n = 0; n < 3; n += 1) await server.attach(hello)
    }
    expect(await counted.used()).toBe(3)
    expect((await counted.session.state()).links).toMatchObject([{ uses: 2 }])
    expect((await free.session.state()).seq).toBe(2)
  })

  it('comes back by the same use of a link, again and again, and a copy of it does not', async () => {
    const { hello, used } = await linked({ uses: 1 })
    let tab = await server.attach(hello)
    for (let n = 0; n < 3; n += 1) {
      expect(await refused(server.dial(hello))).toBe('unauthorized')
      expect(await refused(server.dial(again(tab)))).toBe('unauthorized')
      await tab.client.cut()
      tab = await server.attach(again(tab))
    }
    expect(await used()).toBe(1)
  })

  it('takes its place from a connection that is silent', async () => {
    await server.close()
    await serve(50)
    const { hello } = await linked({ uses: 1 })
    const silent = server.dial(hello, { silent: true })
    const welcome = await silent.frame('welcome')
    await server.attach(again({ client: silent, welcome }))
    expect(await silent.closed).toMatchObject({ code: 4408 })
  })

  it('has a bound of its own with the others of that link', async () => {
    const { session, hello } = await linked()
    await Promise.all(Array.from({ length: 4 }, () => server.attach(hello)))
    expect(await refused(server.dial(hello))).toBe('too_many')
    await watch(session)
  })

  it('is out when the link is revoked or ends, and cannot come back', async () => {
    for (const isRevoked of [true, false]) {
      const options = isRevoked ? {} : { expiresAt: Date.now() + 1_500 }
      const { session, link, hello } = await linked(options)
      const other = await watch(session)
      const guest = await server.attach(hello)
      if (isRevoked) await session.revokeLink(link.id)
      expect(await guest.client.closed).toMatchObject({ code: 4410, reason: 'attachment_ended' })
      expect(await refused(server.dial(again(guest)))).toBe('unauthorized')
      expect(other.client.isClosed).toBe(false)
    }
  })

  it('is let in by a use that another owner of the session recorded', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'holdfast-'))
    const store = `sqlite:${join(directory, 'store.db')}`
    const agents = { asks }
    const before = await openHoldfast({ store, agents })
    const { id } = await before.resolve()
    const link = (await before.session(id).createLink({ scopes: ['watch'], uses: 1 })).token
    const { token } = await before.session(id).attach({ role: 'watcher', link })
    await before.close()
    const after = await openHoldfast({ store, agents })
    const watcher = { role: 'watcher', link, use: token ?? '' } as const
    await after.session(id).attach(watcher)
    const twice = after.session(id).attach(watcher)
    await expect(twice).rejects.toMatchObject({ code: 'in_use' })
    await after.close()
    rmSync(directory, { recursive: true })
  })
})

describe('an ask that is denied if no client is there', () => {
  const denied = { reply: { text: 'nobody_to_ask' } }

  it('waits for a driver that answers it, and a short time for one that is lost', async () => {
    const session = await resolve({ agent: 'asks' })
    const driver = await server.attach({ session: session.id, answers: ['permission'] })
    const turn = session.turn('deny')
    await driver.client.frame('ask.opened')
    await driver.client.cut()
    expect(await turn).toMatchObject(denied)
    expect((await session.state()).attachments).toMatchObject([{ state: 'detached' }])
    expect(await session.turn('deny')).toMatchObject(denied)
  })

  it('is not lost by a client that reloads', async () => {
    const calm = await serveConnect({ agents: { asks } })
    const session = await calm.holdfast.resolve({ agent: 'asks' })
    const driver = await calm.attach({ session: session.id, answers: ['permission'] })
    const turn = session.turn('deny')
    await driver.client.frame('ask.opened')
    await driver.client.cut()
    const back = await calm.attach(again(driver))
    const [{ id: ask }] = back.welcome['asks']
    back.client.send({ type: 'answer', id: '1', ask, answer: 'yes' })
    expect(await turn).toMatchObject({ reply: { text: 'yes' } })
    await calm.close()
  })
})
