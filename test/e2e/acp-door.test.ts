/** The ACP door, tried by the protocol's own library over WebSockets. */
import { builtinAgents } from 'holdfast'
import { afterEach, describe, expect, it } from 'vitest'
import type { Agent } from '../../src/runners/function.ts'
import { selected, StockClient, type StockOptions } from '../support/acp-client.ts'
import { until } from '../support/gate.ts'
import { serve, type TestServer, type TestServerOptions } from '../support/server.ts'

let server: TestServer
const clients: StockClient[] = []

async function start(options: TestServerOptions = {}): Promise<void> {
  server = await serve({ agents: { ...builtinAgents, worker, steps }, ...options })
}

async function connect(options: StockOptions = {}): Promise<StockClient> {
  const client = await StockClient.connect(server.url, options)
  clients.push(client)
  return client
}

afterEach(async () => {
  for (const client of clients.splice(0)) client.close()
  await server.close()
})

const activity = (kind: string, data: object) => ({ type: 'activity' as const, kind, data })

/** Does everything that an agent can tell of. */
const worker: Agent = async function* () {
  yield activity('thought', { text: 'let me see' })
  const plan = [{ content: 'look', priority: 'high', status: 'pending' }]
  yield activity('plan', { entries: plan })
  yield { type: 'message', text: 'I look. ' }
  yield activity('tool', {
    id: 'c1',
    name: 'grep',
    kind: 'read',
    status: 'running',
    input: { q: 1 },
  })
  yield activity('tool', { id: 'c1', status: 'done', output: 'found' })
  const diff = [{ path: '/a', before: null, after: 'x' }]
  yield activity('tool', { id: 'c2', title: 'write', kind: 'edit', status: 'running', diff })
  yield activity('commands', { commands: [{ name: 'web', description: 'search', hint: 'what' }] })
  yield activity('usage', {
    inputTokens: 1,
    outputTokens: 1,
    contextUsed: 5,
    contextSize: 50,
    costUsd: 0.5,
  })
  yield activity('stop', { reason: 'max_tokens' })
  yield 'Two.'
}

let step: (() => void) | null = null
/** Says a word for each step that the test lets it make. */
const steps: Agent = async function* ({ text }, { signal }) {
  for (const word of text.split(' ')) {
    yield `${word} `
    await new Promise<void>((resolve) => {
      step = resolve
      signal.addEventListener('abort', () => resolve())
    })
    step = null
  }
}
async function takeStep(): Promise<void> {
  await until(() => step !== null)
  step?.()
}

const session = { cwd: '/', mcpServers: [] }

describe('a stock client', () => {
  it('prompts a session, which others have by its key', async () => {
    await start()
    const one = await connect()
    const id = await one.open({ key: 'shared', agent: 'echo' })
    expect(await one.prompt(id, 'hello')).toMatchObject({ stopReason: 'end_turn' })
    await until(() => one.said() === 'hello')
    expect(one.kinds()).not.toContain('user_message_chunk')
    const other = await connect({ query: '?key=shared' })
    expect(await other.open()).toBe(id)
    await server.post(`/v1/keys/shared/turns`, { input: 'from HTTP' })
    await until(() => one.said() === 'hellofrom HTTP' && other.said() === 'from HTTP')
    expect(other.said('user_message_chunk')).toBe('from HTTP')
    const state = await (await server.holdfast.find('shared'))?.state()
    expect(state).toMatchObject({ id, turns: 2, labels: { 'acp.cwd': '/' } })
  })

  it('is told all that an agent does, live and when it loads the session', async () => {
    await start()
    const one = await connect()
    const id = await one.open({ agent: 'worker' })
    expect(await one.prompt(id, 'work')).toMatchObject({
      stopReason: 'max_tokens',
      _meta: { holdfast: { turn: expect.any(String), usage: { inputTokens: 1 } } },
    })
    // The library delivers an answer before the updates that came before it.
    await until(() => one.said() === 'I look. Two.')
    const told = one.updates.map(({ update }) => update)
    const text = (words: string) => ({ content: { type: 'text', text: words } })
    expect(told).toMatchObject([
      { sessionUpdate: 'agent_thought_chunk', ...text('let me see') },
      {
        sessionUpdate: 'plan',
        entries: [{ content: 'look', priority: 'high', status: 'pending' }],
      },
      { sessionUpdate: 'agent_message_chunk', ...text('I look. ') },
      {
        sessionUpdate: 'tool_call',
        toolCallId: 'c1',
        title: 'grep',
        kind: 'read',
        status: 'in_progress',
        rawInput: { q: 1 },
      },
      {
        sessionUpdate: 'tool_call_update',
        toolCallId: 'c1',
        status: 'completed',
        rawOutput: 'found',
      },
      {
        sessionUpdate: 'tool_call',
        toolCallId: 'c2',
        content: [{ type: 'diff', path: '/a', oldText: null, newText: 'x' }],
      },
      {
        sessionUpdate: 'available_commands_update',
        availableCommands: [{ name: 'web', input: { hint: 'what' } }],
      },
      { sessionUpdate: 'usage_update', used: 5, size: 50, cost: { amount: 0.5, currency: 'USD' } },
      { sessionUpdate: 'agent_message_chunk', ...text('Two.') },
    ])
    const other = await connect()
    await other.request('session/load', { sessionId: id, ...session })
    expect(other.said('user_message_chunk')).toBe('work')
    await until(() => other.said() === 'I look. Two.')
    const replayed = other.updates.map(({ update }) => update.sessionUpdate)
    expect(replayed).toEqual(['user_message_chunk', ...told.map((u) => u.sessionUpdate)])
  })

  it('has its prompts queued, and each is answered after its own words', async () => {
    await start()
    const [one, two] = [await connect(), await connect()]
    const id = await one.open({ key: 'lane', agent: 'steps' })
    await two.open({ key: 'lane' })
    const order: string[] = []
    const prompt = (client: StockClient, text: string) =>
      client.prompt(id, text).then(() => void order.push(`${text}: ${client.said()}`))
    const first = prompt(one, 'a')
    await until(() => one.said() === 'a ')
    const second = prompt(two, 'b')
    await takeStep()
    await first
    await takeStep()
    await second
    expect(order).toEqual(['a: a ', 'b: a b '])
    expect(one.said('user_message_chunk')).toBe('b')
    expect(two.said('user_message_chunk')).toBe('a')
  })

  it('cancels its own prompts, and what another one runs if it has none', async () => {
    await start()
    const [one, two] = [await connect(), await connect()]
    const id = await one.open({ key: 'lane', agent: 'steps' })
    await two.open({ key: 'lane' })
    const running = one.prompt(id, 'a')
    await until(() => two.said() === 'a ')
    const waiting = two.prompt(id, 'b')
    await until(async () => (await server.holdfast.session(id).state()).queued.length === 1)
    await two.notify('session/cancel', { sessionId: id })
    expect(await waiting).toMatchObject({ stopReason: 'cancelled' })
    await two.notify('session/cancel', { sessionId: id })
    expect(await running).toMatchObject({ stopReason: 'cancelled' })
  })
})

describe('a permission', () => {
  it('is asked of all that may answer, the first answer counts, and the others are told', async () => {
    await start()
    const [one, two] = [await connect(), await connect()]
    const watcher = await connect({ query: '?role=watcher' })
    const id = await one.open({ key: 'k', agent: 'ask' })
    await two.open({ key: 'k' })
    await watcher.open({ key: 'k' })
    const prompt = one.prompt(id, 'x')
    const [first, second] = [await one.nextAsk(), await two.nextAsk()]
    expect(first.params).toMatchObject({
      options: [
        { optionId: 'allow', kind: 'allow_once' },
        { optionId: 'deny', kind: 'reject_once' },
      ],
      toolCall: { title: 'May I say "x"?', kind: 'execute', content: [{}, { type: 'diff' }] },
    })
    second.answer(selected('allow'))
    expect(await prompt).toMatchObject({ stopReason: 'end_turn' })
    await until(() => first.isCancelled())
    expect(watcher.asked).toEqual([])
    await until(() => watcher.said() === 'x')
  })
})
