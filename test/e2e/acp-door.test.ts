/** The ACP door, tried by the protocol's own library over WebSockets. */
import { builtinAgents } from 'holdfast'
import { afterEach, describe, expect, it } from 'vitest'
import { NO_CAPABILITIES } from '../../src/core/index.ts'
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

  it('is answered by another when its controller is killed', async () => {
    await start()
    const [one, two] = [await connect(), await connect()]
    const id = await one.open({ key: 'k', agent: 'ask' })
    await two.open({ key: 'k' })
    const prompt = one.prompt(id, 'x').catch(() => null)
    await one.nextAsk()
    one.kill()
    const ask = await two.nextAsk()
    ask.answer(selected('allow'))
    await prompt
    await until(() => two.said() === 'x')
  })

  it.each(['wait', 'deny'])(
    'waits while all are gone (%s), and is asked again',
    async (onNobody) => {
      const agent: Agent = async (_, context) => {
        const question = { kind: 'permission', question: 'May I?', options: ['yes'] }
        const { outcome } = await context.ask({ ...question, onNobody: onNobody as 'wait' })
        return outcome
      }
      await start({ agents: { agent } })
      const one = await connect()
      const id = await one.open({ key: 'k' })
      void one.prompt(id, 'x').catch(() => null)
      await one.nextAsk()
      one.kill()
      const live = await server.holdfast.authority.open(id)
      await until(() => live.session.attachments.every(({ state }) => state === 'detached'))
      const back = await connect()
      await back.request('session/load', { sessionId: id, ...session })
      ;(await back.nextAsk()).answer(selected('yes'))
      await until(() => back.said() === 'answered')
    },
  )

  it('does not wait for clients that only look on', async () => {
    const agent: Agent = async (_, context) => {
      const question = { kind: 'permission', question: 'May I?', onNobody: 'deny' as const }
      return (await context.ask(question)).outcome
    }
    await start({ agents: { agent } })
    const watcher = await connect({ query: '?role=watcher' })
    const id = await watcher.open({ key: 'k' })
    await server.post('/v1/keys/k/turns', { input: 'x' })
    await until(() => watcher.said('agent_message_chunk', id) === 'nobody_to_ask')
    await expect(watcher.prompt(id, 'x')).rejects.toMatchObject({ data: { code: 'forbidden' } })
    const { seq } = await server.holdfast.session(id).state()
    const { events } = await server.holdfast.session(id).read(0, seq)
    expect(events.filter(({ body }) => body.includes('attachment'))).toEqual([])
  })

  it('is asked as a form where only that can have the answer, of clients that take forms', async () => {
    const agent: Agent = async (_, context) => {
      const free = await context.ask({ kind: 'question', question: 'Why?' })
      const options = [
        { id: 'r', label: 'Red' },
        { id: 'g', label: 'Green' },
      ]
      const several = { kind: 'question', question: 'Which?', options }
      const chosen = await context.ask({ ...several, accepts: ['several', 'text'] })
      return JSON.stringify([free, chosen].map((one) => 'answer' in one && one.answer))
    }
    await start({ agents: { agent } })
    const form = { clientCapabilities: { elicitation: { form: {} } } }
    const [one, plain] = [await connect({ initialize: form }), await connect()]
    const id = await one.open({ key: 'k' })
    await plain.open({ key: 'k' })
    const prompt = one.prompt(id, 'x')
    const why = await one.nextAsk()
    expect(why).toMatchObject({
      method: 'elicitation/create',
      params: { mode: 'form', message: 'Why?' },
    })
    why.answer({ action: 'accept', content: { text: 'so' } })
    const which = await one.nextAsk()
    expect(which.params.requestedSchema.properties.answer.items.anyOf[1]).toEqual({
      const: 'g',
      title: 'Green',
    })
    which.answer({ action: 'accept', content: { answer: ['g'] } })
    await prompt
    await until(() => one.said() === '["so",["g"]]')
    expect(plain.asked.map(({ params }) => params.toolCall.title)).toEqual(['Which?'])
  })
})

describe('control of an exclusive session', () => {
  it('is with one client at a time, is taken and given, and observers see everything', async () => {
    await start()
    const [one, two] = [await connect(), await connect()]
    const id = await one.open({ key: 'k', agent: 'echo', exclusive: true })
    const { _meta } = await two.request('session/load', { sessionId: id, ...session })
    expect(_meta.holdfast.role).toBe('watcher')
    await expect(two.prompt(id, 'x')).rejects.toMatchObject({ data: { code: 'forbidden' } })
    const control = (client: StockClient, role: string, take = false): Promise<any> =>
      client.request('_holdfast/control', { sessionId: id, role, take })
    await expect(control(two, 'driver')).rejects.toMatchObject({
      data: { code: 'in_use', retry: true },
    })
    expect(await control(two, 'driver', true)).toEqual({ role: 'driver' })
    await until(() => one.kinds().includes('session_info_update'))
    await expect(one.prompt(id, 'x')).rejects.toMatchObject({ data: { code: 'forbidden' } })
    await two.prompt(id, 'from two')
    await until(() => one.said() === 'from two')
    expect(await control(two, 'watcher')).toEqual({ role: 'watcher' })
    expect(await control(one, 'driver')).toEqual({ role: 'driver' })
    await one.prompt(id, ' and one')
    await until(() => two.said() === 'from two and one')
  })
})

describe('a session', () => {
  it('is listed, left by close, and gone by delete', async () => {
    await start()
    const one = await connect()
    const folder = { ...session, cwd: '/work' }
    const { sessionId: id } = await one.request('session/new', folder)
    const other = await one.open({ key: 'other' })
    const list = async (params: object = {}): Promise<string[]> =>
      (await one.request('session/list', params)).sessions.map(
        (info: any) => `${info.sessionId} ${info.cwd}`,
      )
    expect(await list()).toEqual([`${other} /`, `${id} /work`])
    expect(await list({ cwd: '/work' })).toEqual([`${id} /work`])
    await one.request('session/close', { sessionId: id })
    await expect(one.prompt(id, 'x')).rejects.toMatchObject({
      data: { code: 'attachment_unknown' },
    })
    expect((await server.holdfast.session(id).state()).closed).toBeNull()
    await one.request('session/resume', { sessionId: id, ...session })
    await one.prompt(id, 'x')
    await one.request('session/delete', { sessionId: id })
    expect(await list()).toEqual([`${other} /`])
    await expect(one.prompt(id, 'x')).rejects.toMatchObject({ data: { code: 'session_erased' } })
  })

  it('takes prompts without a name as new ones, whenever it was opened again', async () => {
    await start()
    const named = { initialize: { _meta: { holdfast: { client: 'editor-one' } } } }
    const one = await connect(named)
    const id = await one.open({ key: 'k' })
    await one.prompt(id, 'x')
    await one.request('session/close', { sessionId: id })
    await one.request('session/resume', { sessionId: id, ...session })
    await one.prompt(id, 'y')
    one.close()
    const again = await connect(named)
    await again.open({ key: 'k' })
    await again.prompt(id, 'x')
    expect((await server.holdfast.session(id).state()).turns).toBe(3)
  })

  it('is attached to once by a connection that opens it again, and its prompt goes on', async () => {
    await start()
    const one = await connect()
    const id = await one.open({ key: 'k', agent: 'steps' })
    const running = one.prompt(id, 'a')
    await until(() => one.said() === 'a ')
    const live = async (): Promise<number> =>
      (await server.holdfast.session(id).state()).attachments.filter(
        ({ state }) => state === 'live',
      ).length
    expect(await one.open({ key: 'k' })).toBe(id)
    await one.request('session/load', { sessionId: id, ...session })
    await until(() => one.said('user_message_chunk') === 'a')
    expect(await live()).toBe(1)
    await takeStep()
    expect(await running).toMatchObject({ stopReason: 'end_turn' })
    expect(one.said()).toBe('a ')
    // Two that come together leave one place as well, which ends with the connection.
    const two = await connect()
    await Promise.all([1, 2].map(() => two.request('session/load', { sessionId: id, ...session })))
    await until(async () => (await live()) === 2)
    two.close()
    await until(async () => (await live()) === 1)
    // And one that is refused leaves none.
    const ahead = { sessionId: id, ...session, _meta: { holdfast: { at: '1.99.0.0' } } }
    const three = await connect()
    await expect(three.request('session/resume', ahead)).rejects.toMatchObject({
      data: { code: 'ahead' },
    })
    await until(async () => (await live()) === 1)
  })

  it('has modes and models that are chosen, for all that have it open', async () => {
    const capabilities = {
      ...NO_CAPABILITIES,
      settings: ['mode', 'model'],
      modes: ['ask', 'plan'],
      models: ['big'],
    }
    const says: Agent = async (_, { settings }) => JSON.stringify(settings)
    await start({ agents: { agent: Object.assign(says, { capabilities }) as Agent } })
    const [one, two] = [await connect(), await connect()]
    const opened = await one.request('session/new', {
      ...session,
      _meta: { holdfast: { key: 'k' } },
    })
    const id = opened.sessionId as string
    expect(opened).toMatchObject({
      modes: {
        currentModeId: 'unset',
        availableModes: [{ id: 'unset' }, { id: 'ask' }, { id: 'plan' }],
      },
      configOptions: [
        { id: 'mode', currentValue: 'unset' },
        { id: 'model', options: [{}, { value: 'big' }] },
      ],
    })
    await two.open({ key: 'k' })
    await one.request('session/set_mode', { sessionId: id, modeId: 'plan' })
    const option = { sessionId: id, configId: 'model', value: 'big' }
    expect(await one.request('session/set_config_option', option)).toMatchObject({
      configOptions: [{ currentValue: 'plan' }, { currentValue: 'big' }],
    })
    await until(() => two.updates.some(({ update }) => update.currentModeId === 'plan'))
    await one.prompt(id, 'x')
    await until(() => two.said() === '{"mode":"plan","model":"big"}')
    await one.request('session/set_mode', { sessionId: id, modeId: 'unset' })
    await one.prompt(id, 'x')
    await until(() => two.said().endsWith('{"model":"big"}'))
    const wrong = { sessionId: id, configId: 'temperature', value: '1' }
    await expect(one.request('session/set_config_option', wrong)).rejects.toMatchObject({
      data: { code: 'invalid_field' },
    })
  })

  it('takes images and resources where its agent does, and shows images again', async () => {
    const capabilities = { ...NO_CAPABILITIES, images: true, files: true }
    const names: Agent = async ({ parts = [] }) =>
      parts
        .map((part) => (part.type === 'text' ? part.text : `${part.type} ${part.data.length}`))
        .join('|')
    await start({
      agents: {
        agent: Object.assign(names, { capabilities }) as Agent,
        echo: builtinAgents['echo']!,
      },
    })
    const one = await connect()
    const id = await one.open()
    const image = {
      type: 'image',
      mimeType: 'image/png',
      data: Buffer.from('png!').toString('base64'),
    }
    const prompt = [
      { type: 'text', text: 'see' },
      image,
      { type: 'resource_link', name: 'a.ts', uri: 'file:///a.ts' },
      { type: 'resource', resource: { uri: 'file:///b%20c.txt', text: 'hello' } },
    ]
    await one.request('session/prompt', { sessionId: id, prompt })
    await until(() => one.said() === 'see|image 4|[a.ts](file:///a.ts)|file 5')
    const other = await connect()
    await other.request('session/load', { sessionId: id, ...session })
    await until(() => other.said() === one.said())
    const shown = other.updates.filter(
      ({ update }) => update.sessionUpdate === 'user_message_chunk',
    )
    expect(shown.map(({ update }) => update.content)).toMatchObject([
      ...[{ type: 'text', text: 'see' }, image, { type: 'text' }],
      { type: 'resource_link', name: 'b c.txt', mimeType: 'text/plain', size: 5 },
    ])
    const plain = await one.open({ agent: 'echo' })
    const refused = one.request('session/prompt', { sessionId: plain, prompt: [image] })
    await expect(refused).rejects.toMatchObject({
      code: -32_602,
      data: { code: 'input_unsupported' },
    })
  })

  it('is advertised with what its agent can do, and what the caller may', async () => {
    const capabilities = { ...NO_CAPABILITIES, images: true, settings: ['directories'] }
    await start({
      agents: {
        plain: builtinAgents['echo']!,
        able: Object.assign(async () => '', { capabilities }) as Agent,
      },
    })
    const told = async (query: string): Promise<any> =>
      (await (await connect({ query })).initialize()).agentCapabilities
    expect(await told('')).toMatchObject({
      loadSession: true,
      promptCapabilities: { image: false, embeddedContext: false },
      sessionCapabilities: { list: {}, resume: {}, close: {}, delete: {} },
    })
    expect(await told('?agent=able')).toMatchObject({
      promptCapabilities: { image: true, embeddedContext: false },
      sessionCapabilities: { additionalDirectories: {} },
    })
  })

  it('tells an agent’s failure, and a lane that is full, by our codes', async () => {
    const fails: Agent = async () => {
      throw new Error('no model')
    }
    await start({ agents: { fails, steps }, limits: { queuedTurnsMax: 1 } })
    const one = await connect()
    const id = await one.open()
    await expect(one.prompt(id, 'x')).rejects.toMatchObject({
      ...{ code: -32_603, message: expect.stringContaining('no model') },
      data: { state: 'failed', turn: expect.any(String), retry: false },
    })
    const lane = await one.open({ agent: 'steps' })
    const running = one.prompt(lane, 'a')
    await until(() => one.said() === 'a ')
    const waiting = one.prompt(lane, 'b')
    await until(async () => (await server.holdfast.session(lane).state()).queued.length === 1)
    const full = one.prompt(lane, 'c')
    await expect(full).rejects.toMatchObject({
      code: -32_010,
      data: { code: 'session_busy', retry: true, position: 2, retryAfterMs: expect.any(Number) },
    })
    const reject = one.prompt(lane, 'd', { busy: 'reject' })
    await expect(reject).rejects.toMatchObject({ data: { code: 'session_busy', retry: true } })
    await one.notify('session/cancel', { sessionId: lane })
    expect(await Promise.all([running, waiting])).toMatchObject([
      { stopReason: 'cancelled' },
      { stopReason: 'cancelled' },
    ])
  })
})
