/** The ACP door on two nodes with one database: clients at the wrong node, and a node that goes. */
import { builtinAgents, HoldfastError } from 'holdfast'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Agent } from '../../src/runners/function.ts'
import { selected, StockClient, type StockOptions } from '../support/acp-client.ts'
import { shimHere } from '../support/acp-shim.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { serve, type TestServer } from '../support/server.ts'

let database: TestDatabase
let far: TestServer
let near: TestServer
const ends: (() => unknown)[] = []

/** Never ends by itself. */
const waits: Agent = async function* (_, { signal }) {
  yield 'waiting '
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
}

beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

async function start(): Promise<void> {
  const options = { store: database.freshUrl(), isNode: true, agents: { ...builtinAgents, waits } }
  far = await serve(options)
  near = await serve(options)
}

async function connect(server: TestServer, options: StockOptions = {}): Promise<StockClient> {
  const client = await StockClient.connect(server.url, options)
  ends.push(() => client.close())
  return client
}

afterEach(async () => {
  for (const end of ends.splice(0)) await end()
  await Promise.all([near.close(), far.close()])
})

/** The owner has lost the session and lives on, as after a standstill. */
async function letGo({ holdfast: { authority } }: TestServer, id: string): Promise<void> {
  const live = await authority.open(id)
  live.release(new HoldfastError('stale_epoch', 'it has moved'))
  const claim = await authority.store.claim(id, authority.node)
  if (claim.type === 'claimed') await authority.store.release(id, claim.epoch ?? 0)
}

describe('at the node that does not own the session', () => {
  it('a client has all that one at the owner has', async () => {
    await start()
    const [owner, other] = [await connect(far), await connect(near)]
    const id = await owner.open({ key: 'k', agent: 'ask' })
    expect(await other.open({ key: 'k' })).toBe(id)
    const prompt = other.prompt(id, 'x')
    const [first, second] = [await owner.nextAsk(), await other.nextAsk()]
    second.answer(selected('allow'))
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' })
    await until(() => first.isCancelled() && owner.said() === 'x' && other.said() === 'x')
    expect(owner.said('user_message_chunk')).toBe('x')
    // A session of its own is on its own node, on the same connection.
    const own = await other.open({ agent: 'echo' })
    await other.prompt(own, 'here')
    await until(() => other.said('agent_message_chunk', own) === 'here')
    const there = await owner.open({ key: 'w', agent: 'waits' })
    await other.request('session/load', { sessionId: there, cwd: '/', mcpServers: [] })
    const long = other.prompt(there, 'y')
    await until(() => other.said().endsWith('waiting '))
    await other.notify('session/cancel', { sessionId: there })
    expect(await long).toMatchObject({ stopReason: 'cancelled' })
    await other.request('session/close', { sessionId: id })
    await other.request('session/delete', { sessionId: id })
    const { sessions } = await owner.request('session/list', {})
    expect(sessions.map(({ sessionId }: any) => sessionId)).not.toContain(id)
  })

  it('a session that has moved since is found at its new owner', async () => {
    await start()
    const [owner, other] = [await connect(far), await connect(near)]
    const id = await owner.open({ key: 'k', agent: 'echo' })
    expect(await other.open({ key: 'k' })).toBe(id)
    await owner.request('session/close', { sessionId: id })
    await other.request('session/close', { sessionId: id })
    const load = { sessionId: id, cwd: '/', mcpServers: [] }
    // It is not open then, but the node that has refused it is known.
    const ahead = { ...load, _meta: { holdfast: { at: '1.99.0.0' } } }
    await expect(other.request('session/resume', ahead)).rejects.toMatchObject({
      data: { code: 'ahead' },
    })
    await letGo(far, id)
    expect(await near.holdfast.session(id).state()).toMatchObject({ id })
    await other.request('session/load', load)
    expect(await other.prompt(id, 'here')).toMatchObject({ stopReason: 'end_turn' })
    await until(() => other.said() === 'here')
  })

  it('a client over HTTP has all that, whichever node its requests come to', async () => {
    await start()
    // A load balancer that knows nothing of connections.
    let requests = 0
    const anyNode: typeof fetch = (input, init) => {
      requests += 1
      const { port } = requests % 2 === 0 ? near.server : far.server
      const url = new URL(input instanceof Request ? input.url : input)
      url.port = String(port)
      return fetch(url, init)
    }
    const owner = await connect(far)
    const id = await owner.open({ key: 'k', agent: 'ask' })
    const other = await connect(near, { transport: 'http', fetch: anyNode })
    expect(await other.open({ key: 'k' })).toBe(id)
    const prompt = other.prompt(id, 'x')
    const [first, second] = [await owner.nextAsk(), await other.nextAsk()]
    second.answer(selected('allow'))
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' })
    await until(() => first.isCancelled() && owner.said() === 'x' && other.said() === 'x')
    const there = await owner.open({ key: 'w', agent: 'waits' })
    await other.request('session/load', { sessionId: there, cwd: '/', mcpServers: [] })
    const long = other.prompt(there, 'y')
    await until(() => other.said().endsWith('waiting '))
    await other.notify('session/cancel', { sessionId: there })
    expect(await long).toMatchObject({ stopReason: 'cancelled' })
    const running = other.prompt(there, 'z').catch(() => null)
    await until(() => other.said().endsWith('waiting waiting '))
    // The node that has its session is told when one of its streams is cut.
    const { attachments } = (await far.holdfast.authority.open(there)).session
    expect(attachments).toHaveLength(2)
    other.cutStream(there)
    await until(async () => {
      const { session } = await far.holdfast.authority.open(there)
      return session.attachments.some(({ state }) => state === 'detached')
    })
    await running
    await other.request('session/load', { sessionId: there, cwd: '/', mcpServers: [] })
    await until(() => other.said('user_message_chunk', there).endsWith('z'))
    expect((await other.request('session/list', {})).sessions).toHaveLength(2)
  })

  it('an editor on stdio goes on when the owner has gone', async () => {
    await start()
    const session = await far.holdfast.resolve({ key: 'k', agent: 'waits' })
    const { client, close } = shimHere(near.url)
    ends.push(close)
    await client.initialize()
    const id = await client.open({ key: 'k' })
    expect(id).toBe(session.id)
    const cut = client.prompt(id, 'one').catch((error: unknown) => error)
    await until(() => client.said() === 'waiting ')
    await far.close()
    expect(await cut).toMatchObject({ data: { code: 'interrupted' } })
    const next = client.prompt(id, 'two')
    await until(() => client.said() === 'waiting waiting ')
    await client.notify('session/cancel', { sessionId: id })
    expect(await next).toMatchObject({ stopReason: 'cancelled' })
    expect(client.said('user_message_chunk')).toBe('')
  })
})
