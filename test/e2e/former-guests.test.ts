/**
 * What guests of a session are not told: with whom else it is shared, and, once it is no longer
 * shared with them, the answers to the turns that they began.
 */
import { builtinAgents, type Agent } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EVENT_TYPES } from '../../src/core/events.ts'
import { gate, until } from '../support/gate.ts'
import { bearer, secretOf, sharedSession, TokenFiles } from '../support/principals.ts'
import { serve, type TestServer } from '../support/server.ts'
import { dial } from '../support/wire-client.ts'

let files: TokenFiles
let server: TestServer
let hold = gate()

const held: Agent = async ({ text }) => {
  await hold.opened
  return `the answer to ${text}`
}

beforeAll(async () => {
  files = await TokenFiles.make()
  server = await serve({ agents: { ...builtinAgents, held }, tokens: await files.open() })
})
afterAll(async () => {
  await server.close()
  await files.remove()
})

const alice = bearer('alice')
const guest = bearer('talker')

/** A session of Alice's in which turns run until `hold` is opened, shared with Tom. */
async function heldSession() {
  hold = gate()
  const made = { headers: alice, body: { agent: 'held' } }
  const { id } = (await server.call('POST', '/v1/sessions', made)).body
  const path = `/v1/sessions/${id}`
  const share = (scopes: readonly string[]) =>
    server.call('POST', `${path}/shares`, { headers: alice, body: { with: 'tom', scopes } })
  await share(['talk'])
  const view = async () => (await server.call('GET', path, { headers: alice })).body
  const end = () => server.call('DELETE', `${path}/shares/tom`, { headers: alice })
  return { id: id as string, path, share, view, end }
}

describe('a turn that runs when its caller loses access', () => {
  type Begin = (path: string, previous: string) => Promise<Response>
  const ways: Readonly<Record<string, Begin>> = {
    'an answer': (path) => post(`${path}/turns`, { input: 'x' }),
    'a stream': (path) => post(`${path}/turns`, { input: 'x' }, { accept: 'text/event-stream' }),
    'the stream of the log': (path) =>
      fetch(`${server.url}${path}/events`, { headers: { ...guest, accept: 'text/event-stream' } }),
    "OpenAI's response": (_, previous_response_id) =>
      post('/v1/responses', { input: 'x', model: 'held', previous_response_id }),
    "OpenAI's stream": (_, previous_response_id) =>
      post('/v1/responses', { input: 'x', model: 'held', stream: true, previous_response_id }),
  }

  function post(path: string, body: object, more: object = {}): Promise<Response> {
    const headers = { ...guest, 'content-type': 'application/json', ...more }
    return fetch(`${server.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
  }

  it.each(Object.entries(ways))(
    'goes on, and its answer does not come as %s',
    async (name, begin) => {
      const { id, path, view, end } = await heldSession()
      const post = (input: string) =>
        server.call('POST', `${path}/turns`, { headers: alice, body: { input } })
      hold.open()
      const { turn } = (await post('a')).body
      hold = gate()
      const told = begin(path, `resp_${id}_${turn.id}`).then((response) => response.text())
      // The log is read without a turn of the guest's own.
      const own = name.includes('log') ? post('b') : null
      await until(async () => (await view()).running !== null)
      await end()
      hold.open()
      await own
      await until(async () => (await view()).running === null)
      expect(await told).not.toMatch(/the answer to [xb]/)
      const log = await server.call('GET', `${path}/events`, { headers: alice })
      expect(log.text).toMatch(/the answer to [xb]/)
    },
  )

  it('is not told to a caller that waits for its end in the program', async () => {
    const { id, view, end } = await heldSession()
    const access = { principal: 'tom', groups: [], scopes: ['watch', 'talk'] as const }
    const by = { kind: 'token', issuer: 'holdfast', id: 'tom' } as const
    const session = server.holdfast.as(by, access).session(id)
    const turn = session.turn('x')
    const { turn: name } = await turn.admission
    const waits = [turn, session.finished(name), texts(turn)].map((wait) =>
      Promise.resolve(wait).then(String, ({ code }) => code),
    )
    await until(async () => (await view()).running !== null)
    await end()
    hold.open()
    expect(await Promise.all(waits)).toEqual(Array(3).fill('session_unknown'))
    expect((await server.holdfast.session(id).finished(name)).reply?.text).toBe('the answer to x')
  })

  async function texts(parts: AsyncIterable<string>): Promise<string> {
    let all = ''
    for await (const part of parts) all += part
    return all
  }
})

describe('a recorded turn of a caller that has lost access', () => {
  const later = { ...guest, prefer: 'respond-async' }

  it('is cancelled when it would start', async () => {
    const { path, view, end } = await heldSession()
    const first = server.call('POST', `${path}/turns`, { headers: alice, body: { input: 'a' } })
    await until(async () => (await view()).running !== null)
    const recorded = await server.call('POST', `${path}/turns`, {
      headers: later,
      body: { input: 'of tom' },
    })
    expect(recorded.status).toBe(202)
    await end()
    const next = server.call('POST', `${path}/turns`, { headers: alice, body: { input: 'b' } })
    await until(async () => (await view()).queued.length === 2)
    hold.open()
    expect([(await first).status, (await next).status]).toEqual([200, 200])
    const its = `${path}/turns/${recorded.body.turn.id}`
    const { turn } = (await server.call('GET', its, { headers: alice })).body
    expect(turn).toMatchObject({ state: 'cancelled', reason: 'access_lost', startedAt: null })
  })

  it('starts if another caller, who may, has joined it', async () => {
    const { path, view, end } = await heldSession()
    const first = server.call('POST', `${path}/turns`, { headers: alice, body: { input: 'a' } })
    await until(async () => (await view()).running !== null)
    const ids: string[] = []
    for (const headers of [later, { ...alice, prefer: 'respond-async' }]) {
      const body = { input: 'both', busy: 'collect' }
      ids.push((await server.call('POST', `${path}/turns`, { headers, body })).body.turn.id)
    }
    expect(ids[1]).toBe(ids[0])
    await end()
    hold.open()
    await first
    const its = `${path}/turns/${ids[0]}`
    const state = async () => (await server.call('GET', its, { headers: alice })).body.turn.state
    await until(async () => (await state()) === 'done')
  })

  it('starts if its caller may run turns again by then', async () => {
    const { path, view, end, share } = await heldSession()
    const first = server.call('POST', `${path}/turns`, { headers: alice, body: { input: 'a' } })
    await until(async () => (await view()).running !== null)
    const call = { headers: later, body: { input: 'of tom' } }
    const recorded = await server.call('POST', `${path}/turns`, call)
    await end()
    await share(['talk'])
    hold.open()
    await first
    const its = `${path}/turns/${recorded.body.turn.id}`
    const state = async () => (await server.call('GET', its, { headers: alice })).body.turn.state
    await until(async () => (await state()) === 'done')
  })
})

describe('with whom a session is shared', () => {
  const managed = Object.entries(EVENT_TYPES).filter(([, { managed = false }]) => managed)

  /** All types that a caller is told of, page by page, as a stream, and over a socket. */
  async function typesTold(who: string, id: string, link?: string): Promise<readonly string[]> {
    const hello = { session: id, role: 'watcher', presence: true }
    const auth = link === undefined ? { token: secretOf(who) } : { link }
    const client = dial(server.url, { ...hello, auth })
    await client.frame(({ type }) => type === 'turn.done')
    await client.cut()
    const overSocket = client.frames.map(({ type }) => type)
    if (link !== undefined) return overSocket
    const paged: string[] = []
    for (let after = 0, hasMore = true; hasMore;) {
      const path = `/v1/sessions/${id}/events?limit=1&after=${after}`
      const { body } = await server.call('GET', path, { headers: bearer(who) })
      paged.push(...body.events.map(({ type }: { type: string }) => type))
      expect(body.nextAfter).toBe(after + 1)
      ;({ nextAfter: after, hasMore } = body)
    }
    for (let before = paged.length + 99, hasMore = true; hasMore;) {
      const path = `/v1/sessions/${id}/events?limit=1&before=${before}`
      const { body } = await server.call('GET', path, { headers: bearer(who) })
      paged.push(...body.events.map(({ type }: { type: string }) => type))
      ;({ nextBefore: before, hasMore } = body)
    }
    const stopped = new AbortController()
    const stream = await fetch(`${server.url}/v1/sessions/${id}/events`, {
      headers: { ...bearer(who), accept: 'text/event-stream' },
      signal: stopped.signal,
    })
    let text = ''
    for await (const part of stream.body ?? []) {
      text += Buffer.from(part).toString()
      if (text.includes('event: turn.done')) break
    }
    stopped.abort()
    return [...overSocket, ...paged, ...text.matchAll(/^event: (.*)$/gm)].map(String)
  }

  it('is in the log for those that may manage it, and for no others', async () => {
    const { id, path } = await sharedSession(server)
    await server.call('DELETE', `${path}/shares/@team`, { headers: alice })
    const call = { headers: alice, body: { scopes: ['watch'], uses: 9 } }
    const { token, id: link } = (await server.call('POST', `${path}/links`, call)).body
    const other = await server.call('POST', `${path}/links`, call)
    await typesTold('watcher', id, token)
    await server.call('DELETE', `${path}/links/${other.body.id}`, { headers: alice })
    const last = { headers: alice, body: { input: 'the end' } }
    await server.call('POST', `${path}/turns`, last)
    const names = managed.map(([type]) => type)
    expect(names).toEqual([
      ...['session.shared', 'session.unshared', 'link.created', 'link.used', 'link.revoked'],
    ])
    for (const who of ['alice', 'admin', 'keeper']) {
      const told = (await typesTold(who, id)).join('\n')
      for (const type of names) expect([who, told]).toEqual([who, expect.stringContaining(type)])
    }
    for (const told of [
      ...[await typesTold('watcher', id), await typesTold('talker', id)],
      await typesTold('guest', id, token),
    ]) {
      expect(told).toContain('session.created')
      expect(told.join('\n')).not.toMatch(/shared|link\./)
    }
    expect(link).toBeTypeOf('string')
  })

  it('does not hold up a reader that is at the end of the log', async () => {
    const { id, path } = await sharedSession(server)
    const auth = { token: secretOf('watcher') }
    const client = dial(server.url, { session: id, role: 'watcher', auth })
    await client.frame('turn.done')
    const more = { headers: alice, body: { with: 'zoe', scopes: ['watch'] } }
    await server.call('POST', `${path}/shares`, more)
    await server.call('POST', `${path}/turns`, { headers: alice, body: { input: 'later' } })
    await client.frame(({ type, text }) => type === 'message.added' && text === 'later')
    expect(JSON.stringify(client.frames)).not.toContain('zoe')
    await client.cut()
  })
})
