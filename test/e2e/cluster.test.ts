/** Many nodes on one PostgreSQL: any node takes any request, and a node that is lost is replaced. */
import { execFile } from 'node:child_process'
import { setTimeout } from 'node:timers/promises'
import { promisify } from 'node:util'
import { connect, type ClientSession } from 'holdfast/client'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { until } from '../support/gate.ts'
import { CLI } from '../support/repository.ts'
import { Cluster, type ServerProcess } from '../support/server-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'

const LEASE_MS = 5_000

let database: TestDatabase
let cluster: Cluster
let one: ServerProcess
let two: ServerProcess
let three: ServerProcess

beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

async function startNodes(): Promise<void> {
  cluster = new Cluster(database.freshUrl(), { leaseMs: LEASE_MS })
  ;[one, two, three] = await Promise.all([cluster.add(), cluster.add(), cluster.add()])
}

async function stopNodes(): Promise<void> {
  for (const session of attached.splice(0)) session.dispose()
  Cable.all.length = 0
  await cluster.close()
}

/** Sockets that a test can cut. */
class Cable extends WebSocket {
  static readonly all: Cable[] = []

  constructor(url: string) {
    super(url)
    Cable.all.push(this)
  }
}

const attached: ClientSession[] = []

function attach({ url }: ServerProcess, key: string): ClientSession {
  const session = connect({ url, webSocket: Cable }).session({ key })
  attached.push(session)
  return session
}

/** A session that this node owns. */
async function sessionOn(node: ServerProcess, options: object = {}): Promise<string> {
  const { status, body } = await node.post('/v1/sessions', options)
  expect(status).toBe(201)
  return body.id as string
}

async function events(node: ServerProcess, session: string): Promise<any[]> {
  const { status, body } = await node.get(`/v1/sessions/${session}/events`)
  expect(status).toBe(200)
  return body.events as any[]
}

async function listNodes(): Promise<any[]> {
  const args = [CLI, 'nodes', '--store', cluster.store, '--json']
  const { stdout } = await promisify(execFile)(process.execPath, args)
  return stdout
    .trim()
    .split('\n')
    .map((line): any => JSON.parse(line))
}

function ofTurns(log: readonly any[]): string[] {
  return log
    .filter(({ type }) => type.startsWith('turn.'))
    .map(({ type, turn }) => `${turn} ${type}`)
}

describe('many nodes', () => {
  beforeAll(startNodes)
  afterAll(stopNodes)

  it('give one key one session, however many first requests come to however many nodes', async () => {
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, n) =>
        cluster.nodes[n % 3]!.post('/v1/keys/fresh/turns', { input: `request ${n}` }),
      ),
    )
    expect(answers.map(({ status }) => status)).toEqual(Array(100).fill(200))
    expect(new Set(answers.map(({ body }) => body.session)).size).toBe(1)
    answers.forEach(({ body }, n) => expect(body.turn.reply.text).toBe(`request ${n}`))
    const { body } = await three.get('/v1/sessions?key=fresh')
    expect(body.sessions).toHaveLength(1)
    const { body: lines } = await two.get(`/v1/sessions/${answers[0]!.body.session}/transcript`)
    expect(lines.trim().split('\n')).toHaveLength(200)
  })

  it('answer all requests for a session that another node owns', async () => {
    const id = await sessionOn(one, { key: 'alice', labels: { team: 'blue' } })
    const turn = await two.post(`/v1/sessions/${id}/turns`, { input: 'hello' })
    expect(turn).toMatchObject({ status: 200, body: { turn: { reply: { text: 'hello' } } } })
    expect(await two.get(`/v1/sessions/${id}`)).toMatchObject({
      status: 200,
      body: { key: 'alice' },
    })
    const again = await three.post('/v1/sessions', { key: 'alice' })
    expect(again).toMatchObject({ status: 200, body: { id, isNew: false } })
    const large = await two.post(`/v1/sessions/${id}/turns`, { input: 'x'.repeat(900_000) })
    expect(large.body.turn.reply.text).toHaveLength(900_000)
    const wrong = await two.post(`/v1/sessions/${id}/turns`, { input: 'x', busy: 'never' })
    expect(wrong).toMatchObject({ status: 422, body: { code: 'invalid_field' } })
    expect((await three.delete(`/v1/sessions/${id}`)).status).toBe(200)
    const late = await two.post(`/v1/sessions/${id}/turns`, { input: 'late' })
    expect(late).toMatchObject({ status: 410, body: { code: 'session_closed' } })
  })

  it('stream the events of a session that another node owns', async () => {
    const id = await sessionOn(one)
    const response = await fetch(`${two.url}/v1/sessions/${id}/events`, {
      headers: { accept: 'text/event-stream' },
    })
    expect(response.headers.get('content-type')).toContain('text/event-stream')
    await three.post(`/v1/sessions/${id}/turns`, { input: 'hello' })
    let text = ''
    for await (const chunk of response.body!) {
      text += Buffer.from(chunk).toString()
      if (text.includes('turn.done')) break
    }
    expect(text).toContain('session.created')
    const streamed = await fetch(`${three.url}/v1/sessions/${id}/turns`, {
      method: 'POST',
      headers: { accept: 'text/event-stream', 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'as it comes' }),
    })
    expect(await streamed.text()).toContain('turn.done')
  })

  it('let a client attach to a session that another node owns, and resume there', async () => {
    const id = await sessionOn(one, { key: 'bob' })
    const session = attach(two, 'bob')
    expect((await session.turn('over the wrong node')).reply?.text).toBe('over the wrong node')
    Cable.all.at(-1)!.terminate()
    expect((await session.turn('after a cut')).reply?.text).toBe('after a cut')
    expect(Cable.all.length).toBeGreaterThan(1)
    expect(session.info?.id).toBe(id)
    const types = (await events(one, id)).map(({ type }) => type)
    expect(types.filter((type) => type === 'attachment.resumed')).toHaveLength(1)
  })

  it('are listed with their leases and sessions', async () => {
    const before = await listNodes()
    await sessionOn(two)
    const after = await listNodes()
    const urls = cluster.nodes.map(({ url }) => url).toSorted()
    expect(after.map(({ url }) => url).toSorted()).toEqual(urls)
    for (const { leaseMs } of after) expect(leaseMs).toBeLessThanOrEqual(LEASE_MS)
    const owned = (nodes: any[]): number => nodes.find(({ url }) => url === two.url)?.sessions
    expect(owned(after)).toBe(owned(before) + 1)
  })

  it('believe no seal that was not made with their secret, and pass nothing on twice', async () => {
    const id = await sessionOn(one)
    const forged = { 'x-holdfast-seal': `${Date.now().toString(36)}.AAAA` }
    const cross = { ...forged, origin: 'https://evil.example' }
    const refused = await two.post(`/v1/sessions/${id}/turns`, { input: 'x' }, cross)
    expect(refused).toMatchObject({ status: 403, body: { code: 'origin_refused' } })
    const honest = await two.post(`/v1/sessions/${id}/turns`, { input: 'x' }, forged)
    expect(honest.status).toBe(200)
  })
})

describe('a node that dies', () => {
  beforeEach(startNodes)
  afterEach(stopNodes)

  it('is replaced within its lease: what ran is interrupted, what waited goes on', async () => {
    const id = await sessionOn(one, { key: 'alice', agent: 'slow' })
    const prefer = { prefer: 'respond-async' }
    const path = `/v1/sessions/${id}/turns`
    const running = await one.post(path, { input: { text: 'lost words', ms: 60_000 } }, prefer)
    const queued = await two.post(path, { input: { text: 'waits', ms: 1 } }, prefer)
    expect([running.status, queued.status]).toEqual([202, 202])
    await until(async () => ofTurns(await events(two, id)).some((t) => t.endsWith('started')))
    await one.kill()
    const next = await two.post('/v1/keys/alice/turns', { input: { text: 'next', ms: 1 } })
    expect(next).toMatchObject({ status: 200, body: { session: id, turn: { state: 'done' } } })
    const [first, second] = [running.body.turn.id, queued.body.turn.id]
    const third = next.body.turn.id
    expect(ofTurns(await events(three, id))).toEqual([
      `${first} turn.queued`,
      `${first} turn.started`,
      `${second} turn.queued`,
      `${first} turn.interrupted`,
      `${second} turn.started`,
      `${second} turn.done`,
      `${third} turn.started`,
      `${third} turn.done`,
    ])
    const said = (): string => [two, three].flatMap(({ output }) => output).join('')
    await expect.poll(said).toContain('session_taken_over')
  })

  it('is told of, by the node that has passed a turn on to it', async () => {
    const id = await sessionOn(one, { key: 'alice', agent: 'slow' })
    const path = `/v1/sessions/${id}/turns`
    const passedOn = two.post(path, { input: { text: 'lost words', ms: 60_000 } })
    await until(async () => ofTurns(await events(two, id)).some((t) => t.endsWith('started')))
    await one.kill()
    expect(await passedOn).toMatchObject({ status: 503, body: { code: 'owner_unreachable' } })
    await expect.poll(() => two.output.join('')).toContain('forward_failed')
  })

  it('is replaced for the clients that were attached through another: they go on', async () => {
    const id = await sessionOn(one, { key: 'alice' })
    const session = attach(two, 'alice')
    expect((await session.turn('before')).reply?.text).toBe('before')
    await one.kill()
    expect((await session.turn('after')).reply?.text).toBe('after')
    expect(session.info?.id).toBe(id)
    const log = await events(three, id)
    expect(log.filter(({ type }) => type === 'turn.done')).toHaveLength(2)
  })

  it('leaves queued turns to others even if nobody asks for them', async () => {
    const id = await sessionOn(one, { agent: 'slow' })
    const path = `/v1/sessions/${id}/turns`
    const prefer = { prefer: 'respond-async' }
    await one.post(path, { input: { text: 'lost', ms: 60_000 } }, prefer)
    const queued = await one.post(path, { input: { text: 'waits', ms: 1 } }, prefer)
    await one.kill()
    const turn = `${path}/${queued.body.turn.id}`
    await until(async () => (await two.get(turn)).body.turn.state === 'done')
  })
})

describe('a node that was frozen past its lease', () => {
  beforeEach(startNodes)
  afterEach(stopNodes)

  it('is refused when it goes on: the log is the new owner’s alone', async () => {
    const id = await sessionOn(one, { key: 'alice', agent: 'slow' })
    const path = `/v1/sessions/${id}/turns`
    const prefer = { prefer: 'respond-async' }
    // It would end by itself while the node is frozen, and be recorded when that goes on.
    const running = await one.post(path, { input: { text: 'stale words', ms: 3_500 } }, prefer)
    await until(async () => ofTurns(await events(two, id)).some((t) => t.endsWith('started')))
    one.pause()
    // It may be read by the frozen node when that goes on: only with a key is it sent elsewhere.
    const keyed = { 'idempotency-key': 'next' }
    const input = { text: 'next', ms: 1 }
    const next = await two.post('/v1/keys/alice/turns', { input }, keyed)
    expect(next.body).toMatchObject({ session: id, turn: { state: 'done' } })
    one.resume()
    const late = await one.post('/v1/keys/alice/turns', { input: { text: 'late', ms: 1 } })
    // Right after it wakes it may still find out that its lease is over.
    expect([200, 503]).toContain(late.status)
    await until(async () => {
      const { status } = await one.post(path, { input: { text: 'again', ms: 1 } })
      return status === 200
    })
    const log = await events(three, id)
    expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1))
    const stale = running.body.turn.id
    const ends = ofTurns(log).filter((text) => text.startsWith(`${stale} `))
    expect(ends).toEqual([
      `${stale} turn.queued`,
      `${stale} turn.started`,
      `${stale} turn.interrupted`,
    ])
    for (const started of log.filter(({ type }) => type === 'turn.started')) {
      const terminal = log.filter(
        ({ type, turn }) => turn === started.turn && /done|failed|interrupted/.test(type),
      )
      expect(terminal).toHaveLength(1)
    }
  })
})

describe('a node that stops', () => {
  beforeEach(startNodes)
  afterEach(stopNodes)

  it('hands its sessions over without a failed request', async () => {
    const keys = Array.from({ length: 12 }, (_, n) => `key-${n}`)
    await Promise.all(keys.map((key) => one.post('/v1/sessions', { key })))
    const answers: string[] = []
    const state = { on: true }
    const drive = async (key: string, index: number): Promise<void> => {
      for (let n = 0; state.on; n += 1) {
        // Like a load balancer: a node that is not ready gets no new requests.
        const nodes = one.isRunning && isReady ? [one, two] : [two, three]
        const node = nodes[(n + index) % 2]!
        const { status, body } = await node.post(`/v1/keys/${key}/turns`, { input: `${n}` })
        answers.push(status === 200 ? 'done' : JSON.stringify(body))
        await setTimeout(5)
      }
    }
    let isReady = true
    const driving = Promise.all(keys.map(drive))
    await until(() => answers.length >= 5 * keys.length)
    const stopped = one.stop()
    await until(async () => (await one.get('/ready').catch(() => null))?.status !== 200)
    isReady = false
    expect(await stopped).toBe(0)
    const before = answers.length
    await until(() => answers.length >= before + 5 * keys.length)
    state.on = false
    await driving
    expect(new Set(answers)).toEqual(new Set(['done']))
  })
})
