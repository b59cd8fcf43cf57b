/**
 * How much a principal may use, from outside: over HTTP, the socket and OpenAI's API, on one node,
 * on two nodes of one database, and after a restart.
 */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { builtinAgents, type Agent, type QuotaOptions, type Runner } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import OpenAI, { RateLimitError } from 'openai'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { NO_CAPABILITIES } from '../../src/core/index.ts'
import { CommandLine } from '../support/command-line.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { serve, type Answer, type TestServer, type TestServerOptions } from '../support/server.ts'
import { dial } from '../support/wire-client.ts'

/** Never ends by itself. */
const forever: Agent = (_, { signal }) =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve('stopped')))
const agents = { ...builtinAgents, forever }
const scopes = ['talk', 'answer', 'manage']

/** Bob has two tokens, and his limits from the configuration; Carol's are in her token. */
const CALLERS: Readonly<Record<string, object>> = {
  bob: { principal: 'bob', scopes },
  phone: { principal: 'bob', scopes },
  carol: { principal: 'carol', scopes, limits: { openSessions: 1, sockets: 1 } },
  rita: { principal: 'rita', scopes },
  olga: { principal: 'olga', scopes },
  sam: { principal: 'sam', scopes },
  tess: { principal: 'tess', scopes },
  uma: { principal: 'uma', scopes },
  free: { principal: 'free', scopes },
  admin: { principal: 'root', scopes: ['admin'] },
}
const QUOTAS: QuotaOptions = {
  principals: {
    bob: { openSessions: 10 },
    rita: { runningTurns: 1, queuedTurns: 0 },
    olga: { turnsPerMinute: 2 },
    sam: { sockets: 2 },
    tess: { storedBytes: 4_000 },
    uma: { runningTurns: 1, queuedTurns: 2 },
  },
}

let folder: string
let file: string
let server: TestServer

const secretOf = (name: string): string => `hf_secret-of-${name}`

async function start(options: TestServerOptions = {}): Promise<TestServer> {
  const tokens = await openTokenFile(file)
  return serve({ agents, quotas: QUOTAS, tokens, ...options })
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-quotas-'))
  file = join(folder, 'tokens.json')
  const entries = Object.entries(CALLERS).map(([name, more]) => {
    const sha256 = createHash('sha256').update(secretOf(name)).digest('hex')
    return { name, sha256, ...more }
  })
  await writeFile(file, JSON.stringify({ version: 3, tokens: entries }), { mode: 0o600 })
  server = await start()
})
afterAll(async () => {
  await server.close()
  await rm(folder, { recursive: true })
})

type SendOptions = { readonly body?: object; readonly isAsync?: boolean; readonly on?: TestServer }

function send(name: string, method: string, path: string, options: SendOptions = {}) {
  const { body, isAsync = false, on = server } = options
  const headers = {
    authorization: `Bearer ${secretOf(name)}`,
    ...(isAsync ? { prefer: 'respond-async' } : {}),
  }
  return on.call(method, path, { headers, ...(body === undefined ? {} : { body }) })
}

const create = (name: string, body: object = {}, on = server): Promise<Answer> =>
  send(name, 'POST', '/v1/sessions', { body, on })

/** How many answers have each status. */
function statuses(answers: readonly Answer[]): Readonly<Record<number, number>> {
  const counts: Record<number, number> = {}
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

function times<Value>(count: number, make: (index: number) => Value): readonly Value[] {
  return Array.from({ length: count }, (_, index) => make(index))
}

async function countOf(name: string, on = server): Promise<number> {
  const { body } = await send(name, 'GET', '/v1/sessions?state=open&limit=500', { on })
  return body.sessions.length
}

describe('over HTTP', () => {
  it('creates exactly as many sessions as the limit, by whichever token', async () => {
    const answers = await Promise.all(
      times(100, (index) => create(index % 2 === 0 ? 'bob' : 'phone')),
    )
    expect(statuses(answers)).toEqual({ 201: 10, 429: 90 })
    expect(await countOf('bob')).toBe(10)
    const refusal = answers.find(({ status }) => status === 429)
    expect(refusal?.body).toMatchObject({
      ...{ code: 'quota_exceeded', quota: 'openSessions', limit: 10, used: 10 },
      retryAfterMs: 1_000,
    })
    expect(refusal?.headers.get('retry-after')).toBe('1')
    const id = answers.find(({ status }) => status === 201)?.body.id
    await send('bob', 'DELETE', `/v1/sessions/${id}`)
    const again = await Promise.all(times(3, () => create('bob')))
    expect(statuses(again)).toEqual({ 201: 1, 429: 2 })
    expect((await create('free')).status).toBe(201)
  })

  it('takes the limits of a token for its principal', async () => {
    const [first, second] = [await create('carol', { key: 'a' }), await create('carol')]
    expect([first.status, second.status]).toEqual([201, 429])
    expect((await create('carol', { key: 'a' })).status).toBe(200)
  })

  it('refuses a turn by its key before the session is there', async () => {
    await create('carol', { key: 'a' })
    const body = { input: 'x', agent: 'echo' }
    const { status } = await send('carol', 'POST', '/v1/keys/never/turns', { body })
    expect([status, await countOf('carol')]).toEqual([429, 1])
  })

  it('refuses a second turn at a time, and one that would wait', async () => {
    const ids = [await create('rita', { agent: 'forever' }), await create('rita')]
    const [busy, idle] = ids.map(({ body }) => `/v1/sessions/${body.id}/turns`) as [string, string]
    const body = { input: 'x' }
    const admitted = await send('rita', 'POST', busy, { body, isAsync: true })
    expect(admitted.status).toBe(202)
    const running = await send('rita', 'POST', idle, { body })
    const queued = await send('rita', 'POST', busy, { body, isAsync: true })
    expect([running.body.quota, queued.body.quota]).toEqual(['runningTurns', 'queuedTurns'])
    expect((await send('rita', 'GET', idle.replace('/turns', ''))).body.seq).toBe(1)
    await send('rita', 'DELETE', `${busy}/${admitted.body.turn.id}`)
    expect((await send('rita', 'POST', idle, { body })).status).toBe(200)
  })

  it('counts refusals, without the names of principals', async () => {
    await create('carol', { key: 'a' })
    await create('carol')
    const { text } = await send('admin', 'GET', '/metrics')
    expect(text).toMatch(/^holdfast_quota_refusals_total [1-9]/m)
    expect(text).not.toContain('carol')
  })
})

describe('over OpenAI', () => {
  it('is a rate limit, with the time to wait for', async () => {
    const client = new OpenAI({
      ...{ baseURL: `${server.url}/v1`, apiKey: secretOf('olga'), maxRetries: 0 },
    })
    const ask = (content = 'hello') =>
      client.chat.completions.create({ model: 'echo', messages: [{ role: 'user', content }] })
    await ask()
    await ask()
    const reserving = vi.spyOn(server.holdfast.authority.store, 'reserve')
    const refusal = await ask('too many').catch((error: unknown) => error)
    // It has no effect: no session is made for it.
    expect(reserving).not.toHaveBeenCalled()
    reserving.mockRestore()
    expect(refusal).toBeInstanceOf(RateLimitError)
    const { code, headers } = refusal as RateLimitError
    expect(code).toBe('quota_exceeded')
    expect(Number(headers?.get('retry-after-ms'))).toBeGreaterThan(20_000)
  })
})

describe('over the socket', () => {
  const auth = { token: secretOf('sam') }

  it('refuses one socket too many before its session is created, and says when to retry', async () => {
    const clients = [dial(server.url, { key: 'a', auth }), dial(server.url, { key: 'a', auth })]
    for (const client of clients) await client.frame('welcome')
    const third = dial(server.url, { key: 'new', auth })
    const refusal = await third.frame('refuse')
    expect(refusal).toMatchObject({
      ...{ code: 'quota_exceeded', retry: 'after', afterMs: 1_000, hint: 'wait' },
    })
    expect((await third.closed).code).toBe(4429)
    expect(await countOf('sam')).toBe(1)
    await clients[0]?.cut()
    await until(async () => {
      const next = dial(server.url, { key: 'a', auth })
      const { type } = await next.frame(({ type }) => type === 'welcome' || type === 'refuse')
      await next.cut()
      return type === 'welcome'
    })
    await clients[1]?.cut()
  })

  it('lets a client come back whose connection is not known to be lost', async () => {
    const options = { reconnect: 'resume' }
    const clients = times(2, () =>
      dial(server.url, { key: 'back', auth, options }, { silent: true }),
    )
    const welcomes = await Promise.all(clients.map((client) => client.frame('welcome')))
    const { attachment, resume: token } = welcomes[0]!
    const back = dial(server.url, { key: 'back', auth: { ...auth, resume: { attachment, token } } })
    expect(await back.frame(({ type }) => type !== 'ping')).toMatchObject({ type: 'welcome' })
    for (const client of [...clients, back]) await client.cut()
  })

  it('answers a turn that is one too many with its code', async () => {
    const token = secretOf('rita')
    const client = dial(server.url, { key: 'wire', auth: { token }, options: { agent: 'forever' } })
    await client.frame('welcome')
    client.send({ type: 'turn', id: 'one', input: 'x' })
    await client.frame('turn.started')
    client.send({ type: 'turn', id: 'two', input: 'x' })
    const details = { quota: 'queuedTurns', limit: 0, used: 0, retryAfterMs: 1_000 }
    const error = { code: 'quota_exceeded', retry: true, details }
    expect(await client.reply('two')).toMatchObject({ error })
    await client.cut()
    const { id } = (await send('rita', 'GET', '/v1/sessions?key=wire')).body.sessions[0]
    await send('rita', 'DELETE', `/v1/sessions/${id}`)
  })
})

it('is refused again when a request is repeated, and leaves no session', async () => {
  const png = `data:image/png;base64,${Buffer.alloc(9_000).toString('base64')}`
  const content = [{ type: 'image_url', image_url: { url: png } }]
  const body = { model: 'viewer', messages: [{ role: 'user', content }] }
  const viewer: Runner = {
    capabilities: { ...NO_CAPABILITIES, images: true },
    run: () => {
      throw new Error('no turn is admitted')
    },
  }
  const on = await start({ agents: { viewer } })
  const position = await on.holdfast.authority.store.changes(null, 0)
  const headers = { authorization: `Bearer ${secretOf('tess')}`, 'idempotency-key': 'again' }
  for (let tries = 0; tries < 2; tries += 1) {
    const answer = await on.call('POST', '/v1/chat/completions', { headers, body })
    expect([answer.status, answer.body.error.code]).toEqual([429, 'quota_exceeded'])
  }
  const { changes } = await on.holdfast.authority.store.changes(position.position, 10)
  expect(changes).toEqual([])
  await on.close()
})

describe('after a restart', () => {
  it('open sessions and stored bytes are what they were; erasing frees bytes', async () => {
    const store = `sqlite:${join(folder, 'quotas.db')}`
    let on = await start({ store })
    const { body: tess } = await create('tess', {}, on)
    const path = `/v1/sessions/${tess.id}`
    const turn = () => send('tess', 'POST', `${path}/turns`, { body: { input: 'x' }, on })
    await Promise.all(times(10, () => create('bob', {}, on)))
    const conversation = await send('tess', 'POST', '/v1/conversations', { body: {}, on })
    let last = await turn()
    while (last.status === 200) last = await turn()
    expect(last.body).toMatchObject({ quota: 'storedBytes', limit: 4_000 })
    const body = { items: [{ role: 'user', content: 'x' }] }
    const items = `/v1/conversations/${conversation.body.id}/items`
    expect((await send('tess', 'POST', items, { body, on })).status).toBe(429)
    await on.close()
    on = await start({ store })
    expect(statuses(await Promise.all(times(3, () => create('bob', {}, on))))).toEqual({ 429: 3 })
    expect((await turn()).body).toMatchObject({ quota: 'storedBytes', used: last.body.used })
    expect((await create('tess', {}, on)).body.quota).toBe('storedBytes')
    await send('tess', 'DELETE', `${path}?erase=true`, { on })
    await until(async () => (await create('tess', {}, on)).status === 201)
    await on.close()
  })

  it('turns that waited in the log count again', async () => {
    const store = `sqlite:${join(folder, 'queued.db')}`
    let on = await start({ store })
    const { body: busy } = await create('uma', { agent: 'forever' }, on)
    const turn = (id: string) =>
      send('uma', 'POST', `/v1/sessions/${id}/turns`, { body: { input: 'x' }, isAsync: true, on })
    const admitted = [await turn(busy.id), await turn(busy.id), await turn(busy.id)]
    expect(statuses(admitted)).toEqual({ 202: 3 })
    await on.close()
    on = await start({ store })
    const { body: idle } = await create('uma', {}, on)
    // The first of them runs now, the other waits.
    expect((await turn(idle.id)).body).toMatchObject({ quota: 'runningTurns', used: 1 })
    expect((await turn(busy.id)).status).toBe(202)
    expect((await turn(busy.id)).body).toMatchObject({ quota: 'queuedTurns', used: 2 })
    await send('uma', 'DELETE', `/v1/sessions/${busy.id}`, { on })
    await until(async () => (await turn(idle.id)).status === 202)
    await on.close()
  })

  it('a server takes quotas from its configuration, and refuses wrong ones', async () => {
    const config = join(folder, 'wrong.json')
    await writeFile(config, JSON.stringify({ quotas: { default: { sessions: 1 } } }))
    const command = new CommandLine(['serve', '--config', config, '--port', '0'])
    expect(await command.exited).toBe(1)
    expect(command.stderr).toContain('quotas.default.sessions is no quota')
  })
})

describe('on two nodes', () => {
  let database: TestDatabase
  let nodes: readonly TestServer[]

  beforeAll(async () => {
    database = await openTestDatabase()
    const store = database.freshUrl()
    nodes = [await start({ store, isNode: true }), await start({ store, isNode: true })]
  })
  afterAll(async () => {
    for (const node of nodes) await node.close()
    await database.close()
  })

  it('open sessions exceed the limit by no more than the nodes create at once', async () => {
    const answers = await Promise.all(
      times(100, (index) => create('bob', {}, nodes[index % nodes.length])),
    )
    const { 201: created = 0, 429: refused = 0 } = statuses(answers)
    expect(created + refused).toBe(100)
    expect(created).toBeGreaterThanOrEqual(10)
    expect(created).toBeLessThanOrEqual(nodes.length * 10)
    // From then on each of them knows of all, after a second at the latest.
    const later = await Promise.all(nodes.map((node) => create('bob', {}, node)))
    expect(statuses(later)).toEqual({ 429: 2 })
    expect(await countOf('bob', nodes[0])).toBe(created)
  })

  it('what one node closes, the other may create', async () => {
    const [one, other] = nodes as [TestServer, TestServer]
    const { body } = await send('bob', 'GET', '/v1/sessions?state=open&limit=500', { on: one })
    for (const { id } of body.sessions) {
      await send('bob', 'DELETE', `/v1/sessions/${id}`, { on: one })
    }
    await until(async () => (await create('bob', {}, other)).status === 201)
  })

  it('a turn counts on the node that owns its session, through whichever it comes', async () => {
    const [one, other] = nodes as [TestServer, TestServer]
    const body = { input: 'x', agent: 'forever' }
    const path = '/v1/keys/far/turns'
    await send('rita', 'POST', path, { body, isAsync: true, on: one })
    const refusal = await send('rita', 'POST', path, { body, isAsync: true, on: other })
    expect([refusal.status, refusal.body.quota]).toEqual([429, 'queuedTurns'])
  })
})
