/**
 * Every route that does not name a session in its path, tried by a stranger: what it names of
 * another it finds as little as what never was, what it lists has nothing of another's, and what it
 * makes is its own. A route without a row here fails the first test.
 */
import { builtinAgents } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { OPERATIONS } from '../../src/core/access.ts'
import { serverRoutes } from '../../src/server/routes.ts'
import { until } from '../support/gate.ts'
import {
  bearer,
  ENTRIES,
  secretOf,
  Servers,
  sharedSession,
  tokenEntry,
  toldBy,
  WHERE,
} from '../support/principals.ts'
import type { Call, TestServer } from '../support/server.ts'
import { dial } from '../support/wire-client.ts'

let servers: Servers

beforeAll(async () => {
  servers = await Servers.open({ agents: builtinAgents })
})
afterAll(() => servers.close())

const ALL = serverRoutes({} as never)
/** Those are tried in `ownership.test.ts`. */
const ROUTES = ALL.filter(({ path }) => !path.startsWith('/v1/sessions/:id'))
const PUBLIC = ROUTES.filter(({ operation }) => OPERATIONS[operation] === null)

const headers = bearer('stranger')
const SECRET = 'a secret of Alice'

/** What Alice has: ids, and texts that nobody else may learn. */
type Things = {
  readonly session: string
  readonly key: string
  readonly ask: string
  readonly label: string
  readonly digest: string
  readonly response: string
  readonly item: string
  readonly conversation: string
  readonly added: string
  /** A conversation of the stranger's own. */
  readonly own: string
}

async function thingsOf(server: TestServer): Promise<Things> {
  const call = async (path: string, body: object): Promise<any> => {
    const answer = await server.call('POST', path, { headers: bearer('alice'), body })
    expect(answer.status).toBeLessThan(300)
    return answer.body
  }
  const [key, label] = [`key-of-alice-${Math.random()}`, `label-of-alice-${Math.random()}`]
  const { id: session } = await call('/v1/sessions', { key, agent: 'ask', labels: { label } })
  const path = `/v1/sessions/${session}`
  const data = Buffer.from(SECRET).toString('base64')
  const { digest } = await put(server, session, 'alice', SECRET)
  const items = [{ role: 'user', content: SECRET }]
  const { id: conversation } = await call('/v1/conversations', { items })
  const { first_id } = (
    await server.call('GET', `/v1/conversations/${conversation}/items`, {
      headers: bearer('alice'),
    })
  ).body
  const { id: response, output } = await call('/v1/responses', { model: 'echo', input: data })
  void server.call('POST', `${path}/turns`, { headers: bearer('alice'), body: { input: SECRET } })
  const asks = async (): Promise<any[]> =>
    (await server.call('GET', `${path}/asks`, { headers: bearer('alice') })).body.asks
  await until(async () => (await asks()).length > 0)
  const [{ id: ask }] = await asks()
  const own = (await server.call('POST', '/v1/conversations', { headers, body: {} })).body.id
  const [item, added] = [output[0].id, first_id]
  return { session, key, ask, label, digest, response, item, conversation, added, own }
}

/** Stores a text as bytes; the answer's body. */
async function put(server: TestServer, session: string, who: string, text: string): Promise<any> {
  const answer = await fetch(`${server.url}/v1/sessions/${session}/blobs`, {
    method: 'POST',
    headers: { ...bearer(who), 'content-type': 'application/octet-stream' },
    body: text,
  })
  return answer.json()
}

/** The part of an id that says which session it is of. */
const coreOf = (id: string): string =>
  /^(?:conv_|resp_|msg_)?(.*?)(?:_[tin]\d+(?:_\d+)?)?$/.exec(id)![1]!

type Asked = readonly [path: string, call?: Omit<Call, 'headers'>]

type Row =
  /** Names something of Alice's, by one of her ids. */
  | { readonly names: keyof Things; readonly ask: (id: string, of: Things) => Asked }
  /** Has nothing of Alice's, whatever is asked for. */
  | { readonly without: (of: Things) => readonly Asked[] }
  | 'administrators only'

const named = (names: keyof Things, ask: (id: string, of: Things) => Asked): Row => ({ names, ask })
const lists = (...paths: readonly string[]): Row => ({ without: () => paths.map((path) => [path]) })
const conversation = (rest = '', call: Asked[1] = {}) =>
  named('conversation', (id) => [`/v1/conversations/${id}${rest}`, call])
const response = (rest = '') => named('response', (id) => [`/v1/responses/${id}${rest}`])
const said = (input: unknown, more: object = {}) => ({ body: { model: 'echo', input, ...more } })
const turn = { role: 'user', content: 'x' }

const INITIALIZE = { jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: 1 } }

const ROWS: Readonly<Record<string, readonly Row[]>> = {
  createSession: [
    named('session', (id) => ['/v1/sessions', { body: { id } }]),
    { without: ({ key }) => [['/v1/sessions', { body: { key } }]] },
  ],
  listSessions: [
    {
      without: ({ key, label }) => [
        ['/v1/sessions?limit=500'],
        [`/v1/sessions?key=${key}`],
        [`/v1/sessions?label=label:${label}`],
      ],
    },
  ],
  adoptConversation: ['administrators only'],
  listAgents: [lists('/v1/agents')],
  listAsks: [
    {
      without: ({ session, label }) => [
        ['/v1/asks'],
        [`/v1/asks?session=${session}`],
        [`/v1/asks?label=label:${label}`],
      ],
    },
  ],
  postKeyTurn: [{ without: ({ key }) => [[`/v1/keys/${key}/turns`, said('x')]] }],
  getChanges: [lists('/v1/changes')],
  createChatCompletion: [
    { without: ({ key }) => [['/v1/chat/completions', { body: { messages: [turn], user: key } }]] },
  ],
  createResponse: [
    named('response', (id) => ['/v1/responses', said('x', { previous_response_id: id })]),
    named('conversation', (id) => ['/v1/responses', said('x', { conversation: id })]),
    named('item', (id) => ['/v1/responses', said([{ type: 'item_reference', id }, turn])]),
    named('added', (id) => ['/v1/responses', said([{ type: 'item_reference', id }, turn])]),
  ],
  getResponse: [response(), response('?stream=true')],
  deleteResponse: [response()],
  listInputItems: [response('/input_items')],
  cancelResponse: [response('/cancel')],
  createConversation: [{ without: () => [['/v1/conversations', { body: {} }]] }],
  getConversation: [conversation()],
  deleteConversation: [conversation()],
  listConversationItems: [conversation('/items')],
  createConversationItems: [conversation('/items', { body: { items: [turn] } })],
  getConversationItem: [
    named('item', (id, { own }) => [`/v1/conversations/${own}/items/${id}`]),
    named('conversation', (id, of) => [`/v1/conversations/${id}/items/${of.added}`]),
  ],
  deleteConversationItem: [
    named('item', (id, { own }) => [`/v1/conversations/${own}/items/${id}`]),
  ],
  listModels: [lists('/v1/models')],
  getModel: [lists('/v1/models/echo', '/v1/models/none')],
  getInspector: [lists('/')],
  getAsset: [lists('/assets/inspector/main.js')],
  getHealth: [lists('/health')],
  getReady: [lists('/ready')],
  listBrowsers: [lists('/v1/browsers'), named('session', (id) => [`/v1/browsers?session=${id}`])],
  getScreenshot: [named('session', (id) => [`/v1/browsers/${id}/screenshot`])],
  createBrowserTicket: [named('session', (id) => [`/v1/browsers/${id}/ticket`, { body: {} }])],
  getAudit: ['administrators only'],
  getMetrics: ['administrators only'],
  getCaller: [lists('/v1/me')],
  getStats: ['administrators only'],
  listNodes: ['administrators only'],
  getLinkedAsk: [lists('/v1/ask')],
  answerLinkedAsk: [lists('/v1/ask')],
  previewRetention: ['administrators only'],
  erasePrincipal: ['administrators only'],
  importArchive: ['administrators only'],
  listWebhooks: ['administrators only'],
  resumeWebhook: ['administrators only'],
  testWebhook: ['administrators only'],
  getOpenApi: [lists('/openapi.json')],
  postAcpMessage: [{ without: () => [['/acp', { body: INITIALIZE }]] }],
  streamAcpMessages: [lists('/acp')],
  closeAcpConnection: [lists('/acp')],
}

it('every route has a row', () => {
  expect(Object.keys(ROWS).toSorted()).toEqual(ROUTES.map(({ name }) => name).toSorted())
})

describe.each(Object.entries(WHERE))('a stranger, %s', (_, nodesOf) => {
  let owner: TestServer
  let asked: TestServer
  let things: Things
  /** What no answer may have that is not told it first. */
  let hidden: readonly string[]

  beforeAll(async () => {
    ;[owner, asked] = nodesOf(servers)
    things = await thingsOf(owner)
    const { session, digest, response: told, conversation: facts } = things
    hidden = [SECRET, ...[session, digest, told, facts].map(coreOf)]
  })

  it.each(ROUTES.map((route) => [route.name, route] as const))(
    'learns nothing of another by %s',
    async (name, { method, path: pattern }) => {
      const send = ([path, call = {}]: Asked) => asked.call(method, path, { ...call, headers })
      for (const row of ROWS[name] ?? []) {
        if (row === 'administrators only') {
          const path = pattern.replace(/:\w+/, 'echo')
          expect((await send([path, method === 'POST' ? { body: {} } : {}])).status).toBe(403)
        } else if ('names' in row) {
          const id = things[row.names]
          const core = coreOf(id)
          const nowhere = 'A'.repeat(core.length)
          const [there, unknown] = await Promise.all([
            send(row.ask(id, things)),
            send(row.ask(id.replace(core, nowhere), things)),
          ])
          const told = toldBy(there, core)
          expect([name, told]).toEqual([name, toldBy(unknown, nowhere)])
          expect([name, there.status]).toEqual([name, 404])
        } else {
          for (const one of row.without(things)) {
            const { text, headers: answered } = await send(one)
            const all = `${text}${JSON.stringify([...answered])}`
            for (const id of hidden) expect(all).not.toContain(id)
          }
        }
      }
      // Nothing of Alice's has changed by it.
      const mine = { headers: bearer('alice') }
      const { body } = await owner.call('GET', `/v1/sessions/${things.session}/asks`, mine)
      expect(body.asks.map(({ id }: any) => id)).toEqual([things.ask])
      const kept = await owner.call('GET', `/v1/conversations/${things.conversation}/items`, mine)
      expect(kept.body.data.length).toBe(1)
      const { status } = await owner.call('GET', `/v1/responses/${things.response}`, mine)
      expect(status).toBe(200)
    },
  )

  it('learns nothing by bytes that another has stored', async () => {
    const { body: own } = await asked.call('POST', '/v1/sessions', { headers, body: {} })
    const path = `/v1/sessions/${own.id}`
    const none = `sha256:${'0'.repeat(64)}`
    const parts = (digest: string) => [{ type: 'image', mediaType: 'image/png', digest }]
    const ask = async (digest: string): Promise<readonly string[]> => {
      const read = await asked.call('GET', `${path}/blobs/${digest}`, { headers })
      const body = { input: { parts: parts(digest) } }
      const used = await asked.call('POST', `${path}/turns`, { headers, body })
      expect([read.status, used.status]).toEqual([404, 422])
      return [toldBy(read, digest), toldBy(used, digest)]
    }
    expect(await ask(things.digest)).toEqual(await ask(none))
    // Stored once more, they are as new as any others are.
    const [same, other] = [await put(asked, own.id, 'stranger', SECRET), 'a secret of Carol']
    expect(same).toEqual({ digest: things.digest, bytes: SECRET.length })
    expect((await put(asked, own.id, 'stranger', other)).bytes).toBe(other.length)
  })

  it('finds none of its own sessions under the idempotency key of another', async () => {
    const call = { 'idempotency-key': 'the same', 'x-session-key': 'the same' }
    const body = { model: 'echo', messages: [turn] }
    const ids = await Promise.all(
      ['alice', 'stranger'].map(async (who) => {
        const both = { headers: { ...bearer(who), ...call }, body }
        const answer = await asked.call('POST', '/v1/chat/completions', both)
        return answer.headers.get('x-session-id')
      }),
    )
    expect(new Set(ids).size).toBe(2)
  })
})

describe('what is no token', () => {
  it('is refused by every route that needs one: a link, a resume token, an expired token', async () => {
    const expired = tokenEntry('expired', { scopes: ['admin'], expiresAt: 1 })
    const file = await servers.files.write('tokens.json', [...ENTRIES, expired])
    expect(file).toBeDefined()
    const server = servers.single
    const { id, path } = await sharedSession(server)
    const call = { headers: bearer('alice'), body: { scopes: ['talk'] } }
    const link = (await server.call('POST', `${path}/links`, call)).body.token as string
    const client = dial(server.url, { session: id, auth: { token: secretOf('alice') } })
    const resume = String((await client.frame('welcome'))['resume'])
    for (const secret of [link, resume, secretOf('expired')]) {
      for (const { method, path: pattern, name } of ALL) {
        if (PUBLIC.some((route) => route.name === name)) continue
        const target = pattern.replace(':id', id).replaceAll(/:\w+/g, 'none')
        const authorization = `Bearer ${secret}`
        const { status } = await server.call(method, target, { headers: { authorization } })
        // Too many of them are refused before they are looked at.
        expect([name, [401, 429].includes(status)]).toEqual([name, true])
      }
    }
    await client.cut()
  })
})
