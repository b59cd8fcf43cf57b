/** What waits for its turn: shown in order, and taken back without a trace. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, openHoldfast, type Agent, type SessionEvent } from 'holdfast'
import { gate, until, type Gate } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'
import { dial } from '../support/wire-client.ts'

let serving: TestServer
const holds = new Map<string, Gate>()
const ran: string[] = []

/** Runs until the test lets it end, or it is cancelled. */
const held: Agent = async ({ text }, { signal }) => {
  ran.push(text)
  const cancelled = new Promise((resolve) => signal.addEventListener('abort', resolve))
  await Promise.race([holds.get(text)?.opened, cancelled])
  return text
}

beforeAll(async () => {
  serving = await serve({ agents: { held, ...builtinAgents } })
})
afterAll(() => serving.close())

const LOCAL = { kind: 'local', issuer: 'holdfast', id: 'default' }
let count = 0

/** A session in which a turn runs until `release`. */
async function busy() {
  count += 1
  const name = `first-${count}`
  const hold = gate()
  holds.set(name, hold)
  const { body } = await serving.post('/v1/sessions', { agent: 'held' })
  const path = `/v1/sessions/${body.id}`
  const first = serving.post(`${path}/turns`, { input: name })
  await until(async () => (await view(path)).running !== null)
  const waiting = async (length: number) => {
    await until(async () => (await view(path)).queued.length === length)
    return (await view(path)).queued
  }
  return { id: body.id as string, path, first, release: () => hold.open(), waiting }
}

async function view(path: string): Promise<any> {
  return (await serving.get(path)).body
}

async function log(path: string): Promise<readonly SessionEvent[]> {
  return (await view(`${path}/events`)).events
}

describe('the queue of a session', () => {
  it('shows who waits, in the log or not, in order and since when', async () => {
    const { path, first, release, waiting } = await busy()
    const second = serving.post(`${path}/turns`, { input: 'second' })
    await waiting(1)
    const queued = await serving.post(
      `${path}/turns`,
      { input: 'third', busy: 'collect' },
      { prefer: 'respond-async' },
    )
    await waiting(2)
    const fourth = serving.post(`${path}/turns`, { input: 'fourth', busy: 'collect' })
    await waiting(3)
    const fifth = serving.post(`${path}/turns`, { input: 'fifth', busy: 'collect' })
    const rows = await waiting(4)
    const since = expect.any(Number)
    const request = expect.stringMatching(/^r_[\w-]+$/)
    // One collects, and the others are not in the log.
    const mayMove = false
    expect(rows).toEqual([
      { request, state: 'waiting', position: 1, since, by: LOCAL, busy: 'queue', mayMove },
      {
        turn: queued.body.turn.id,
        state: 'queued',
        position: 2,
        since,
        by: LOCAL,
        busy: 'collect',
        mayMove,
      },
      { request, state: 'waiting', position: 3, since, by: LOCAL, busy: 'collect', mayMove },
      { request, state: 'waiting', position: 3, since, by: LOCAL, busy: 'collect', mayMove },
    ])
    expect(rows).toEqual(await waiting(4))
    const refused = await serving.post(`${path}/turns`, { input: 'sixth', waitMs: 0 })
    expect([refused.status, refused.body.position]).toEqual([429, 4])
    release()
    const turns = (await Promise.all([first, second, fourth, fifth])).map(({ body }) => body.turn)
    expect(turns.map(({ state }) => state)).toEqual(['done', 'done', 'done', 'done'])
    expect(turns.map(({ queuedAt }) => queuedAt)).toEqual([
      ...[null, rows[0].since, rows[2].since, rows[2].since],
    ])
    for (const { queuedAt, startedAt } of turns.slice(1)) {
      expect(startedAt - queuedAt).toBeGreaterThanOrEqual(0)
    }
    expect((await view(path)).queued).toEqual([])
  })

  it('shows a request once, however many retries wait for it', async () => {
    const { path, first, release, waiting } = await busy()
    const headers = { 'idempotency-key': 'one' }
    const post = () => serving.post(`${path}/turns`, { input: 'once' }, headers)
    const both = [post(), post()]
    await waiting(1)
    release()
    await first
    const [one, two] = await Promise.all(both)
    expect(two?.body).toEqual(one?.body)
  })
})

describe('a waiting request that is sent again to be recorded', () => {
  it('keeps its place, its time and its mode, whatever mode the second one has', async () => {
    const { path, first, release, waiting } = await busy()
    const headers = { 'idempotency-key': 'again' }
    const input = 'sent twice'
    const posted = serving.post(`${path}/turns`, { input, busy: 'collect' }, headers)
    const [row] = await waiting(1)
    const next = serving.post(`${path}/turns`, { input: 'behind it' })
    await waiting(2)
    const recorded = await serving.post(
      `${path}/turns`,
      { input, busy: 'interrupt' },
      { ...headers, prefer: 'respond-async' },
    )
    const { id: turn, queuedAt } = recorded.body.turn
    expect([recorded.status, queuedAt]).toEqual([202, row.since])
    const { since, by } = row
    expect(await waiting(2)).toMatchObject([
      { turn, state: 'queued', position: 1, since, by, busy: 'collect' },
      { state: 'waiting', position: 2 },
    ])
    expect((await view(path)).running).not.toBe(null)
    release()
    const turns = await Promise.all([first, posted, next])
    expect(turns.map(({ body }) => body.turn.state)).toEqual(['done', 'done', 'done'])
    expect(turns[1]?.body.turn).toMatchObject({ id: turn, queuedAt: since })
    const started = (await log(path)).flatMap((event) =>
      event.type === 'turn.started' ? [event.input] : [],
    )
    expect(started.slice(1)).toEqual([input, 'behind it'])
  })

  it('still interrupts when it is next, and nobody that was collected loses its turn', async () => {
    const { path, release, waiting } = await busy()
    holds.set('runs next', gate())
    const headers = { 'idempotency-key': 'stop' }
    const next = serving.post(`${path}/turns`, { input: 'runs next' })
    await waiting(1)
    const stops = serving.post(`${path}/turns`, { input: 'stops', busy: 'interrupt' }, headers)
    await waiting(2)
    const one = serving.post(`${path}/turns`, { input: 'one', busy: 'collect' })
    await waiting(3)
    await serving.post(`${path}/turns`, { input: 'stops' }, { ...headers, prefer: 'respond-async' })
    expect((await waiting(3)).map(({ busy: mode }: any) => mode)).toEqual([
      ...['queue', 'interrupt', 'collect'],
    ])
    release()
    const { turn } = (await next).body
    expect([turn.state, turn.reason]).toEqual(['cancelled', 'interrupted_by_newer'])
    expect((await stops).body.turn.state).toBe('done')
    expect((await one).body.turn.state).toBe('done')
  })
})

describe('a waiting request that is cancelled', () => {
  it('is refused, with all who wait for it, and leaves no trace', async () => {
    const { path, first, release, waiting } = await busy()
    const headers = { 'idempotency-key': 'two' }
    const post = (more = {}) =>
      serving.post(`${path}/turns`, { input: 'never' }, { ...headers, ...more })
    const callers = [post(), post(), post({ accept: 'text/event-stream' })]
    const other = serving.post(`${path}/turns`, { input: 'other' })
    const [{ request }] = await waiting(2)
    const before = await log(path)
    const done = await serving.delete(`${path}/turns/${request}`)
    expect([done.status, done.body.request]).toEqual([200, { id: request, state: 'cancelled' }])
    for (const { status, body } of await Promise.all(callers)) {
      expect([status, body.code]).toEqual([409, 'cancelled'])
    }
    expect(await log(path)).toEqual(before)
    expect(await waiting(1)).toMatchObject([{ position: 1 }])
    const again = await serving.delete(`${path}/turns/${request}`)
    expect([again.status, again.body.code]).toEqual([404, 'turn_unknown'])
    release()
    await first
    expect((await other).body.turn.state).toBe('done')
    expect(JSON.stringify(await log(path))).not.toContain('never')
    expect(ran).not.toContain('never')
    expect((await post()).status).toBe(200)
  })

  it('leaves those alone that were collected with it', async () => {
    const { path, first, release, waiting } = await busy()
    const inputs = ['one', 'two', 'three']
    const posts = inputs.map((input) => serving.post(`${path}/turns`, { input, busy: 'collect' }))
    const rows = await waiting(3)
    await serving.delete(`${path}/turns/${rows[1].request}`)
    release()
    await first
    const answers = await Promise.all(posts)
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 200, 409])
    const gone = answers.findIndex(({ status }) => status === 409)
    const [done] = answers.filter(({ status }) => status === 200)
    expect(done?.body.turn.input.split('\n\n').toSorted()).toEqual(
      inputs.filter((_, index) => index !== gone).toSorted(),
    )
  })

  it('is one of a socket, or cancelled by one', async () => {
    const { id, path, first, release, waiting } = await busy()
    const client = dial(serving.url, { session: id })
    await client.frame('welcome')
    client.send({ type: 'turn', id: 'a', input: 'of a socket' })
    const rows = await waiting(1)
    const other = dial(serving.url, { session: id })
    expect((await other.frame('welcome'))['session'].queued).toEqual(rows)
    other.send({ type: 'cancel', id: 'b', turn: rows[0].request })
    expect(await other.reply('b')).toEqual({ type: 'reply', id: 'b' })
    expect(await client.reply('a')).toMatchObject({ error: { code: 'cancelled', retry: false } })
    release()
    await first
    client.socket.terminate()
    other.socket.terminate()
    expect(JSON.stringify(await log(path))).not.toContain('of a socket')
  })

  it('does not make a stock OpenAI client come again by itself', async () => {
    const headers = { 'x-session-key': 'by-key' }
    await serving.post('/v1/sessions', { key: 'by-key', agent: 'held' })
    const hold = gate()
    holds.set('runs', hold)
    const say = (content: string) =>
      serving.post(
        '/v1/chat/completions',
        { model: 'held', messages: [{ role: 'user', content }] },
        headers,
      )
    const runs = say('runs')
    const list = () => serving.get('/v1/sessions?key=by-key')
    const keyed = `/v1/sessions/${(await list()).body.sessions[0].id}`
    await until(async () => (await view(keyed)).running !== null)
    const waits = say('waits')
    await until(async () => (await view(keyed)).queued.length === 1)
    await serving.delete(`${keyed}/turns/${(await view(keyed)).queued[0].request}`)
    const { status, body } = await waits
    expect([status, body.error.code]).toEqual([400, 'cancelled'])
    hold.open()
    await runs
  })
})

it('never shows a wait of less than no time, however the clock jumps', async () => {
  const hold = await openHoldfast({ store: 'memory:', agents: { held } })
  const { clock } = hold.authority
  const ended = gate()
  holds.set('jumps', ended)
  const session = await hold.resolve()
  const first = session.turn('jumps')
  await first.admission
  const second = session.turn('next')
  await until(async () => (await session.overview()).queue.length === 1)
  const before = { ...clock }
  try {
    Object.assign(clock, { now: () => before.now() - 3_600_000 })
    ended.open()
    await first
    const { queuedAt, startedAt } = await second
    expect((startedAt ?? 0) - (queuedAt ?? 0)).toBeGreaterThanOrEqual(0)
  } finally {
    Object.assign(clock, before)
  }
  await hold.close()
})
