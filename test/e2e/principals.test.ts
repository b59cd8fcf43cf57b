/**
 * On whose behalf everything was done: each door does all that it can with one token, and every
 * event of the log that somebody caused has to name that token's holder.
 */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { builtinAgents, openHoldfast, type Agent, type SessionEvent } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connect as connectClient, type ClientSocketClass } from 'holdfast/client'
import { WebSocket } from 'ws'
import { CommandLine } from '../support/command-line.ts'
import { serve, type TestServer } from '../support/server.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { dial, type WireClient } from '../support/wire-client.ts'

const SECRETS = { new: 'hf_of-the-new-token', old: 'hf_of-a-token-of-0.1.0' }
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
const entry = (name: 'new' | 'old') => ({
  name: `name-of-${name}`,
  sha256: sha256(SECRETS[name]),
  scopes: ['admin'],
})
const NEW = { kind: 'token', issuer: 'holdfast', id: 'the-opaque-id' }

/** What a log has of these is done by somebody; the rest follows from it, or is the system's. */
const RECORDED: ReadonlySet<string> = new Set([
  ...['session.created', 'session.closed', 'turn.joined', 'turn.cancelled', 'ask.settled'],
  ...['attachment.opened', 'attachment.resumed'],
  ...['link.created', 'link.used', 'link.revoked'],
])

/** Never ends by itself. */
const forever: Agent = (_, { signal }) =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve('stopped')))
const agents = { ...builtinAgents, forever }

let folder: string
let tokens: () => ReturnType<typeof openTokenFile>
let single: TestServer
let database: TestDatabase
let near: TestServer
let far: TestServer

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-principals-'))
  const file = join(folder, 'tokens.json')
  const entries = [{ ...entry('new'), id: NEW.id }, entry('old')]
  await writeFile(file, JSON.stringify({ version: 2, tokens: entries }), { mode: 0o600 })
  tokens = () => openTokenFile(file)
  single = await serve({ agents, tokens: await tokens() })
  database = await openTestDatabase()
  const url = database.freshUrl()
  far = await serve({ store: url, isNode: true, agents, tokens: await tokens() })
  near = await serve({ store: url, isNode: true, agents, tokens: await tokens() })
})
afterAll(async () => {
  await Promise.all([single.close(), near.close(), far.close()])
  await database.close()
  await rm(folder, { recursive: true })
})

/** A server in the hand of the holder of one token. */
class Caller {
  readonly url: string
  readonly token: string

  constructor(url: string, token: string) {
    this.url = url
    this.token = token
  }

  async call(method: string, path: string, body?: object, headers = {}): Promise<any> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const answer = await response.json()
    expect({ path, status: response.status, answer }).toMatchObject({
      status: expect.toSatisfy((status: number) => status < 300),
    })
    return answer
  }

  queue(path: string, input: string, more = {}): Promise<any> {
    return this.call('POST', `${path}/turns`, { input, ...more }, { prefer: 'respond-async' })
  }

  async running(path: string): Promise<string> {
    let running: string | null = null
    await until(async () => (running = (await this.call('GET', path)).running) !== null)
    return String(running)
  }

  async ask(path: string): Promise<string> {
    let asks: { id: string }[] = []
    await until(async () => (asks = (await this.call('GET', `${path}/asks`)).asks).length > 0)
    return asks[0]?.id ?? ''
  }

  async attach(hello: object): Promise<WireClient> {
    const client = dial(this.url, hello)
    await client.frame('welcome')
    return client
  }

  async log(id: string): Promise<readonly SessionEvent[]> {
    return (await this.call('GET', `/v1/sessions/${id}/events`)).events
  }
}

type Door = (caller: Caller, key: string) => Promise<string>

async function native(caller: Caller, key: string): Promise<string> {
  const { id } = await caller.call('POST', '/v1/sessions', { key, agent: 'forever' })
  const path = `/v1/sessions/${id}`
  await caller.queue(path, 'runs')
  const waits = await caller.queue(path, 'waits', { busy: 'collect' })
  await caller.queue(path, 'joins', { busy: 'collect' })
  await caller.call('DELETE', `${path}/turns/${waits.turn.id}`)
  await caller.call('DELETE', `${path}/turns/${await caller.running(path)}`)
  const link = await caller.call('POST', `${path}/links`, { scopes: ['watch'] })
  await caller.call('DELETE', `${path}/links/${link.id}`)
  await caller.queue(path, 'runs until the end')
  await caller.call('DELETE', path)
  return id
}

async function nativeAsk(caller: Caller, key: string): Promise<string> {
  const { session } = await caller.queue(`/v1/keys/${key}`, 'rm -rf', { agent: 'ask' })
  const path = `/v1/sessions/${session}`
  await caller.call('POST', `${path}/asks/${await caller.ask(path)}`, { answer: 'deny' })
  return session
}

async function connect(caller: Caller, key: string): Promise<string> {
  const { token } = caller
  const options = { agent: 'ask', reconnect: 'resume' }
  const first = await caller.attach({ key, options, answers: ['permission'], auth: { token } })
  const { session, attachment, resume } = await first.frame('welcome')
  await first.cut()
  const auth = { token, resume: { attachment, token: resume } }
  const client = await caller.attach({ session: session.id, auth })
  client.send({ type: 'turn', id: 'a', input: 'rm -rf' })
  const { ask } = await client.frame('ask.opened')
  client.send({ type: 'answer', id: 'b', ask, answer: 'deny' })
  await client.frame('turn.done')
  client.send({ type: 'turn', id: 'c', input: 'rm -rf /' })
  const { turn } = await client.reply('c')
  client.send({ type: 'cancel', id: 'd', turn })
  await client.reply('d')
  client.send({ type: 'close', id: 'e' })
  await client.reply('e')
  await client.closed
  return session.id
}

async function openai(caller: Caller, key: string): Promise<string> {
  const message = { role: 'user', content: 'hello' }
  const headers = { 'x-session-key': key }
  const body = { model: 'forever', messages: [message] }
  const { id } = await caller.call('POST', '/v1/sessions', { key, agent: 'forever' })
  const response = { model: 'forever', input: 'hello', background: true }
  const { id: begun } = await caller.call('POST', '/v1/responses', response, headers)
  await caller.call('POST', `/v1/responses/${begun}/cancel`)
  const chat = caller.call('POST', '/v1/chat/completions', body, headers).catch(() => undefined)
  await caller.running(`/v1/sessions/${id}`)
  await caller.call('DELETE', `/v1/sessions/${id}`)
  await chat
  return id
}

/** The client library with a token, as the inspector and `holdfast send` use it. */
async function client(caller: Caller, key: string): Promise<string> {
  const { url, token } = caller
  const webSocket = WebSocket as unknown as ClientSocketClass
  const session = connectClient({ url, token, webSocket }).session({
    ...{ key, agent: 'ask', role: 'watcher', answers: ['permission'] },
  })
  await session.ready
  session.drive({ answers: ['permission'] })
  session.on('ask', ({ id: ask }) => void session.answer(ask, 'deny'))
  await session.turn('rm -rf')
  await session.close()
  return session.info?.id ?? ''
}

/** The commands for people, each a process with the token in its environment. */
async function commands(caller: Caller, key: string): Promise<string> {
  const { url, token } = caller
  const run = (...words: string[]) =>
    new CommandLine([...words, '--url', url], { env: { HOLDFAST_TOKEN: token } })
  const send = run('send', key, 'x', '--agent', 'forever')
  const list = () => caller.call('GET', `/v1/sessions?key=${key}`)
  await until(async () => (await list()).sessions.length === 1)
  const { id } = (await list()).sessions[0]
  const turn = await caller.running(`/v1/sessions/${id}`)
  expect(await run('queue', key, '--cancel', turn).exited).toBe(0)
  await send.exited
  expect(await run('close', key).exited).toBe(0)
  return id
}

const DOORS: readonly (readonly [string, Door, readonly string[]])[] = [
  [
    'native',
    native,
    [
      ...['session.created', 'turn.queued', 'turn.joined', 'turn.cancelled', 'session.closed'],
      ...['link.created', 'link.revoked'],
    ],
  ],
  ['native with a question', nativeAsk, ['session.created', 'turn.queued', 'ask.settled']],
  [
    'connect',
    connect,
    [
      ...['session.created', 'attachment.opened', 'attachment.resumed', 'turn.started'],
      ...['ask.settled', 'turn.cancelled', 'session.closed'],
    ],
  ],
  ['openai', openai, ['turn.queued', 'turn.started', 'turn.cancelled', 'session.closed']],
  [
    'client',
    client,
    ['session.created', 'attachment.opened', 'turn.started', 'ask.settled', 'session.closed'],
  ],
  [
    'command line',
    commands,
    ['session.created', 'attachment.opened', 'turn.started', 'turn.cancelled', 'session.closed'],
  ],
]

/** What the events that somebody caused say of it. A start says it unless the turn was queued. */
function named(log: readonly SessionEvent[]): readonly { type: string; by: unknown }[] {
  const queued = new Set(log.map((event) => (event.type === 'turn.queued' ? event.turn : '')))
  const isNamed = (event: SessionEvent): boolean => {
    if (event.type === 'turn.started') return !queued.has(event.turn)
    if (event.type === 'ask.settled') return event.outcome === 'answered'
    return event.type === 'turn.queued' || RECORDED.has(event.type)
  }
  return log.filter(isNamed).map((event) => ({ type: event.type, by: Reflect.get(event, 'by') }))
}

let count = 0
const fresh = (): string => `key-${(count += 1)}`

describe.each<[string, () => string]>([
  ['on one server', () => single.url],
  ['through a node that is not the owner', () => near.url],
])('%s', (where, url) => {
  it.each(DOORS)('%s names the holder of the token', async (_, door, types) => {
    const key = fresh()
    const caller = new Caller(url(), SECRETS.new)
    // Whose the session is was decided before: everything is passed on from here.
    if (where !== 'on one server') {
      await new Caller(far.url, SECRETS.new).call('POST', '/v1/sessions', {
        key,
        agent: agentOf(door),
      })
    }
    const id = await door(caller, key)
    const log = await caller.log(id)
    const text = JSON.stringify(log)
    for (const secret of [SECRETS.new, sha256(SECRETS.new), 'name-of-new', '127.0.0.1']) {
      expect(text).not.toContain(secret)
    }
    const events = named(log)
    expect(events.filter(({ by }) => JSON.stringify(by) !== JSON.stringify(NEW))).toEqual([])
    expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining([...types]))
  })
})

function agentOf(door: Door): string {
  return door === native || door === openai || door === commands ? 'forever' : 'ask'
}

describe('a principal', () => {
  it('of a token of 0.1.0 is derived from its digest, and shows nothing of it', async () => {
    const caller = new Caller(single.url, SECRETS.old)
    const { turn, session } = await caller.call('POST', `/v1/keys/${fresh()}/turns`, { input: 'x' })
    const { by } = turn
    expect(by).toEqual({
      kind: 'token',
      issuer: 'holdfast',
      id: expect.stringMatching(/^[\w-]{22}$/),
    })
    const text = JSON.stringify(await caller.log(session))
    for (const secret of [SECRETS.old, sha256(SECRETS.old), 'name-of-old', '127.0.0.1']) {
      expect(text).not.toContain(secret)
    }
    const again = await caller.call('POST', `/v1/keys/${fresh()}/turns`, { input: 'y' })
    expect(again.turn.by).toEqual(by)
  })

  it('of a guest is its link, when it comes in, takes turns, answers and comes back', async () => {
    const owner = new Caller(single.url, SECRETS.new)
    const { id } = await owner.call('POST', '/v1/sessions', { agent: 'ask', reconnect: 'resume' })
    const scopes = ['watch', 'talk', 'answer']
    const link = await owner.call('POST', `/v1/sessions/${id}/links`, { scopes })
    const hello = { session: id, answers: ['permission'] }
    const guest = await owner.attach({ ...hello, auth: { link: link.token } })
    const { attachment, resume } = await guest.frame('welcome')
    guest.send({ type: 'turn', id: 'a', input: 'rm -rf' })
    const { ask } = await guest.frame('ask.opened')
    guest.send({ type: 'answer', id: 'b', ask, answer: 'deny' })
    await guest.frame('turn.done')
    await guest.cut()
    const back = await owner.attach({ ...hello, auth: { resume: { attachment, token: resume } } })
    await back.cut()
    const counted = await owner.call('POST', `/v1/sessions/${id}/links`, { scopes, uses: 1 })
    const once = await owner.attach({ ...hello, role: 'watcher', auth: { link: counted.token } })
    await once.cut()
    const by = { kind: 'link', issuer: 'holdfast', id: link.id }
    const log = await owner.log(id)
    const events = log.filter((event) => Reflect.get(event, 'by')?.kind === 'link')
    expect(events).toMatchObject([
      { type: 'attachment.opened', by },
      { type: 'turn.started', by },
      { type: 'ask.settled', by, attachment },
      { type: 'attachment.resumed', by },
      { type: 'link.used', link: counted.id, by: { ...by, id: counted.id } },
    ])
  })

  it('is missing where nobody did anything: what times out, or ends with its holder', async () => {
    const hold = await openHoldfast({
      store: 'memory:',
      limits: { turnMs: 1 },
      agents: { forever },
    })
    const session = await hold.resolve({ reconnect: 'none' })
    const client = await session.attach()
    expect(await session.turn('x')).toMatchObject({ error: { code: 'turn_timeout' } })
    await client.leave()
    const log: SessionEvent[] = []
    for await (const event of session.events()) log.push(event as SessionEvent)
    await hold.close()
    expect(log.filter((event) => !('by' in event)).map(({ type }) => type)).toEqual([
      ...['message.added', 'turn.failed', 'attachment.ended', 'session.closed'],
    ])
  })

  it('is local without tokens, and what a program says in the library', async () => {
    const hold = await openHoldfast({ store: 'memory:', agents })
    const session = await hold.resolve({ agent: 'echo' })
    const local = { kind: 'local', issuer: 'holdfast', id: 'default' }
    const jwt = { kind: 'jwt', issuer: 'https://id.example', id: '42' } as const
    const more = { ...jwt, name: 'Alice' }
    expect((await session.turn('x')).by).toEqual(local)
    expect((await session.as(more).turn('y')).by).toEqual(jwt)
    expect((await hold.as(jwt).resolve({ key: 'k' })).by).toEqual(jwt)
    expect(() => hold.as({ ...jwt, id: '' })).toThrow('by.id must be a text')
    expect(() => hold.as({ ...jwt, kind: 'root' as 'jwt' })).toThrow('by.kind must be one of')
    await hold.close()
  })

  it('of whoever interrupts is named by the turn that was interrupted', async () => {
    const hold = await openHoldfast({ store: 'memory:', agents })
    const session = await hold.resolve({ agent: 'forever' })
    const jwt = { kind: 'jwt', issuer: 'https://id.example', id: '42' } as const
    const first = session.turn('x')
    const { turn } = await first.admission
    const second = session.as(jwt).turn('y', { busy: 'interrupt' })
    await first
    const log = []
    for await (const event of session.events()) {
      log.push(event)
      if (event.type === 'turn.cancelled') break
    }
    expect(log.at(-1)).toMatchObject({ turn, reason: 'interrupted_by_newer', by: jwt })
    await hold.close()
    await second
  })
})
