/** All that waits for an answer, in one place: listed, followed, and counted as a client to ask. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createHash } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Agent } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { serve, type TestServer } from '../support/server.ts'

/** Asks as its input says, as JSON, and answers with what came of it. */
const asker: Agent = async ({ text }, context) =>
  JSON.stringify(
    await context.ask({ question: 'May I?', options: ['yes', 'no'], ...JSON.parse(text) }),
  )

const DETAIL = { tool: 'Bash', kind: 'execute', command: 'rm -r build' } as const
/** The short time for which a follower that is gone counts. */
const GRACE_MS = 400
const limits = { answerGraceMs: GRACE_MS }
const agents = { asker }

const NAMES = ['alice', 'bob', 'looker', 'stranger'] as const
type Name = (typeof NAMES)[number]
const CALLERS: Readonly<Record<Name, object>> = {
  alice: { principal: 'alice', scopes: ['talk', 'answer', 'manage'] },
  bob: { principal: 'bob', scopes: ['talk', 'answer'] },
  looker: { principal: 'alice', scopes: ['watch'] },
  stranger: { principal: 'mallory', scopes: ['talk', 'answer', 'manage'] },
}
const bearer = (name: Name) => ({ authorization: `Bearer hf_secret-of-${name}` })

let folder: string
let database: TestDatabase
let single: TestServer
let near: TestServer
let far: TestServer
const streams: Inbox[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-inbox-'))
  const file = join(folder, 'tokens.json')
  const tokens = NAMES.map((name) => {
    const sha256 = createHash('sha256').update(`hf_secret-of-${name}`).digest('hex')
    return { name, sha256, ...CALLERS[name] }
  })
  await writeFile(file, JSON.stringify({ version: 3, tokens }), { mode: 0o600 })
  const open = async (more: object = {}) =>
    serve({ agents, limits, tokens: await openTokenFile(file), ...more })
  database = await openTestDatabase()
  const store = database.freshUrl()
  single = await open({ store: `sqlite:${join(folder, 'holdfast.db')}` })
  far = await open({ store, isNode: true })
  near = await open({ store, isNode: true })
})

afterEach(async () => {
  await Promise.all(streams.splice(0).map((stream) => stream.close()))
})

afterAll(async () => {
  await Promise.all([single.close(), near.close(), far.close()])
  await database.close()
  await rm(folder, { recursive: true })
})

type StreamEvent = { readonly type: string; readonly id: string | null; readonly data: any }

/** A stream of `GET /v1/asks`. */
class Inbox {
  readonly events: StreamEvent[] = []
  status = 0
  #lastId: string | null = null
  readonly #abort = new AbortController()
  readonly #ended: Promise<void>

  constructor(server: TestServer, query: string, who: Name, lastEventId?: string) {
    streams.push(this)
    this.#ended = this.#read(`${server.url}/v1/asks${query}`, {
      accept: 'text/event-stream',
      ...bearer(who),
      ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
    })
  }

  async #read(url: string, headers: Readonly<Record<string, string>>): Promise<void> {
    try {
      const response = await fetch(url, { headers, signal: this.#abort.signal })
      this.status = response.status
      let text = ''
      for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
        text += chunk
        const parts = text.split('\n\n')
        text = parts.pop() ?? ''
        for (const part of parts) this.#receive(part)
      }
    } catch (error) {
      if (!this.#abort.signal.aborted) throw error
    }
  }

  #receive(part: string): void {
    const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(part)?.[1] ?? null
    const [type, id, data] = [field('event'), field('id'), field('data')]
    if (id !== null) this.#lastId = id
    if (type !== null) this.events.push({ type, id, data: JSON.parse(data ?? 'null') })
  }

  get lastId(): string {
    return this.#lastId ?? ''
  }

  async event(test: (event: StreamEvent) => boolean): Promise<StreamEvent> {
    await until(() => this.events.some(test))
    return this.events.find(test)!
  }

  async listed(): Promise<this> {
    await this.event(({ type }) => type === 'asks.listed')
    return this
  }

  ids(type: string): string[] {
    return this.events.filter((event) => event.type === type).map(({ data }) => nameOf(data))
  }

  async close(): Promise<void> {
    this.#abort.abort()
    await this.#ended
  }
}

const nameOf = (ask: any): string => `${ask.session.id}/${ask.id}`

async function session(server: TestServer, options: object = {}, who: Name = 'alice') {
  const body = { agent: 'asker', ...options }
  const { body: made } = await server.call('POST', '/v1/sessions', { headers: bearer(who), body })
  return made.id as string
}

/** Begins a turn that asks, and waits until it does. */
async function ask(server: TestServer, id: string, question: object = {}) {
  const input = JSON.stringify({ kind: 'permission', detail: DETAIL, ...question })
  const headers = { ...bearer('alice'), prefer: 'respond-async' }
  const path = `/v1/sessions/${id}`
  const { body } = await server.call('POST', `${path}/turns`, { headers, body: { input } })
  const turn = async () =>
    (await server.call('GET', `${path}/turns/${body.turn.id}`, { headers: bearer('alice') })).body
      .turn
  const asks = async () =>
    (await server.call('GET', `${path}/asks`, { headers: bearer('alice') })).body.asks
  let waiting: any[] = []
  await until(async () => {
    waiting = await asks()
    return waiting.length > 0 || (await turn()).state !== 'running'
  })
  const over = async () => {
    let last: any
    await until(async () => ((last = await turn()).endedAt ?? null) !== null)
    return JSON.parse(last.reply.text) as { outcome: string; answer?: unknown }
  }
  return { session: id, ask: `${id}/${waiting[0]?.id}`, id: waiting[0]?.id as string, over }
}

async function answer(server: TestServer, name: string, who: Name = 'alice', given = 'yes') {
  const [id, one] = name.split('/')
  const call = { headers: bearer(who), body: { answer: given } }
  return (await server.call('POST', `/v1/sessions/${id}/asks/${one}`, call)).status
}

async function list(server: TestServer, query = '', who: Name = 'alice') {
  const { body } = await server.call('GET', `/v1/asks${query}`, { headers: bearer(who) })
  return body as { asks: any[]; nextCursor: string | null }
}

/** The server that owns a session, and the one that is asked about it. */
const WHERE: Readonly<Record<string, () => readonly [TestServer, TestServer]>> = {
  'on one server': () => [single, single],
  'through another node': () => [far, near],
}

describe.each(Object.entries(WHERE))('the asks that wait, %s', (_, nodes) => {
  it('are listed with their details and sessions, in pages, by session, kind and label', async () => {
    const [owner, asked] = nodes()
    const labels = { team: `blue:${owner.port}` }
    const one = await ask(owner, await session(owner, { key: 'one', labels }))
    const two = await ask(owner, await session(owner, { labels }), { kind: 'question' })
    const label = `label=${encodeURIComponent(`team:${labels.team}`)}`
    const { asks } = await list(asked, `?${label}`)
    expect(asks.map(nameOf)).toEqual([one.ask, two.ask])
    expect(asks[0]).toMatchObject({
      ...{ kind: 'permission', question: 'May I?', detail: DETAIL, onNobody: 'wait' },
      session: { id: one.session, key: 'one', agent: 'asker', labels, principal: 'alice' },
    })
    const first = await list(asked, `?${label}&limit=1`)
    expect(first.asks.map(nameOf)).toEqual([one.ask])
    const next = await list(asked, `?${label}&limit=1&cursor=${first.nextCursor}`)
    expect([next.asks.map(nameOf), next.nextCursor]).toEqual([[two.ask], null])
    expect((await list(asked, `?${label}&kind=question`)).asks.map(nameOf)).toEqual([two.ask])
    expect((await list(asked, `?session=${one.session}`)).asks.map(nameOf)).toEqual([one.ask])
    expect((await list(asked, `?${label}`, 'stranger')).asks).toEqual([])
    for (const { ask: name } of [one, two]) expect(await answer(asked, name)).toBe(200)
    await Promise.all([one.over(), two.over()])
    expect((await list(asked, `?${label}`)).asks).toEqual([])
  })

  it('are followed from those that are open on, until they are settled', async () => {
    const [owner, asked] = nodes()
    const before = await ask(owner, await session(owner))
    const inbox = await new Inbox(asked, '', 'alice').listed()
    expect(inbox.ids('ask.opened')).toEqual([before.ask])
    const after = await ask(owner, await session(owner), { kind: 'question' })
    await inbox.event(({ data }) => data.session && nameOf(data) === after.ask)
    await answer(owner, before.ask, 'alice', 'no')
    const settled = await inbox.event(({ type }) => type === 'ask.settled')
    expect(nameOf(settled.data)).toBe(before.ask)
    expect(settled.data).toMatchObject({ outcome: 'answered', answer: 'no' })
    await owner.call('DELETE', `/v1/sessions/${after.session}`, { headers: bearer('alice') })
    await until(() => inbox.ids('ask.settled').length === 2)
    expect(inbox.events.at(-1)?.data).toMatchObject({ outcome: 'withdrawn' })
    expect(inbox.ids('ask.opened')).toEqual([before.ask, after.ask])
  })

  it('are told of from where a follower stood, and once more from the start if that is gone', async () => {
    const [owner, asked] = nodes()
    const one = await ask(owner, await session(owner))
    const two = await ask(owner, await session(owner))
    const inbox = await new Inbox(asked, '', 'alice').listed()
    expect(inbox.ids('ask.opened')).toEqual([one.ask, two.ask])
    await inbox.close()
    await answer(owner, one.ask)
    await one.over()
    const three = await ask(owner, await session(owner))
    const again = await new Inbox(asked, '', 'alice', inbox.lastId).listed()
    expect(again.ids('ask.settled')).toEqual([one.ask])
    expect(again.ids('ask.opened')).toEqual([three.ask])
    expect(again.events.at(-1)?.data.asks).toEqual(
      [two, three].map(({ session: id, id: ask_ }) => ({ session: id, ask: ask_ })),
    )
    const gone = await new Inbox(asked, '', 'alice', '999999999').listed()
    expect(gone.ids('ask.opened')).toEqual([two.ask, three.ask])
    for (const { ask: name } of [two, three]) await answer(owner, name)
    await until(() => gone.ids('ask.settled').length === 2)
  })

  it('are only those of sessions that the follower may see, and end for it with a share', async () => {
    const [owner, asked] = nodes()
    const id = await session(owner)
    const one = await ask(owner, id)
    const [bob, stranger] = [
      await new Inbox(asked, '', 'bob').listed(),
      await new Inbox(asked, '', 'stranger').listed(),
    ]
    const shares = `/v1/sessions/${id}/shares`
    const body = { with: 'bob', scopes: ['watch', 'answer'] }
    await owner.call('POST', shares, { headers: bearer('alice'), body })
    // It waits since before it was shared.
    await until(() => bob.ids('ask.opened').length === 1)
    await owner.call('DELETE', `${shares}/bob`, { headers: bearer('alice') })
    await until(() => bob.ids('ask.settled').length === 1)
    expect(bob.events.at(-1)?.data).toMatchObject({ outcome: 'withdrawn' })
    expect(await answer(asked, one.ask, 'bob')).toBe(404)
    await answer(owner, one.ask)
    await one.over()
    expect(bob.ids('ask.opened')).toEqual([one.ask])
    expect(stranger.events.map(({ type }) => type)).toEqual(['asks.listed'])
  })
})

describe.each(Object.entries(WHERE))('a follower of asks, %s', (_, nodes) => {
  const denied = { onNobody: 'deny' }

  it('counts as a client to ask for the kinds that it answers', async () => {
    const [owner, asked] = nodes()
    const inbox = await new Inbox(asked, '?answers=question&answers=permission', 'alice').listed()
    const waits = await ask(owner, await session(owner), denied)
    expect(waits.id).toBeDefined()
    await inbox.event(({ type }) => type === 'ask.opened')
    expect(await answer(asked, waits.ask)).toBe(200)
    expect(await waits.over()).toMatchObject({ outcome: 'answered', answer: 'yes' })
    const other = await ask(owner, await session(owner), { ...denied, kind: 'choice' })
    expect(await other.over()).toEqual({ outcome: 'nobody_to_ask' })
    await inbox.close()
    const quiet = await new Inbox(asked, '', 'alice').listed()
    await until(async () => {
      const late = await ask(owner, await session(owner), denied)
      if (late.id !== undefined) await answer(owner, late.ask)
      return (await late.over()).outcome === 'nobody_to_ask'
    })
    await quiet.close()
  })

  it('counts for a short time after it is lost, and then leaves no ask open that must not wait', async () => {
    const [owner, asked] = nodes()
    const inbox = await new Inbox(asked, '?answers=permission', 'alice').listed()
    const one = await ask(owner, await session(owner), denied)
    const patient = await ask(owner, await session(owner))
    await inbox.close()
    const back = await new Inbox(asked, '?answers=permission', 'alice', inbox.lastId).listed()
    const two = await ask(owner, await session(owner), denied)
    expect(await answer(asked, one.ask)).toBe(200)
    expect((await one.over()).outcome).toBe('answered')
    await back.close()
    expect((await two.over()).outcome).toBe('nobody_to_ask')
    expect((await list(owner)).asks.map(nameOf)).toEqual([patient.ask])
    await answer(owner, patient.ask)
    await patient.over()
  })

  it.each([
    ['its session', '?answers=permission&session=none'],
    ['its label', '?answers=permission&label=no:where'],
    ['its kind', '?answers=permission&kind=question'],
  ])('counts for no ask that its filter by %s leaves out', async (_filter, query) => {
    const [owner, asked] = nodes()
    await new Inbox(asked, query, 'alice').listed()
    const one = await ask(owner, await session(owner), denied)
    expect((await one.over()).outcome).toBe('nobody_to_ask')
  })

  it('counts only in sessions in which its caller may answer', async () => {
    const [owner, asked] = nodes()
    await new Inbox(asked, '?answers=permission', 'bob').listed()
    const id = await session(owner)
    const share = (scopes: readonly string[]) => {
      const call = { headers: bearer('alice'), body: { with: 'bob', scopes } }
      return owner.call('POST', `/v1/sessions/${id}/shares`, call)
    }
    expect((await (await ask(owner, id, denied)).over()).outcome).toBe('nobody_to_ask')
    await share(['watch'])
    expect((await (await ask(owner, id, denied)).over()).outcome).toBe('nobody_to_ask')
    await share(['watch', 'answer'])
    const waits = await ask(owner, id, denied)
    expect(waits.id).toBeDefined()
    // What is no longer shared is answered by no other.
    await owner.call('DELETE', `/v1/sessions/${id}/shares/bob`, { headers: bearer('alice') })
    expect((await waits.over()).outcome).toBe('nobody_to_ask')
    const { status } = await refusal(asked, '?answers=permission', 'looker')
    expect(status).toBe(403)
  })
})

it('lets no principal have the nodes tell each other of any number of followers', async () => {
  const query = (n: number) =>
    `?${Array.from({ length: 40 }, (_, kind) => `answers=${n}-${kind}-${'x'.repeat(200)}`).join('&')}`
  let [count, status] = [0, 200]
  for (; status === 200 && count < 50; count += 1) {
    const inbox = new Inbox(single, query(count), 'bob')
    await until(() => inbox.status !== 0)
    status = inbox.status
  }
  expect([status, count > 2]).toEqual([429, true])
  // The same once more, and those of others, are none too many.
  const [same, other] = [new Inbox(single, query(0), 'bob'), new Inbox(single, query(0), 'alice')]
  await Promise.all([same.listed(), other.listed()])
})

async function refusal(server: TestServer, query: string, who: Name) {
  const headers = { accept: 'text/event-stream', ...bearer(who) }
  return server.call('GET', `/v1/asks${query}`, { headers })
}

describe('a stream of asks', () => {
  it.each([
    ['?limit=1', 'limit'],
    ['?cursor=c1', 'cursor'],
    ['?answers=', 'answers'],
    [`?${'answers=x&'.repeat(65)}`, 'answers'],
    ['?nonsense=1', 'nonsense'],
    ['?kind=x&kind=y', 'kind'],
  ])('refuses %s with the name of the field', async (query, field) => {
    const { status, body } = await refusal(single, query, 'alice')
    expect([status, body.code]).toEqual([422, 'invalid_field'])
    expect(body.detail ?? JSON.stringify(body)).toContain(field)
  })

  it('refuses to count on a page, which ends at once', async () => {
    const headers = bearer('alice')
    const { status } = await single.call('GET', '/v1/asks?answers=permission', { headers })
    expect(status).toBe(422)
  })
})
