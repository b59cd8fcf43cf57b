/** The Copilot door of a node that does not own the session: everything works through it too. */
import { join } from 'node:path'
import type { Agent } from 'holdfast'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { withIncluded, type Caller } from '../../src/core/access.ts'
import { openGate } from '../../src/doors/connect/socket.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { until } from '../support/gate.ts'
import { secretOf, TokenFiles } from '../support/principals.ts'
import { ROOT } from '../support/repository.ts'
import { RawCopilot } from '../support/raw-copilot.ts'
import { serve, type TestServer } from '../support/server.ts'

let files: TokenFiles
let database: TestDatabase
let store: string
let nodes: TestServer[]
const clients: RawCopilot[] = []

const ALICE: Caller = {
  by: { kind: 'token', issuer: 'holdfast', id: 'alice' },
  access: { principal: 'alice', groups: [], scopes: withIncluded(['talk', 'answer', 'manage']) },
}
const witness: Agent = async ({ text }) => `said ${text}`
const curious: Agent = async (_turn, { ask }) => {
  const outcome = await ask({ kind: 'question', question: 'Which?' })
  return outcome.outcome === 'answered' ? String(outcome.answer) : outcome.outcome
}
const permitted: Agent = async (_turn, { ask }) => {
  const options = ['allow', 'deny']
  const outcome = await ask({ kind: 'permission', question: 'May I?', options })
  return outcome.outcome === 'answered' ? String(outcome.answer) : outcome.outcome
}

async function node(): Promise<TestServer> {
  const agents = { witness, curious, permitted }
  return serve({ store, isNode: true, agents, tokens: await files.open() })
}

beforeAll(async () => {
  ;[files, database] = await Promise.all([TokenFiles.make(), openTestDatabase()])
  store = database.freshUrl()
  nodes = [await node(), await node()]
})
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.cut()))
})
afterAll(async () => {
  await Promise.all(nodes.map((one) => one.close()))
  await database.close()
  await files.remove()
})

const ports = new Map<TestServer, Promise<number>>()

async function open(index: number, who = 'alice'): Promise<RawCopilot> {
  const server = nodes[index]!
  const port = ports.get(server) ?? server.server.listenCopilot(0)
  ports.set(server, port)
  const client = await RawCopilot.open(await port, secretOf(who))
  clients.push(client)
  return client
}

let count = 0
const fresh = (): string => `clustered ${(count += 1)}`

async function reply(client: RawCopilot, sessionId: string, prompt: string): Promise<string> {
  const from = client.messages.length
  const isOwn = ({ method, params }: any): boolean =>
    method === 'session.event' && params.sessionId === sessionId
  const idle = client.message(
    (one) => isOwn(one) && one['params'].event.type === 'session.idle',
    from,
  )
  await client.request('session.send', { sessionId, prompt })
  await idle
  const events = client.messages
    .slice(from)
    .filter(isOwn)
    .map(({ params }) => params.event)
  return events.findLast(({ type }) => type === 'assistant.message').data.content
}

describe('a client of the node that does not own its session', () => {
  it('uses it like one of the owner, at the same time', async () => {
    const [near, far] = [await open(0), await open(1, 'phone')]
    const sessionId = fresh()
    await near.request('session.create', { sessionId })
    await far.request('session.resume', { sessionId })
    expect(nodes[1]?.server.copilotCounts.attached).toBe(0)
    for (let round = 0; round < 5; round += 1) {
      const texts = [`near ${round}`, `far ${round}`] as const
      const [one, other] = [reply(near, sessionId, texts[0]), reply(far, sessionId, texts[1])]
      expect(await Promise.all([one, other])).toEqual(texts.map((text) => `said ${text}`))
    }
    const [here, there] = await Promise.all(
      [near, far].map((client) => client.request('session.getMessages', { sessionId })),
    )
    expect(there).toEqual(here)
  })

  it('has sessions on both nodes on one connection', async () => {
    const [near, far] = [await open(0), await open(1)]
    const [first, second] = [fresh(), fresh()]
    await near.request('session.create', { sessionId: first })
    await far.request('session.create', { sessionId: second })
    await far.request('session.resume', { sessionId: first })
    const replies = [reply(far, first, 'one'), reply(far, second, 'other')]
    expect(await Promise.all(replies)).toEqual(['said one', 'said other'])
    const { sessions } = await far.request('session.list')
    const names = sessions.map((row: any) => row.sessionId)
    expect(names).toEqual(expect.arrayContaining([first, second]))
  })

  it('is asked, and answers', async () => {
    const [near, far] = [await open(0), await open(1)]
    const sessionId = fresh()
    await near.request('session.create', { sessionId, agent: 'curious' })
    await far.request('session.resume', { sessionId, requestUserInput: true })
    far.handlers['userInput.request'] = () => ({ answer: 'this one', wasFreeform: true })
    expect(await reply(far, sessionId, 'ask')).toBe('this one')
    const other = fresh()
    await near.request('session.create', { sessionId: other, agent: 'permitted' })
    await far.request('session.resume', { sessionId: other, requestPermission: true })
    const said = reply(far, other, 'ask')
    const { requestId } = (await far.event('permission.requested')).data
    const result = { kind: 'approve-once' }
    const params = { sessionId: other, requestId, result }
    await far.request('session.permissions.handlePendingPermissionRequest', params)
    expect(await said).toBe('allow')
  })

  it('leaves, comes back, aborts and deletes', async () => {
    const [near, far] = [await open(0), await open(1)]
    const sessionId = fresh()
    await near.request('session.create', { sessionId })
    await far.request('session.resume', { sessionId })
    expect(await far.request('session.detach', { sessionId })).toEqual({ success: true })
    const send = far.request('session.send', { sessionId, prompt: 'x' })
    await expect(send).rejects.toMatchObject({ data: { code: 'attachment_unknown' } })
    await far.request('session.resume', { sessionId })
    expect(await far.request('session.abort', { sessionId })).toEqual({ success: true })
    expect(await far.request('session.delete', { sessionId })).toEqual({ success: true })
    await near.event('session.shutdown')
    await expect(far.request('session.resume', { sessionId })).rejects.toMatchObject({
      data: { code: 'session_unknown' },
    })
  })

  it('leaves nothing behind at the owner when it is gone', async () => {
    const [near, far] = [await open(0), await open(1)]
    const sessionId = fresh()
    await near.request('session.create', { sessionId })
    const before = nodes[0]!.server.copilotCounts
    await far.request('session.resume', { sessionId })
    expect(nodes[0]!.server.copilotCounts.attached).toBe(before.attached + 1)
    await far.cut()
    await until(() => nodes[0]!.server.copilotCounts.attached === before.attached)
    await until(() => nodes[0]!.server.copilotCounts.connections === before.connections)
  })

  it('gets to the owner also if the session has moved since the owner was looked for', async () => {
    const near = await open(0)
    const sessionId = fresh()
    await near.request('session.create', { sessionId })
    // Of the package, as the nodes are.
    const { CopilotDoor } = await import(join(ROOT, 'dist/doors/copilot/door.js'))
    const opened: string[] = []
    const forwarder = {
      // What was known a moment ago.
      ownerElsewhere: async () => null,
      open: (to: string, { hello }: { hello: string }) => {
        opened.push(to, JSON.parse(hello).method)
        return { send: () => undefined, close: () => undefined }
      },
    }
    const holdfast = nodes[1]!.holdfast.as(ALICE.by, ALICE.access)
    const gate = { ...openGate, callerOf: () => ALICE }
    const door = new CopilotDoor({ holdfast, gate, forwarder })
    const ignore = (): void => undefined
    const socket = { address: '::1', bufferedBytes: 0, send: ignore, close: ignore, cut: ignore }
    const connection = door.connect(socket)
    const say = (id: number, method: string, params: object): void =>
      connection.receive(JSON.stringify({ jsonrpc: '2.0', id, method, params }))
    say(1, 'connect', {})
    await until(() => connection.isAdmitted)
    say(2, 'session.resume', { sessionId })
    await until(() => opened.length > 0)
    expect(opened).toEqual([nodes[0]!.holdfast.authority.node, 'connect'])
    door.close()
  })

  it('is cut when the owner stops, and goes on at the node that it comes back to', async () => {
    const [near, far] = [await open(0), await open(1)]
    const sessionId = fresh()
    await near.request('session.create', { sessionId })
    await far.request('session.resume', { sessionId })
    expect(await reply(far, sessionId, 'before')).toBe('said before')
    await nodes[0]!.close()
    await far.closed
    const again = await open(1)
    await again.request('session.resume', { sessionId })
    expect(await reply(again, sessionId, 'after')).toBe('said after')
    const { events } = await again.request('session.getMessages', { sessionId })
    const said = events.filter(({ type }: any) => type === 'user.message')
    expect(said.map(({ data }: any) => data.content)).toEqual(['before', 'after'])
  })
})
