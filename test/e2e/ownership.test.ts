/**
 * Whose session it is: every route about a session, and every way to attach to one, tried by its
 * principal, by principals and groups that it is shared with, by a stranger and by an administrator,
 * on the node that owns it and on another. A stranger gets the answer of a session that never was.
 */
import { builtinAgents } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { OPERATIONS, type Scope } from '../../src/core/access.ts'
import { serverRoutes } from '../../src/server/routes.ts'
import { StockClient } from '../support/acp-client.ts'
import { until } from '../support/gate.ts'
import {
  bearer,
  CALLERS,
  NAMES,
  SCOPES_ON,
  Servers,
  secretOf,
  sharedSession as session,
  tokenEntry,
  toldBy,
  WHERE,
  type CallerName,
} from '../support/principals.ts'
import { RawCopilot } from '../support/raw-copilot.ts'
import { serve, type TestServer } from '../support/server.ts'
import { dial, type WireClient } from '../support/wire-client.ts'

let servers: Servers

beforeAll(async () => {
  servers = await Servers.open({ agents: builtinAgents, sharedKeys: { 'team/': 'team' } })
})
afterAll(() => servers.close())

const copilotPorts = new Map<TestServer, Promise<number>>()

function copilotPort(server: TestServer): Promise<number> {
  const port = copilotPorts.get(server) ?? server.server.listenCopilot(0)
  copilotPorts.set(server, port)
  return port
}

const ROUTES = serverRoutes({} as never).filter(({ path }) => path.startsWith('/v1/sessions/:id'))
const BODIES: Readonly<Record<string, object>> = {
  postSessionTurn: { input: 'hello' },
  answerAsk: { answer: 'yes' },
  forkSession: {},
  moveTurn: { before: null },
  changeSession: { settings: { onNobody: 'deny' } },
  createLink: { scopes: ['watch'] },
  shareSession: { with: 'nobody-here', scopes: ['watch'] },
}

describe.each(Object.entries(WHERE))('a session %s', (_, nodesOf) => {
  const nodes = () => nodesOf(servers)

  describe.each(ROUTES.map((route) => [route.name, route] as const))('%s', (name, route) => {
    const tried = (server: TestServer, path: string, who: string) =>
      server.call(route.method, path, { headers: bearer(who), body: BODIES[name] as never })

    it.each(NAMES)('answers %s by what the session allows it', async (who) => {
      const [owner, asked] = nodes()
      const { id, turn } = await session(owner)
      const path = route.path
        .replace(':id', id)
        .replace(':turn', turn)
        .replace(/:(ask|link|with|grant)/, 'none')
      const answer = await tried(asked, path, who)
      const needed = OPERATIONS[route.operation] as Scope
      const scopes = SCOPES_ON[who]
      if (scopes.length === 0) {
        const unknown = await tried(asked, path.replace(id, 'A'.repeat(id.length)), who)
        expect(toldBy(answer, id)).toBe(toldBy(unknown, 'A'.repeat(id.length)))
        expect([answer.status, answer.body.code]).toEqual([404, 'session_unknown'])
      } else if (scopes.includes(needed)) {
        expect([401, 403]).not.toContain(answer.status)
        expect(answer.body?.code).not.toBe('session_unknown')
      } else expect([answer.status, answer.body.code]).toEqual([403, 'forbidden'])
    })
  })

  it('is listed, and in the change feed, for those that may see it and no others', async () => {
    const [owner, asked] = nodes()
    const end = async (who: CallerName): Promise<[CallerName, number]> => {
      const { body } = await asked.call('GET', '/v1/changes', { headers: bearer(who) })
      return [who, body.position]
    }
    const before = new Map(await Promise.all(NAMES.map(end)))
    const { id } = await session(owner)
    const sees = async (who: CallerName): Promise<boolean> => {
      const path = `/v1/changes?after=${before.get(who)}&limit=500`
      const { changes } = (await asked.call('GET', path, { headers: bearer(who) })).body
      return changes.some((change: any) => change.session.id === id)
    }
    // A session that is just being appended to has its turn at a later read.
    await until(() => sees('admin'))
    for (const who of NAMES) {
      const headers = bearer(who)
      const isVisible = SCOPES_ON[who].length > 0
      const { sessions } = (await asked.call('GET', '/v1/sessions?limit=500', { headers })).body
      expect([who, sessions.some((row: any) => row.id === id)]).toEqual([who, isVisible])
      expect([who, await sees(who)]).toEqual([who, isVisible])
    }
  })

  it('is attached to by those that may, in their role, and is unknown to all others', async () => {
    const [owner, asked] = nodes()
    const clients: WireClient[] = []
    const hello = async (who: string, frame: object) => {
      const client = dial(asked.url, { auth: { token: secretOf(who) }, ...frame })
      clients.push(client)
      return client.frame(({ type }) => type === 'welcome' || type === 'refuse')
    }
    try {
      for (const who of NAMES) {
        const { id } = await session(owner)
        const scopes = SCOPES_ON[who]
        const roles = { watcher: ['watch'], driver: ['watch', 'talk'] } as const
        for (const [role, needed] of Object.entries(roles)) {
          const answer = await hello(who, { session: id, role })
          if (scopes.length === 0) {
            const unknown = await hello(who, { session: 'A'.repeat(id.length), role })
            const told = JSON.stringify(answer).replaceAll(id, 'ID')
            expect(told).toBe(JSON.stringify(unknown).replaceAll('A'.repeat(id.length), 'ID'))
            expect(answer?.code).toBe('session_unknown')
          } else {
            const isAllowed = needed.every((scope) => scopes.includes(scope))
            const expected = isAllowed ? 'welcome' : 'forbidden'
            const found = answer?.type === 'welcome' ? 'welcome' : answer?.code
            expect([who, role, found]).toEqual([who, role, expected])
            if (isAllowed) expect([who, answer?.scopes]).toEqual([who, scopes])
          }
        }
      }
    } finally {
      for (const { socket } of clients) socket.terminate()
    }
  })

  it('is an ACP client’s by what it allows, and unknown to all others', async () => {
    const [owner, asked] = nodes()
    const refusal = (error: any): string => error.data?.code ?? 'no code'
    for (const who of NAMES) {
      const { id } = await session(owner)
      const scopes = SCOPES_ON[who]
      const client = await StockClient.connect(asked.url, { token: secretOf(who) })
      const tried = (method: string, params: object, sessionId = id): Promise<any> =>
        client.request(method, { sessionId, ...params }).catch((error: unknown) => error)
      const folder = { cwd: '/', mcpServers: [] }
      const methods: readonly (readonly [string, object])[] = [
        ['session/load', folder],
        ['session/resume', folder],
        ['session/prompt', { prompt: [{ type: 'text', text: 'from ACP' }] }],
        ['session/set_mode', { modeId: 'unset' }],
        ['_holdfast/control', { role: 'driver' }],
        ['session/close', {}],
        ['session/delete', {}],
      ]
      if (scopes.length === 0) {
        const unknown = 'A'.repeat(id.length)
        for (const [method, params] of methods) {
          const [there, nowhere] = [
            await tried(method, params),
            await tried(method, params, unknown),
          ]
          // The library takes a session that it leaves, and is not there, for left.
          const isLeft = /close|delete/.test(method)
          expect([who, method, isLeft ? there : refusal(there)]).toEqual([
            who,
            method,
            isLeft ? {} : 'session_unknown',
          ])
          const told = ({ code, message, data }: any): string =>
            JSON.stringify({ code, message, data })
          expect(told(there).replaceAll(id, 'ID')).toBe(told(nowhere).replaceAll(unknown, 'ID'))
        }
      } else {
        const { _meta } = await tried(...methods[0]!)
        const role = scopes.includes('talk') ? 'driver' : 'watcher'
        expect([who, _meta.holdfast.role]).toEqual([who, role])
        const said = await tried(...methods[2]!)
        expect([who, said.stopReason ?? refusal(said)]).toEqual([
          who,
          role === 'driver' ? 'end_turn' : 'forbidden',
        ])
        const deleted = await tried('session/delete', {})
        const mayDelete = scopes.includes('manage')
        expect([who, mayDelete ? deleted : refusal(deleted)]).toEqual([
          who,
          mayDelete ? {} : 'forbidden',
        ])
      }
      const { sessions } = await client.request('session/list', {})
      const isListed = sessions.some(({ sessionId }: any) => sessionId === id)
      expect([who, isListed]).toEqual([who, scopes.length > 0 && !scopes.includes('manage')])
      client.close()
    }
    // The bearer of a link has other doors.
    const { path } = await session(owner)
    const call = { headers: bearer('alice'), body: { scopes: ['watch', 'talk'] } }
    const { token } = (await owner.call('POST', `${path}/links`, call)).body
    expect(token).toEqual(expect.any(String))
    await expect(StockClient.connect(asked.url, { token })).rejects.toThrow()
  })

  it('is resumed, read, used and deleted over the Copilot door by those that may', async () => {
    const [owner, asked] = nodes()
    const port = await copilotPort(asked)
    const needed = {
      'session.resume': 'watch',
      'session.getMessages': 'watch',
      'session.metadata.isProcessing': 'watch',
      'session.send': 'talk',
      'session.abort': 'talk',
      'session.mode.set': 'talk',
      'session.delete': 'manage',
    } as const
    for (const who of NAMES) {
      const client = await RawCopilot.open(port, secretOf(who))
      try {
        const { id } = await session(owner)
        const tried = async (method: string, sessionId: string) => {
          const more = method === 'session.send' ? { prompt: 'x' } : { mode: 'interactive' }
          const params = { sessionId, ...more }
          const answer = client.response(client.ask(method, params))
          return JSON.stringify((await answer)['error'] ?? null).replaceAll(sessionId, 'ID')
        }
        for (const [method, scope] of Object.entries(needed)) {
          const told = await tried(method, id)
          const place = [who, method, told]
          if (SCOPES_ON[who].length === 0) {
            expect(place).toEqual([who, method, await tried(method, 'A'.repeat(id.length))])
            // What was never attached to is refused as such, whoever asks.
            expect(told).toMatch(method === 'session.send' ? /create or resume/ : /session_unknown/)
          } else if (SCOPES_ON[who].includes(scope)) expect(place).toEqual([who, method, 'null'])
          else expect(place).toEqual([who, method, expect.stringContaining('"forbidden"')])
        }
        const { sessions } = await client.request('session.list')
        expect(sessions.some((row: any) => row.sessionId === id)).toBe(
          SCOPES_ON[who].length > 0 && !SCOPES_ON[who].includes('manage'),
        )
      } finally {
        await client.cut()
      }
    }
  })

  it('has a name over the Copilot door that is its principal’s alone', async () => {
    const [owner, asked] = nodes()
    const open = async (server: TestServer, who: string): Promise<RawCopilot> =>
      RawCopilot.open(await copilotPort(server), secretOf(who))
    const [alice, phone, stranger] = [
      await open(owner, 'alice'),
      await open(asked, 'phone'),
      await open(asked, 'stranger'),
    ]
    try {
      const sessionId = `copilot ${Math.random()}`
      await alice.request('session.create', { sessionId })
      await phone.request('session.resume', { sessionId })
      const refused = stranger.request('session.resume', { sessionId })
      await expect(refused).rejects.toMatchObject({ data: { code: 'session_unknown' } })
      // Its own, of the same name.
      await stranger.request('session.create', { sessionId })
      await alice.request('session.send', { sessionId, prompt: 'a secret' })
      await phone.event('session.idle')
      const { events } = await stranger.request('session.getMessages', { sessionId })
      expect(events).toHaveLength(1)
      expect(JSON.stringify(stranger.messages)).not.toContain('a secret')
    } finally {
      await Promise.all([alice, phone, stranger].map((client) => client.cut()))
    }
  })

  it('ends the streams of those with which it is no longer shared', async () => {
    const [owner, asked] = nodes()
    const { path } = await session(owner)
    const headers = { ...bearer('watcher'), accept: 'text/event-stream' }
    const stream = await fetch(`${asked.url}${path}/events`, { headers })
    expect(stream.status).toBe(200)
    await owner.call('DELETE', `${path}/shares/wendy`, { headers: bearer('alice') })
    const text = await stream.text().catch(() => 'cut off')
    expect(text).not.toContain('session.unshared')
    const again = await asked.call('GET', path, { headers: bearer('watcher') })
    expect(again.status).toBe(404)
  })

  it('ends streams and starts no waiting turn when a share is reduced', async () => {
    const [owner, asked] = nodes()
    const headers = bearer('alice')
    const slow = { headers, body: { key: `slow ${Math.random()}`, agent: 'ask' } }
    const { id } = (await owner.call('POST', '/v1/sessions', slow)).body
    const path = `/v1/sessions/${id}`
    const share = (scopes: readonly string[]) =>
      owner.call('POST', `${path}/shares`, { headers, body: { with: 'tom', scopes } })
    await share(['talk'])
    const running = owner.call('POST', `${path}/turns`, { headers, body: { input: 'first' } })
    await until(async () => (await owner.call('GET', path, { headers })).body.running !== null)
    const waiting = asked.call('POST', `${path}/turns`, {
      headers: bearer('talker'),
      body: { input: 'of tom' },
    })
    await until(async () => (await owner.call('GET', path, { headers })).body.queued.length === 1)
    await share(['watch'])
    const { asks } = (await owner.call('GET', `${path}/asks`, { headers })).body
    const answer = { headers, body: { answer: 'deny' } }
    await owner.call('POST', `${path}/asks/${asks[0].id}`, answer)
    expect((await running).status).toBe(200)
    const refused = await waiting
    expect([refused.status, refused.body.code]).toEqual([404, 'session_unknown'])
    const log = await owner.call('GET', `${path}/events`, { headers })
    expect(log.text).not.toContain('of tom')
  })

  it('is passed on by links and shares for no more than their maker may do', async () => {
    const [owner, asked] = nodes()
    const { path } = await session(owner)
    const headers = bearer('keeper')
    for (const route of ['links', 'shares']) {
      const more = route === 'shares' ? { with: 'mallory' } : {}
      const statusFor = async (scope: string): Promise<number> => {
        const call = { headers, body: { scopes: [scope], ...more } }
        return (await asked.call('POST', `${path}/${route}`, call)).status
      }
      expect([route, await statusFor('talk')]).toEqual([route, 403])
      expect([200, 201]).toContain(await statusFor('watch'))
    }
  })

  it('is shared no more when it is closed', async () => {
    const [owner, asked] = nodes()
    const { path } = await session(owner)
    await owner.call('DELETE', path, { headers: bearer('alice') })
    expect((await asked.call('GET', path, { headers: bearer('watcher') })).status).toBe(404)
    const list = await asked.call('GET', '/v1/sessions?limit=500', { headers: bearer('watcher') })
    expect(list.text).not.toContain(path.split('/').at(-1))
    expect((await asked.call('GET', path, { headers: bearer('phone') })).body.state).toBe('closed')
  })

  it('has a key that is its principal’s alone', async () => {
    const [owner, asked] = nodes()
    const ids = await Promise.all(
      (['alice', 'phone', 'stranger', 'admin'] as const).map(async (who, index) => {
        const server = index % 2 === 0 ? owner : asked
        const call = { headers: bearer(who), body: { key: 'the same key' } }
        return (await server.call('POST', '/v1/sessions', call)).body.id as string
      }),
    )
    expect(ids[1]).toBe(ids[0])
    expect(new Set(ids).size).toBe(3)
  })

  it('has a key with a shared prefix for all members of the group, and for no others', async () => {
    const [owner, asked] = nodes()
    const body = { input: 'x' }
    const idOf = async (server: TestServer, who: string): Promise<string> => {
      const call = { headers: bearer(who), body }
      return (await server.call('POST', '/v1/keys/team%2Fplan/turns', call)).body.session
    }
    const [first, second] = [await idOf(owner, 'member'), await idOf(asked, 'member')]
    expect(second).toBe(first)
    expect(await idOf(asked, 'stranger')).not.toBe(first)
    const looked = await asked.call('GET', `/v1/sessions/${first}`, { headers: bearer('member') })
    expect(looked.body).toMatchObject({ principal: '@team', key: 'team/plan' })
  })

  it('is not created under an id of the caller’s choice, nor found by it', async () => {
    const [owner, asked] = nodes()
    const { id } = await session(owner, [])
    const told = new Set<string>()
    for (const chosen of [id, 'B'.repeat(id.length)]) {
      const call = { headers: bearer('stranger'), body: { id: chosen } }
      const answer = await asked.call('POST', '/v1/sessions', call)
      expect([answer.status, answer.body.code]).toEqual([404, 'session_unknown'])
      told.add(toldBy(answer, chosen))
    }
    expect(told.size).toBe(1)
    const own = { headers: bearer('phone'), body: { id } }
    expect((await asked.call('POST', '/v1/sessions', own)).status).toBe(200)
  })

  it('keeps responses and conversations of the OpenAI door from strangers', async () => {
    const [owner, asked] = nodes()
    const headers = bearer('alice')
    const made = await owner.call('POST', '/v1/conversations', { headers, body: {} })
    const conversation = made.body.id as string
    const spoken = { model: 'echo', input: 'a secret', conversation }
    const said = await owner.call('POST', '/v1/responses', { headers, body: spoken })
    expect(said.status).toBe(200)
    const foreign = bearer('stranger')
    for (const path of [
      `/v1/conversations/${conversation}`,
      `/v1/conversations/${conversation}/items`,
      `/v1/conversations/${conversation}/items/${said.body.output[0].id}`,
      `/v1/responses/${said.body.id}`,
      `/v1/responses/${said.body.id}?stream=true`,
      `/v1/responses/${said.body.id}/input_items`,
    ]) {
      const answer = await asked.call('GET', path, { headers: foreign })
      expect([path, answer.status]).toEqual([path, 404])
      expect(JSON.stringify(answer.body)).not.toContain('a secret')
      expect((await asked.call('GET', path, { headers: bearer('phone') })).status).toBe(200)
    }
    // A response that never was is refused in the same words, with the same headers.
    const id = String(said.body.id).slice('resp_'.length, -'_t2'.length)
    const unknown = said.body.id.replace(id, 'A'.repeat(id.length))
    const [there, nowhere] = await Promise.all(
      [said.body.id, unknown].map((each) =>
        asked.call('GET', `/v1/responses/${each}`, { headers: foreign }),
      ),
    )
    expect(toldBy(there!, id)).toBe(toldBy(nowhere!, 'A'.repeat(id.length)))
    const follow = { model: 'echo', input: 'x', previous_response_id: said.body.id }
    const taken = await asked.call('POST', '/v1/responses', { headers: foreign, body: follow })
    expect(taken.status).toBe(404)
    // So are an item of another, and one that never was.
    const item = said.body.output[0].id as string
    const told = await Promise.all(
      [item, item.replace(id, 'A'.repeat(id.length))].map(async (each) => {
        const input = [
          { type: 'item_reference', id: each },
          { role: 'user', content: 'x' },
        ]
        const body = { model: 'echo', input }
        const answer = await asked.call('POST', '/v1/responses', { headers: foreign, body })
        expect(answer.status).toBe(404)
        return toldBy(answer, each)
      }),
    )
    expect(told[0]).toBe(told[1])
    const joined = { model: 'echo', input: 'x', conversation }
    const other = await asked.call('POST', '/v1/responses', { headers: foreign, body: joined })
    expect(other.status).toBe(404)
  })
})

it('lets go of a session when its last client has left without a word', async () => {
  const limits = { idleSessionsMax: 0 }
  const server = await serve({ agents: builtinAgents, limits, tokens: await servers.files.open() })
  const { id } = await session(server, [])
  const client = dial(server.url, {
    auth: { token: secretOf('alice') },
    session: id,
    role: 'watcher',
  })
  await client.frame('welcome')
  await client.cut()
  await until(() => {
    server.holdfast.authority.trim()
    return server.holdfast.authority.heldCount === 0
  })
  await server.close()
})

it('ends what a token let in when it has lost a group or admin', async () => {
  const write = (groups: readonly string[], scopes: readonly string[]) =>
    servers.files.write('changing.json', [
      tokenEntry('alice', CALLERS.alice),
      tokenEntry('member', { ...CALLERS.member, groups }),
      tokenEntry('admin', { principal: 'root', scopes }),
    ])
  const changing = await write(['team'], ['admin'])
  const server = await serve({ agents: builtinAgents, tokens: await openTokenFile(changing) })
  const { path } = await session(server)
  const streams = await Promise.all(
    ['member', 'admin'].map((who) =>
      fetch(`${server.url}${path}/events`, {
        headers: { ...bearer(who), accept: 'text/event-stream' },
      }),
    ),
  )
  expect(streams.map(({ status }) => status)).toEqual([200, 200])
  await write([], ['talk'])
  // Each ends, or is cut off.
  await Promise.all(streams.map((stream) => stream.text().catch(() => 'cut off')))
  await server.close()
})

describe('a token that is limited to some agents', () => {
  it('knows no others', async () => {
    const entries = [
      tokenEntry('limited', { scopes: ['talk'], agents: ['echo'] }),
      tokenEntry('without', { scopes: ['talk'], agents: [] }),
    ]
    const limited = await servers.files.write('limited.json', entries)
    const server = await serve({
      ...{ agents: builtinAgents, defaultAgent: 'slow' },
      tokens: await openTokenFile(limited),
    })
    const call = { headers: bearer('limited'), body: { agent: 'slow', input: 'x' } }
    const refused = await server.call('POST', '/v1/keys/k/turns', call)
    expect([refused.status, refused.body.code]).toEqual([422, 'agent_unknown'])
    expect(refused.body.detail).not.toContain('ask')
    // By its key, too, a session of another agent runs no turn for it.
    await server.holdfast.resolve({ key: 'other', agent: 'slow' })
    const byKey = { headers: bearer('limited'), body: { input: 'x' } }
    expect((await server.call('POST', '/v1/keys/other/turns', byKey)).status).toBe(403)
    const models = await server.call('GET', '/v1/models', { headers: bearer('limited') })
    expect(models.body.data.map(({ id }: any) => id)).toEqual(['echo'])
    // Its sessions have an agent that it may use, and the default one is not named to it.
    const bodies = { sessions: {}, 'keys/mine/turns': { input: 'x' }, conversations: {} }
    for (const [path, body] of Object.entries(bodies)) {
      for (const who of ['limited', 'without']) {
        const made = await server.call('POST', `/v1/${path}`, { headers: bearer(who), body })
        const isMade = made.status < 300
        expect([path, who, isMade]).toEqual([path, who, who === 'limited'])
        expect(made.text).not.toContain('slow')
      }
    }
    await server.close()
  })
})
