/**
 * Every door asks one table what a caller may do: each operation of each door is tried with each scope.
 * Routes and frames are taken from the lists that serve them, so that a new one is tried too.
 */
import { request } from 'node:http'
import type { Holdfast } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { JSON_HANDLERS } from '../../src/doors/cdp/http.ts'
import { FRAME_OPERATIONS } from '../../src/doors/connect/log-channel.ts'
import { mayDo, OPERATIONS, SCOPES, withIncluded, type Operation } from '../../src/core/access.ts'
import { serverRoutes } from '../../src/server/routes.ts'
import { dial, type WireClient } from '../support/wire-client.ts'
import { serve, type TestServer } from '../support/server.ts'

const ROUTES = serverRoutes({} as never)
/** Each scope alone, none at all, and the two that make an answerer who sees what it answers. */
const GRANTS = [...SCOPES.map((scope) => [scope]), [], ['watch', 'answer']] as const

let holdfast: Holdfast
let server: TestServer
const clients: WireClient[] = []

beforeAll(async () => {
  const tokens = {
    // A token is the list of its scopes.
    scopesOf: (token: string) => withIncluded(scopesIn(token)),
    close: () => undefined,
  }
  const browsers = { none: { program: '/nowhere/chromium' } }
  server = await serve({ tokens, browsers })
  holdfast = server.holdfast
})

afterAll(async () => {
  for (const { socket } of clients) socket.terminate()
  await server.close()
})

function tokenOf(scopes: readonly string[]): string {
  return `hf_${scopes.join('.')}`
}

function scopesIn(token: string): (typeof SCOPES)[number][] {
  return SCOPES.filter((scope) => token.slice(3).split('.').includes(scope))
}

function may(scopes: readonly (typeof SCOPES)[number][], operation: Operation): boolean {
  return mayDo(withIncluded(scopes), operation)
}

type Sent = { readonly method: string; readonly path: string; readonly headers?: object }

/** Also for an upgrade: 101 if it was opened. */
function statusOf(scopes: readonly string[], { method, path, headers = {} }: Sent) {
  return new Promise<number>((resolve, reject) => {
    const sent = request({
      ...{ port: server.port, host: '127.0.0.1', method, path, agent: false },
      headers: {
        authorization: `Bearer ${tokenOf(scopes)}`,
        'content-type': 'application/json',
        ...headers,
      },
    })
    sent.on('response', (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
    sent.on('upgrade', (_, socket) => {
      socket.destroy()
      resolve(101)
    })
    sent.on('error', reject).end(method === 'POST' ? '{}' : '')
  })
}

async function attach(auth: object, hello: object): Promise<WireClient> {
  const client = dial(server.url, { auth, ...hello })
  clients.push(client)
  await client.frame(({ type }) => type === 'welcome' || type === 'refuse')
  return client
}

/** What the first answer says: `welcome`, or the code of the refusal. */
function answerOf({ frames: [first] }: WireClient): string {
  return String(first?.['code'] ?? first?.type)
}

/** They take a link to an ask, and no token. */
const ONLY_BY_LINK: ReadonlySet<string> = new Set(['getLinkedAsk', 'answerLinkedAsk'])

const FRAMES = Object.keys(FRAME_OPERATIONS) as (keyof typeof FRAME_OPERATIONS)[]
/** The rest of each request of a socket. */
const BODIES: Readonly<Record<keyof typeof FRAME_OPERATIONS, object>> = {
  turn: { input: 'x' },
  configure: { settings: {} },
  cancel: { turn: 't2' },
  answer: { ask: 'a1', answer: 'x' },
  close: {},
}

describe.each(GRANTS.map((scopes) => [scopes.join(' and ') || 'nothing', scopes] as const))(
  'a token that may %s',
  (_, scopes) => {
    it('is let through by the routes that its scopes allow, and by no others', async () => {
      const wrong: string[] = []
      for (const { method, path, name, operation } of ROUTES) {
        const status = await statusOf(scopes, { method, path: path.replaceAll(/:\w+/g, 'none') })
        const isRefused = status === 403 || status === 401
        const isAllowed = !ONLY_BY_LINK.has(name) && may(scopes, operation)
        if (isRefused === isAllowed) wrong.push(`${name}: ${status}`)
      }
      expect(wrong).toEqual([])
    })

    const hellos: readonly [string, object, readonly Operation[]][] = [
      ['a watcher', { role: 'watcher' }, ['session.read']],
      ['a driver', {}, ['session.read', 'turn.run']],
      ['an answerer', { role: 'watcher', answers: ['x'] }, ['session.read', 'ask.answer']],
    ]

    it.each(hellos)(
      'attaches as %s only if it may do what that does',
      async (_kind, hello, all) => {
        const { id } = await holdfast.resolve({})
        const client = await attach({ token: tokenOf(scopes) }, { session: id, ...hello })
        const allowed = all.every((operation) => may(scopes, operation))
        expect(answerOf(client)).toBe(allowed ? 'welcome' : 'forbidden')
      },
    )

    it('makes a session by its hello only if it may', async () => {
      const key = `made by ${scopes.join(' ')}`
      const client = await attach({ token: tokenOf(scopes) }, { key, role: 'watcher' })
      const allowed = may(scopes, 'session.create') && may(scopes, 'session.read')
      expect(answerOf(client)).toBe(allowed ? 'welcome' : 'forbidden')
      expect((await holdfast.list({ key })).sessions).toHaveLength(allowed ? 1 : 0)
    })

    it.each(FRAMES)('has its %s over a socket refused unless it may do that', async (type) => {
      if (!may(scopes, 'session.read')) return
      const { id } = await holdfast.resolve({})
      const role = may(scopes, 'turn.run') ? 'driver' : 'watcher'
      const client = await attach({ token: tokenOf(scopes) }, { session: id, role })
      client.send({ type, id: '1', ...BODIES[type] })
      const { error } = await client.reply('1')
      const isAllowed = may(scopes, FRAME_OPERATIONS[type])
      // A watcher does nothing but answer.
      const takesPart = role === 'driver' || type === 'answer'
      expect(error?.code === 'forbidden').toBe(!(isAllowed && takesPart))
    })

    it('may use browsers only if it may, by request and by socket', async () => {
      const upgrade = {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': Buffer.alloc(16).toString('base64'),
      }
      const paths = [...Object.keys(JSON_HANDLERS), '/json/activate/x', '/json/close/x']
      for (const sent of [
        ...paths.map((path) => ({ method: 'GET', path: `/cdp/none${path}` })),
        { method: 'POST', path: '/cdp/none/ticket' },
        { method: 'GET', path: '/cdp/none', headers: upgrade },
        { method: 'GET', path: '/cdp/none/held', headers: upgrade },
      ]) {
        const isRefused = (await statusOf(scopes, sent)) === 403
        expect([sent.path, isRefused]).toEqual([sent.path, !may(scopes, 'browser.use')])
      }
    })
  },
)

describe('a link', () => {
  it.each([
    [['watch'], 'welcome'],
    [['talk'], 'welcome'],
    [['watch', 'answer'], 'welcome'],
    [['answer'], 'forbidden'],
  ] as const)('with %j lets its holder watch only if that is in it', async (scopes, expected) => {
    const session = await holdfast.resolve({})
    const { token: link } = await session.createLink({ scopes })
    const client = await attach({ link }, { session: session.id, role: 'watcher' })
    expect(answerOf(client)).toBe(expected)
    if (expected === 'forbidden') expect(client.frames).toHaveLength(1)
  })

  it.each([[['watch']], [['talk']], [['watch', 'answer']], [['talk', 'answer']]] as const)(
    'with %j has the requests of its holder refused that are not in it',
    async (scopes) => {
      for (const type of FRAMES) {
        const session = await holdfast.resolve({})
        const { token: link } = await session.createLink({ scopes })
        const role = may(scopes, 'turn.run') ? 'driver' : 'watcher'
        const client = await attach({ link }, { session: session.id, role })
        client.send({ type, id: '1', ...BODIES[type] })
        const { error } = await client.reply('1')
        const allowed = may(scopes, FRAME_OPERATIONS[type])
        expect([type, error?.code === 'forbidden']).toEqual([type, !allowed])
      }
    },
  )
})

describe('the table', () => {
  it('has no operation that no door has', () => {
    const used = new Set<string>(['browser.use', ...Object.values(FRAME_OPERATIONS)])
    for (const { operation } of ROUTES) used.add(operation)
    expect([...used].toSorted()).toEqual(Object.keys(OPERATIONS).toSorted())
  })
})
