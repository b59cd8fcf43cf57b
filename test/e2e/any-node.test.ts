/** Any node takes any request: every route of the contract, and OpenAI's retries, through another. */
import { once } from 'node:events'
import OpenAI from 'openai'
import { builtinAgents, type Agent, type Runner } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { functionRunner } from '../../src/runners/function.ts'
import { serverRoutes } from '../../src/server/routes.ts'
import { serve, type TestServer, type Answer, type Call } from '../support/server.ts'
import { CuttingProxy } from '../support/cutting-proxy.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { CHROMIUM } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { headOf, sendRaw } from '../support/raw-http.ts'
import { SECRET } from '../support/webhook-receiver.ts'

let database: TestDatabase
let owner: TestServer
let other: TestServer
let third: TestServer
/** Every turn that `witness` was given, on whatever node. */
const ran: string[] = []

const witness: Agent = async ({ text }) => {
  ran.push(text)
  return `said ${text}`
}
const forkable: Runner = {
  ...functionRunner(Object.assign(async () => 'yes', { capabilities: { fork: 'any' } as const })),
  adopt: async () => ({ messages: [] }),
  terminal: ({ id }) => ({ command: ['agent', id], cwd: '/' }),
}
const agents = { ...builtinAgents, witness, forkable }

/** Its receiver is not there, and it has nothing to be told. */
const WEBHOOK = {
  ...{ name: 'hook', url: 'http://127.0.0.1:1/', allow: ['127.0.0.1'], secrets: [SECRET] },
  events: ['turn.expired' as const],
}

beforeAll(async () => {
  database = await openTestDatabase()
  const url = database.freshUrl()
  const node = { store: url, isNode: true, agents, webhooks: [WEBHOOK] }
  owner = await serve({ ...node, browsers: { chromium: CHROMIUM } })
  other = await serve(node)
  third = await serve(node)
})
afterAll(async () => {
  for (const viewer of viewers) viewer.close()
  await Promise.all([owner, other, third].map((node) => node.close()))
  await database.close()
})

let count = 0
const viewers: RawCdp[] = []

/** A session that `owner` owns, with one turn in it. */
async function owned(options: object = {}) {
  count += 1
  const key = `key-${count}`
  const { body } = await owner.call('POST', '/v1/sessions', { body: { key, ...options } })
  return { key, id: body.id as string, path: `/v1/sessions/${body.id}` }
}

async function shared() {
  const session = await owned()
  const body = { with: 'bob', scopes: ['watch'] }
  await owner.call('POST', `${session.path}/shares`, { body })
  return session
}

async function response(conversation?: string): Promise<any> {
  const more = conversation === undefined ? {} : { conversation }
  const body = { model: 'echo', input: 'hello', ...more }
  return (await owner.call('POST', '/v1/responses', { body })).body
}

async function conversation(): Promise<string> {
  const { body } = await owner.call('POST', '/v1/conversations', { body: {} })
  await response(body.id as string)
  return body.id as string
}

/** A conversation with an item that a client has added. */
async function filled(): Promise<{ readonly id: string; readonly item: string }> {
  const body = { items: [{ role: 'user', content: 'hello' }] }
  const { id } = (await owner.call('POST', '/v1/conversations', { body })).body
  const { first_id: item } = (await owner.call('GET', `/v1/conversations/${id}/items`)).body
  return { id, item }
}

const HELLO = { body: { input: 'hello' } }

/** What to ask `other` for, about something of `owner`'s, and what must come back. */
type Visit = () => Promise<readonly [path: string, call: Call, expected: object]>

const local = (path: string, expected: object = {}): Visit => {
  return async () => [path, {}, { status: 200, ...expected }]
}

/** By the name of the route. Those about the node itself are answered by whoever is asked. */
const VISITS: Readonly<Record<string, Visit>> = {
  createSession: async () => {
    const { key, id } = await owned()
    return ['/v1/sessions', { body: { key } }, { status: 200, body: { id, isNew: false } }]
  },
  listSessions: async () => {
    const { key, id } = await owned()
    return [`/v1/sessions?key=${key}`, {}, { body: { sessions: [{ id }] } }]
  },
  getChanges: async () => {
    const { body } = await owner.call('GET', '/v1/changes')
    const { id } = await owned()
    const changed = { body: { changes: [{ session: { id } }], hasMore: true } }
    return [`/v1/changes?after=${body.position}`, {}, changed]
  },
  listAsks: async () => {
    const { id, ask } = await runningTurn('ask')
    const asks = [{ id: ask, session: { id, agent: 'ask' } }]
    return [`/v1/asks?session=${id}`, {}, { body: { asks, nextCursor: null } }]
  },
  getSession: async () => {
    const { path, key } = await owned()
    return [path, {}, { status: 200, body: { key, state: 'open' } }]
  },
  changeSession: async () => {
    const { path } = await owned()
    const settings = { instructions: 'be brief' }
    return [path, { body: { settings } }, { status: 200, body: { settings } }]
  },
  forkSession: async () => {
    const { path, id } = await owned({ agent: 'forkable' })
    await owner.call('POST', `${path}/turns`, HELLO)
    return [`${path}/fork`, { body: {} }, { status: 201, body: { origin: { session: id } } }]
  },
  adoptConversation: async () => {
    const adopted = { status: 201, body: { origin: { backend: 'x' } } }
    return ['/v1/agents/forkable/adopt', { body: { backend: 'x' } }, adopted]
  },
  openTerminal: () => VISITS['getTerminalCommand']!(),
  getTerminalCommand: async () => {
    const adopted = { backend: 'opened' }
    const { body } = await owner.call('POST', '/v1/agents/forkable/adopt', { body: adopted })
    const command = { command: ['agent', body.id], cwd: '/' }
    return [`/v1/sessions/${body.id}/terminal`, {}, { status: 200, body: command }]
  },
  listAgents: local('/v1/agents'),
  closeSession: async () => {
    const { path } = await owned()
    return [path, {}, { status: 200, body: { state: 'closed' } }]
  },
  postSessionTurn: async () => {
    const { path } = await owned()
    return [`${path}/turns`, HELLO, { body: { turn: { reply: { text: 'hello' } } } }]
  },
  postKeyTurn: async () => {
    const { key, id } = await owned()
    return [`/v1/keys/${key}/turns`, HELLO, { body: { session: id, turn: { state: 'done' } } }]
  },
  postBlob: async () => {
    const { path } = await owned()
    const headers = { 'content-type': 'application/octet-stream' }
    return [`${path}/blobs`, { body: 'abc', headers }, { status: 201, body: { bytes: 5 } }]
  },
  getBlob: async () => {
    const { path } = await owned()
    const headers = { 'content-type': 'application/octet-stream' }
    const { body } = await owner.call('POST', `${path}/blobs`, { body: 'abc', headers })
    return [`${path}/blobs/${body.digest}`, {}, { status: 200, text: '"abc"' }]
  },
  getTurn: async () => {
    const { path } = await owned()
    const { body } = await owner.call('POST', `${path}/turns`, HELLO)
    return [`${path}/turns/${body.turn.id}`, {}, { body: { turn: { state: 'done' } } }]
  },
  moveTurn: async () => {
    const { path } = await runningTurn('slow')
    const waiting = async (): Promise<string> => {
      const headers = { prefer: 'respond-async' }
      return (await owner.call('POST', `${path}/turns`, { ...HELLO, headers })).body.turn.id
    }
    const [first, second] = [await waiting(), await waiting()]
    const queued = [{ turn: second }, { turn: first }]
    return [`${path}/turns/${second}/move`, { body: { before: first } }, { body: { queued } }]
  },
  cancelTurn: async () => {
    const { path, turn } = await runningTurn('slow')
    return [`${path}/turns/${turn}`, {}, { body: { turn: { state: 'cancelled' } } }]
  },
  getEvents: async () => {
    const { path } = await owned()
    return [`${path}/events`, {}, { body: { events: [{ type: 'session.created' }] } }]
  },
  getTranscript: async () => {
    const { path } = await owned()
    await owner.call('POST', `${path}/turns`, HELLO)
    return [`${path}/transcript`, {}, { status: 200, text: expect.stringContaining('hello') }]
  },
  getAsks: async () => {
    const { path } = await runningTurn('ask')
    return [`${path}/asks`, {}, { body: { asks: [{ kind: 'permission' }] } }]
  },
  answerAsk: async () => {
    const { path, ask } = await runningTurn('ask')
    const call = { body: { answer: 'deny' } }
    return [`${path}/asks/${ask}`, call, { body: { ask: { outcome: 'answered' } } }]
  },
  createLink: async () => {
    const { path } = await owned()
    return [`${path}/links`, { body: { scopes: ['watch'] } }, { status: 201 }]
  },
  getLinks: async () => {
    const { path, link } = await linked()
    return [`${path}/links`, {}, { body: { links: [{ id: link }] } }]
  },
  revokeLink: async () => {
    const { path, link } = await linked()
    return [`${path}/links/${link}`, {}, { body: { state: 'revoked' } }]
  },
  getGrants: async () => {
    const { path } = await owned()
    return [`${path}/grants`, {}, { body: { grants: [] } }]
  },
  revokeGrant: async () => {
    const { path } = await owned()
    return [`${path}/grants/none`, {}, { body: { id: 'none', state: 'revoked' } }]
  },
  getAudit: local('/v1/audit'),
  erasePrincipal: async () => ['/v1/principals/nobody', {}, { status: 200 }],
  previewRetention: async () => ['/v1/retention/preview', { body: {} }, { status: 200 }],
  importArchive: async () => {
    const { id, path } = await owned()
    await owner.call('DELETE', path)
    const { text: body } = await owner.get(`${path}/archive`)
    await owner.call('DELETE', `${path}?erase=true`)
    const headers = { 'content-type': 'application/jsonl' }
    return ['/v1/archives', { body, headers }, { status: 201, body: { id } }]
  },
  getArchive: async () => {
    const { path } = await owned()
    await owner.call('DELETE', path)
    return [`${path}/archive`, {}, { status: 200, text: expect.stringContaining('"end"') }]
  },
  shareSession: async () => {
    const { path } = await owned()
    const body = { with: 'bob', scopes: ['watch'] }
    return [`${path}/shares`, { body }, { body }]
  },
  getShares: async () => {
    const { path } = await shared()
    return [`${path}/shares`, {}, { body: { shares: [{ with: 'bob' }] } }]
  },
  unshareSession: async () => {
    const { path } = await shared()
    return [`${path}/shares/bob`, {}, { body: { state: 'removed' } }]
  },
  createChatCompletion: async () => {
    const { key } = await owned()
    const body = { model: 'echo', messages: [{ role: 'user', content: 'hello' }] }
    const call = { body, headers: { 'x-session-key': key } }
    return [
      '/v1/chat/completions',
      call,
      { body: { choices: [{ message: { content: 'hello' } }] } },
    ]
  },
  createResponse: async () => {
    const { id } = await response()
    const body = { model: 'echo', input: 'and on', previous_response_id: id }
    return ['/v1/responses', { body }, { status: 200, body: { status: 'completed' } }]
  },
  getResponse: async () => {
    const { id } = await response()
    return [`/v1/responses/${id}`, {}, { body: { id, status: 'completed' } }]
  },
  cancelResponse: async () => {
    const body = { model: 'slow', input: 'a b c', background: true }
    const { id } = (await owner.call('POST', '/v1/responses', { body })).body
    return [`/v1/responses/${id}/cancel`, { body: {} }, { body: { id, status: 'cancelled' } }]
  },
  deleteResponse: async () => {
    const { id } = await response()
    return [`/v1/responses/${id}`, {}, { body: { id, deleted: true } }]
  },
  listInputItems: async () => {
    const { id } = await response()
    return [`/v1/responses/${id}/input_items`, {}, { body: { data: [{ role: 'user' }] } }]
  },
  createConversationItems: async () => {
    const { id } = await filled()
    const body = { items: [{ role: 'user', content: 'more' }] }
    return [`/v1/conversations/${id}/items`, { body }, { body: { data: [{ role: 'user' }] } }]
  },
  getConversationItem: async () => {
    const { id, item } = await filled()
    return [`/v1/conversations/${id}/items/${item}`, {}, { body: { id: item } }]
  },
  deleteConversationItem: async () => {
    const { id, item } = await filled()
    return [`/v1/conversations/${id}/items/${item}`, {}, { body: { id } }]
  },
  createConversation: async () => {
    return ['/v1/conversations', { body: {} }, { body: { object: 'conversation' } }]
  },
  getConversation: async () => {
    const id = await conversation()
    return [`/v1/conversations/${id}`, {}, { body: { id } }]
  },
  deleteConversation: async () => {
    const id = await conversation()
    return [`/v1/conversations/${id}`, {}, { status: 200, body: { id, deleted: true } }]
  },
  listConversationItems: async () => {
    const id = await conversation()
    return [`/v1/conversations/${id}/items`, {}, { body: { data: [{}, {}] } }]
  },
  listBrowsers: async () => {
    const session = (await browsing()).split('/').at(-1) ?? ''
    const { node } = owner.holdfast.authority
    return [`/v1/browsers?session=${session}`, {}, { body: { node } }]
  },
  getScreenshot: async () => [`${await browsing()}/screenshot`, {}, { status: 200 }],
  createBrowserTicket: async () => [`${await browsing()}/ticket`, { body: {} }, { status: 201 }],
  listModels: local('/v1/models'),
  getModel: local('/v1/models/echo'),
  getOpenApi: local('/openapi.json'),
  getInspector: local('/'),
  getAsset: local('/assets/inspector/main.js'),
  getHealth: local('/health'),
  getReady: local('/ready'),
  getMetrics: local('/metrics'),
  getCaller: local('/v1/me'),
  getStats: async () => {
    const { node } = owner.holdfast.authority
    return [`/v1/stats?node=${node}`, {}, { body: { node } }]
  },
  listNodes: local('/v1/nodes'),
  createAskLink: async () => {
    const { path, ask } = await runningTurn('ask')
    return [`${path}/asks/${ask}/link`, { body: {} }, { status: 201 }]
  },
  getLinkedAsk: async () => {
    const { ask, headers } = await linkedAsk()
    return ['/v1/ask', { headers }, { body: { ask: { id: ask }, state: 'open' } }]
  },
  answerLinkedAsk: async () => {
    const { headers } = await linkedAsk()
    return ['/v1/ask', { headers, body: { answer: 'allow' } }, { body: { outcome: 'answered' } }]
  },
  listWebhooks: local('/v1/webhooks', { body: { webhooks: [{ name: 'hook' }] } }),
  resumeWebhook: local('/v1/webhooks/hook/resume', { body: { webhooks: [{ name: 'hook' }] } }),
  testWebhook: local('/v1/webhooks/hook/test', { body: { reason: 'connection' } }),
  postAcpMessage: async () => {
    const body = { jsonrpc: '2.0', id: 1, method: 'session/list', params: {} }
    return ['/acp', { body, headers: await acpConnection() }, { status: 202 }]
  },
  streamAcpMessages: async () => {
    const headers = { ...(await acpConnection()), 'acp-session-id': 'none' }
    // A stream of a session ends when the next one is opened.
    const again = () => owner.call('GET', '/acp', { headers }).catch(() => null)
    void again().then(again)
    return ['/acp', { headers }, { status: 200 }]
  },
  closeAcpConnection: async () => ['/acp', { headers: await acpConnection() }, { status: 202 }],
}

/** A connection of an ACP client to `owner`, over HTTP. */
async function acpConnection(): Promise<Readonly<Record<string, string>>> {
  const body = { jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: 1 } }
  const { headers } = await owner.call('POST', '/acp', { body })
  return { 'acp-connection-id': headers.get('acp-connection-id') ?? '' }
}

/** The path of a browser session on `owner`, whose client stays. */
async function browsing(): Promise<string> {
  count += 1
  const url = `${owner.url.replace('http', 'ws')}/cdp/chromium?key=browsing-${count}`
  viewers.push(await RawCdp.open(url))
  const { browsers } = (await owner.call('GET', '/v1/browsers')).body
  return `/v1/browsers/${browsers[0].open.at(-1).session}`
}

async function runningTurn(agent: string) {
  const session = await owned({ agent })
  const { path } = session
  const headers = { prefer: 'respond-async' }
  const call = { body: { input: 'one two three' }, headers }
  const { body } = await owner.call('POST', `${path}/turns`, call)
  if (agent !== 'ask') return { ...session, turn: body.turn.id as string, ask: '' }
  const asks = async (): Promise<any[]> => (await owner.call('GET', `${path}/asks`)).body.asks
  await until(async () => (await asks()).length > 0)
  return { ...session, turn: body.turn.id as string, ask: (await asks())[0].id as string }
}

async function linkedAsk() {
  const { path, ask } = await runningTurn('ask')
  const { body } = await owner.call('POST', `${path}/asks/${ask}/link`, { body: {} })
  return { ask, headers: { authorization: `Bearer ${body.token}` } }
}

async function linked() {
  const session = await owned()
  const call = { body: { scopes: ['watch'] } }
  const { body } = await owner.call('POST', `${session.path}/links`, call)
  return { ...session, link: body.id as string }
}

describe('a request that comes to a node which does not own its session', () => {
  const routes = serverRoutes({} as never)

  it('is visited here for every route that there is', () => {
    expect(Object.keys(VISITS).toSorted()).toEqual(routes.map(({ name }) => name).toSorted())
  })

  it.each(routes.map(({ name, method, path }) => [name, method, path]))(
    'is answered: %s (%s %s)',
    async (name, method) => {
      const [path, call, expected] = await VISITS[name]!()
      // It is forwarded before its handler runs, which would try to claim the session.
      const claim = vi.spyOn(other.holdfast.authority.store, 'claim')
      const answer: Answer = await other.call(method, path, call)
      expect(answer.status).toBeLessThan(300)
      expect(answer).toMatchObject(expected)
      expect(claim).not.toHaveBeenCalled()
      claim.mockRestore()
    },
  )
})

describe('a request that is wrong, at a node which does not own its session', () => {
  // With the largest images and files, as base64.
  const bytesMax = 1_048_576 + 65_536 + Math.ceil(20_971_520 / 3) * 4 + 32 * 4
  const tooLarge = JSON.stringify({ input: 'x'.repeat(1_048_577) })
  const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`
  const bodies: readonly (readonly [string, string, string, number, string])[] = [
    ['too large by its length', `Content-Length: ${bytesMax + 1}`, '{', 413, 'body_too_large'],
    [
      'too large as it comes',
      'Transfer-Encoding: chunked',
      `${chunk(tooLarge)}0\r\n\r\n`,
      413,
      'body_too_large',
    ],
    // These never reach a route: Node's parser gives up on them.
    ['cut off before its length', 'Content-Length: 100', '{"input":', 400, 'bad_request'],
    ['cut off between its chunks', 'Transfer-Encoding: chunked', chunk('{'), 400, 'bad_request'],
    [
      'in chunks that are none',
      'Transfer-Encoding: chunked',
      `${chunk('{')}zz`,
      400,
      'bad_request',
    ],
  ]

  it.each(bodies)('with a body %s is refused as on the owner', async (_, length, body, ...why) => {
    const { path, key } = await owned()
    const answers: unknown[] = []
    const ask = async ({ server }: TestServer, target: string) => {
      const line = `POST ${target}/turns`
      const head = headOf(line, ['Host: localhost', 'Content-Type: application/json', length])
      const isEnded = why[0] === 400
      const { status, text } = await sendRaw(server.port, `${head}\r\n\r\n${body}`, { isEnded })
      answers.push([status, /"code":"(\w+)"/.exec(text)?.[1] ?? null])
    }
    await ask(owner, path)
    await ask(other, path)
    await ask(other, `/v1/keys/${key}`)
    await other.call('POST', `${path}/turns`, HELLO)
    await ask(other, path)
    expect(answers).toEqual([why, why, why, why])
    const { body: page } = await owner.call('GET', `${path}/events`)
    const types = page.events.map(({ type }: { type: string }) => type)
    expect(types.filter((type: string) => type === 'turn.started')).toHaveLength(1)
  })

  it('is refused with 431 for its headers, and within the bound passed on whole', async () => {
    const { path } = await owned()
    const host = 'Host: localhost'
    const statusOf = async (count: number, bytes: number) => {
      const more = Array.from({ length: count - 3 }, (_, index) => `x-${index}: 1`)
      const long = `x-long: ${'x'.repeat(bytes)}`
      const head = headOf(`GET ${path}`, [host, long, ...more])
      return (await sendRaw(other.server.port, `${head}\r\n\r\n`)).status
    }
    expect(await statusOf(100, 1)).toBe(200)
    expect(await statusOf(101, 1)).toBe(431)
    expect(await statusOf(10, 16_200)).toBe(200)
    expect(await statusOf(10, 16_384)).toBe(431)
  })
})

describe("OpenAI's clients, spread over nodes", () => {
  const client = ({ url }: { url: string }, maxRetries = 0): OpenAI =>
    new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', maxRetries })
  const say = (content: string) => ({ model: 'witness', messages: [{ role: 'user', content }] })
  const times = (text: string): number => ran.filter((one) => one === text).length

  it.each([
    ['of a key', { 'x-session-key': 'retried' }],
    ['without a key', {}],
  ])('run a turn %s once, whichever node gets the retry', async (title, headers) => {
    const call = { body: say(`once ${title}`), headers }
    const answers = [await other.call('POST', '/v1/chat/completions', call)]
    for (const [index, node] of [third, owner, other].entries()) {
      const marked = { ...headers, 'x-stainless-retry-count': String(index + 1) }
      answers.push(await node.call('POST', '/v1/chat/completions', { ...call, headers: marked }))
    }
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1)
    expect(times(`once ${title}`)).toBe(1)
  })

  it('join a turn by its Idempotency-Key from any node, and refuse another body', async () => {
    const headers = { 'idempotency-key': 'k-1', 'x-session-key': 'idempotent' }
    const nodes = [owner, other, third, other]
    const answers = await Promise.all(
      nodes.map((node) =>
        node.call('POST', '/v1/chat/completions', { body: say('keyed'), headers }),
      ),
    )
    expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1)
    expect(times('keyed')).toBe(1)
    const wrong = await third.call('POST', '/v1/chat/completions', { body: say('else'), headers })
    expect(wrong).toMatchObject({ status: 422, body: { error: { code: 'idempotency_mismatch' } } })
  })

  it('retry by themselves through another node when an answer is lost, and run it once', async () => {
    const ways = [other, third].map(({ server }) => new CuttingProxy(server.port))
    const urls = await Promise.all(ways.map((way) => way.listen()))
    const { key } = await owned({ agent: 'witness' })
    // The first way loses the answer; the client's own retry takes the second.
    ways[0]!.lose = 1
    let calls = 0
    const openai = new OpenAI({
      baseURL: 'http://nowhere.invalid/v1',
      apiKey: 'unused',
      maxRetries: 3,
      fetch: (input, init) => {
        const { pathname } = new URL(input instanceof Request ? input.url : input)
        return fetch(`${urls[calls++ % 2]}${pathname}`, init)
      },
    })
    const told = await openai.chat.completions.create(
      { model: 'witness', messages: [{ role: 'user', content: 'lossy' }] },
      { headers: { 'x-session-key': key } },
    )
    expect(told.choices[0]?.message.content).toBe('said lossy')
    expect(calls).toBe(2)
    expect(times('lossy')).toBe(1)
    await Promise.all(ways.map((way) => way.close()))
  })

  it('follow a response from node to node, and stream it', async () => {
    let previous = await client(owner).responses.create({ model: 'witness', input: 'first' })
    const { session } = readId(previous.id)
    for (const node of [other, third, other]) {
      const input = `after ${previous.id}`
      previous = await client(node).responses.create({
        model: 'witness',
        input,
        previous_response_id: previous.id,
      })
      expect(previous.output_text).toBe(`said ${input}`)
      expect(readId(previous.id).session).toBe(session)
    }
    const stream = await client(third).responses.create({
      model: 'witness',
      input: 'as it comes',
      previous_response_id: previous.id,
      stream: true,
    })
    const events: OpenAI.Responses.ResponseStreamEvent[] = []
    for await (const event of stream) events.push(event)
    expect(events.at(-1)?.type).toBe('response.completed')
    const id = events[0]?.type === 'response.created' ? events[0].response.id : ''
    const cursor = { stream: true, starting_after: events[3]?.sequence_number ?? 0 } as const
    const rest: OpenAI.Responses.ResponseStreamEvent[] = []
    for await (const event of await client(other).responses.retrieve(id, cursor)) rest.push(event)
    expect(rest.map(({ sequence_number: n }) => n)).toEqual(
      events.slice(4).map(({ sequence_number: n }) => n),
    )
  })

  it('use a conversation whose facts one node owns, and whose session another', async () => {
    const { id } = await client(owner).conversations.create({ metadata: { topic: 'tides' } })
    // As after a node was lost: its sessions are claimed by whoever needs them first.
    await third.holdfast.resolve({ key: id, agent: 'witness' })
    for (const node of [owner, other, third]) {
      const { output_text } = await client(node).responses.create({
        model: 'witness',
        conversation: id,
        input: node.url,
      })
      expect(output_text).toBe(`said ${node.url}`)
      expect(await client(node).conversations.retrieve(id)).toMatchObject({
        metadata: { topic: 'tides' },
      })
    }
    expect(await client(other).conversations.delete(id)).toMatchObject({ deleted: true })
    for (const node of [owner, other, third]) {
      await expect(client(node).conversations.delete(id)).rejects.toMatchObject({ status: 404 })
    }
    const { sessions } = await owner.holdfast.list({ key: id, state: 'open' })
    expect(sessions).toEqual([])
  })
})

function readId(id: string): { session: string } {
  const [, session = ''] = /^resp_(.+)_t\d+$/.exec(id) ?? []
  return { session }
}

describe('a request that waits at the owner', () => {
  it('is shown and taken back through any node', async () => {
    const { path } = await runningTurn('ask')
    const waits = other.call('POST', `${path}/turns`, { body: { input: 'never' } })
    let queued: any[] = []
    await until(async () => {
      queued = (await third.call('GET', path)).body.queued
      return queued.length === 1
    })
    expect(queued).toMatchObject([{ state: 'waiting', position: 1, by: { kind: 'local' } }])
    const cancelled = await third.call('DELETE', `${path}/turns/${queued[0].request}`)
    expect(cancelled.body.request.state).toBe('cancelled')
    expect(await waits).toMatchObject({ status: 409, body: { code: 'cancelled' } })
    expect((await owner.call('GET', `${path}/events`)).text).not.toContain('never')
  })
})

describe('what nodes say to each other', () => {
  it('is told to nobody else', async () => {
    const { path } = await owned()
    const response = await fetch(`${other.url}${path}/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-holdfast-undone': '1' },
      body: JSON.stringify(HELLO.body),
    })
    expect(response.status).toBe(200)
    const names = [...response.headers.keys()].filter((name) => name.startsWith('x-holdfast'))
    expect(names).toEqual([])
  })

  it('counts a client by its own address, whichever node it came to', async () => {
    const tokens = { scopesOf: () => null, close: () => undefined }
    const options = { agents, tokens, trustProxy: true, rates: { failuresPerMinute: 3 } }
    const url = database.freshUrl()
    const near = await serve({ store: url, isNode: true, ...options })
    const far = await serve({ store: url, isNode: true, ...options })
    try {
      const session = await far.holdfast.resolve({ key: 'guarded' })
      const { token } = await session.createLink({ scopes: ['talk'] })
      const knockAt = (server: TestServer, from: string) =>
        knock(server, { session: session.id, link: token, from })
      for (let n = 0; n < 3; n += 1) await knockAt(near, '203.0.113.9')
      expect(await knockAt(far, '203.0.113.9')).toBe('too_many')
      expect(await knockAt(near, '203.0.113.9')).toBe('too_many')
      expect(await knockAt(far, '203.0.113.10')).toBe('attachment_unknown')
      expect(await knockAt(near, '203.0.113.11')).toBe('attachment_unknown')
    } finally {
      await Promise.all([near.close(), far.close()])
    }
  })

  /** Tries to resume with a bad token and a link that is good; the code of the refusal. */
  async function knock(
    { url }: TestServer,
    { session, link, from }: { session: string; link: string; from: string },
  ): Promise<string> {
    const headers = { 'x-forwarded-for': from }
    const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/connect`, { headers })
    await once(socket, 'open')
    const resume = { attachment: 'a', token: `${link}.b` }
    const refused = once(socket, 'message') as Promise<[Buffer]>
    socket.send(JSON.stringify({ type: 'hello', v: 1, session, auth: { resume } }))
    const [data] = await refused
    socket.terminate()
    return (JSON.parse(data.toString()) as { readonly code: string }).code
  }
})

describe('a key whose session is closed through one node and asked for through others', () => {
  it('gets one new session each time, and every turn that was done is in a log', async () => {
    const nodes = [owner, other, third]
    const key = 'reborn'
    const made = new Map<string, number>()
    for (let round = 0; round < 6; round += 1) {
      const at = (offset: number): TestServer => nodes[(round + offset) % 3]!
      const first = await at(0).call('POST', '/v1/sessions', { body: { key } })
      const { id } = first.body as { id: string }
      const closing = at(1).call('DELETE', `/v1/sessions/${id}`)
      const resolving = [0, 1, 2, 3, 4, 5].map((offset) =>
        at(offset).call('POST', '/v1/sessions', { body: { key } }),
      )
      const talking = [0, 1, 2].map((offset) =>
        at(offset).call('POST', `/v1/keys/${key}/turns`, { body: { input: `${round}.${offset}` } }),
      )
      const resolved = [first, ...(await Promise.all(resolving))]
      const turns = await Promise.all(talking)
      const all = [await closing, ...resolved, ...turns]
      expect(all.map(({ status }) => status).filter((status) => status > 201)).toEqual([])
      for (const { body } of resolved) {
        made.set(body.id as string, (made.get(body.id) ?? 0) + Number(body.isNew))
      }
      for (const { body } of turns) {
        const { body: page } = await at(2).call('GET', `/v1/sessions/${body.session}/events`)
        const ends = page.events.filter((event: any) => event.turn === body.turn.id)
        expect(ends.at(-1).type).toBe(`turn.${body.turn.state}`)
      }
    }
    expect(made.size).toBeGreaterThanOrEqual(6)
    // Some are made by a turn, and these are new to nobody here (I1).
    expect(Math.max(...made.values())).toBe(1)
    const { body } = await other.call('GET', `/v1/sessions?state=open&key=${key}`)
    expect(body.sessions.length).toBeLessThanOrEqual(1)
  })
})
