/**
 * Claude Code as a long-lived agent: the real program, with a stub as its model. A text
 * `tool NAME {…}` makes the model call that tool.
 */
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import {
  claudeRunner,
  openHoldfast,
  type ClaudeOptions,
  type DiagnosticListener,
  type Holdfast,
  type Limits,
  type Runner,
  type SessionHandle,
} from 'holdfast'
import { claudeTranscripts } from '../support/claude-transcript.ts'
import { runningIn } from '../support/processes.ts'
import { until } from '../support/gate.ts'
import { offline, programOf } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

const CLAUDE = programOf('claude')
/** A picture of one pixel. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='
vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 })

let folder: string
let model: StubModel
let env: Record<string, string>
const opened: Holdfast[] = []

beforeAll(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-claude-')))
  model = await StubModel.start()
  env = await offline('claude', join(folder, 'home'), model.url)
  mkdirSync(join(folder, 'work'))
})
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.close()))
  expect(running()).toEqual([])
})
afterAll(async () => {
  await model.close()
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
})

const running = (): number[] => runningIn(join(folder, 'home'), CLAUDE)

function runnerOf(options: Partial<ClaudeOptions>): Runner {
  const cwd = join(folder, 'work')
  return claudeRunner({ command: CLAUDE, folder: join(folder, 'agents'), cwd, env, ...options })
}

async function open(
  options: Partial<ClaudeOptions> = {},
  limits: Partial<Limits> = {},
  onDiagnostic?: DiagnosticListener,
  store = 'memory:',
) {
  const agents = { claude: runnerOf(options) }
  const holdfast = await openHoldfast({ store, agents, limits, onDiagnostic })
  opened.push(holdfast)
  return holdfast
}

async function sessionOf(options: Partial<ClaudeOptions> = {}, limits: Partial<Limits> = {}) {
  return (await open(options, limits)).resolve()
}

/** A turn in Claude Code's own program, without Holdfast. */
async function inTerminal(...args: string[]): Promise<void> {
  const options = { cwd: join(folder, 'work'), env: { ...process.env, ...env } }
  const program = spawn(CLAUDE, ['-p', ...args], { ...options, stdio: 'ignore' })
  expect(await once(program, 'close')).toEqual([0, null])
}

const call = (tool: string, input: object): string => `tool ${tool} ${JSON.stringify(input)}`
const inWork = (name: string): string => join(folder, 'work', name)

async function events(session: SessionHandle): Promise<any[]> {
  return (await session.read(0, 500)).events.map(({ body }) => JSON.parse(body) as unknown)
}

async function activities(session: SessionHandle, kind: string): Promise<any[]> {
  const all = await events(session)
  return all.flatMap(({ type, kind: of, data }) =>
    type === 'turn.activity' && of === kind ? [data] : [],
  )
}

async function transcriptOf(session: SessionHandle) {
  const { backend } = await session.state()
  const transcripts = await claudeTranscripts(env['CLAUDE_CONFIG_DIR'] ?? '')
  return transcripts.find(({ file }) => file.includes(String(backend)))
}

/** The asks that are open, when there are so many. */
async function asks(session: SessionHandle, count = 1): Promise<any[]> {
  const state = async () => (await session.state()).asks
  await expect.poll(async () => (await state()).length).toBe(count)
  return [...(await state())]
}

describe('a permission request', () => {
  it('comes with the diff of the file, and what is allowed is done', async () => {
    const session = await sessionOf()
    writeFileSync(inWork('a.txt'), 'before\n')
    await session.turn(call('Read', { file_path: inWork('a.txt') }))
    const write = { file_path: inWork('a.txt'), content: 'after\n' }
    const turn = session.turn(call('Write', write))
    const [ask] = await asks(session)
    expect(ask).toMatchObject({
      kind: 'permission',
      question: `Write: ${inWork('a.txt')}`,
      accepts: ['message', 'input'],
      detail: {
        tool: 'Write',
        kind: 'edit',
        paths: [inWork('a.txt')],
        diff: [{ path: inWork('a.txt'), before: 'before\n', after: 'after\n' }],
        input: write,
      },
    })
    expect(ask.options.map(({ id }: any) => id)).toEqual(['allow', 'allow_always', 'deny'])
    await session.answer(ask.id, 'allow')
    expect((await turn).state).toBe('done')
    expect(readFileSync(inWork('a.txt'), 'utf8')).toBe('after\n')
    const calls = (await activities(session, 'tool')).filter(({ name }) => name === 'Write')
    expect(calls).toMatchObject([{ kind: 'edit', status: 'running', input: write }])
    const ends = await activities(session, 'tool')
    expect(ends.at(-1)).toMatchObject({ id: calls[0].id, status: 'done' })
  })

  it('that is denied gives the model the reason', async () => {
    const session = await sessionOf()
    const turn = session.turn(call('Bash', { command: `rm -r ${inWork('x')}`, description: 'no' }))
    const [ask] = await asks(session)
    expect(ask.detail).toMatchObject({ command: `rm -r ${inWork('x')}`, cwd: join(folder, 'work') })
    await session.answer(ask.id, { option: 'deny', message: 'not on a Friday' })
    expect((await turn).reply?.text).toBe('not on a Friday')
    expect((await activities(session, 'tool')).at(-1)).toMatchObject({ status: 'failed' })
    expect(await activities(session, 'permission_denied')).toEqual([])
  })

  it('that is always allowed is not repeated, nor by the next child, unless the operator denies it', async () => {
    const session = await sessionOf({ deny: ['Bash(mkdir denied:*)'], idleMs: 100 })
    const touch = (name: string): string =>
      call('Bash', { command: `mkdir -p ${name}`, description: 'make' })
    const turn = session.turn(touch('always-one'))
    const [ask] = await asks(session)
    expect(ask.options[1].label).toContain('Bash(mkdir')
    await session.answer(ask.id, 'allow_always')
    expect((await turn).state).toBe('done')
    const labels = (await session.state()).grants.map(({ label }) => label)
    expect(labels).toContain('Bash(mkdir -p always-one)')
    expect((await session.turn(touch('always-one'))).state).toBe('done')
    await expect.poll(running).toEqual([])
    expect((await session.turn(touch('always-one'))).state).toBe('done')
    expect((await events(session)).filter(({ type }) => type === 'ask.opened')).toHaveLength(1)
    expect(existsSync(inWork('.claude/settings.local.json'))).toBe(false)
    // What is taken back while a turn runs counts from the next one on.
    const asking = session.turn(touch('another'), { settings: { mode: 'default' } })
    const [open] = await asks(session)
    for (const { id } of await session.grants()) await session.revokeGrant(id)
    await session.answer(open.id, 'deny')
    await asking
    const settings = { mode: 'default', onNobody: 'deny' } as const
    expect((await session.turn(touch('always-one'), { settings })).reply?.text).toContain(
      'No person',
    )
    await session.turn(call('Bash', { command: 'mkdir denied', description: 'no' }))
    expect(await activities(session, 'permission_denied')).toMatchObject([{ tool: 'Bash' }])
    expect(existsSync(inWork('denied'))).toBe(false)
  })

  it('offers to always allow a folder only where the operator lets sessions work', async () => {
    const [inside, outside] = [inWork('inside'), join(folder, 'outside')]
    mkdirSync(inside, { recursive: true })
    mkdirSync(outside, { recursive: true })
    symlinkSync(outside, join(inside, 'link'))
    const offered = async (options: Partial<ClaudeOptions>, path: string): Promise<string[]> => {
      const session = await sessionOf(options)
      const turn = session.turn(call('Bash', { command: `mkdir ${path}/x`, description: 'make' }))
      const [ask] = await asks(session)
      const always = ask.options.find(({ id }: any) => id === 'allow_always')
      await session.answer(ask.id, 'deny')
      await turn
      return always.grants.flatMap(({ data }: any) => data.directories ?? [])
    }
    const options = { folders: [inside] }
    expect(await offered({}, outside)).toEqual([outside])
    expect(await offered(options, inside)).toEqual([inside])
    expect(await offered(options, outside)).toEqual([])
    expect(await offered(options, `${inside}/link`)).toEqual([])
  })

  it('runs with edited arguments', async () => {
    const session = await sessionOf()
    const turn = session.turn(call('Bash', { command: 'mkdir one', description: 'make' }))
    const [ask] = await asks(session)
    await session.answer(ask.id, { option: 'allow', input: { command: 'mkdir two' } })
    expect((await turn).state).toBe('done')
    expect([existsSync(inWork('one')), existsSync(inWork('two'))]).toEqual([false, true])
  })

  it.each([
    ['times out', { askMs: 50 }, 'No person has answered this request in time'],
    ['finds nobody', { onNobody: 'deny' as const }, 'No person is there to answer'],
  ])('that %s is denied with how to attach', async (_, options, words) => {
    const session = await (await open(options)).resolve({ key: 'some key' })
    const turn = await session.turn(call('Bash', { command: 'mkdir never', description: 'x' }))
    expect(turn.reply?.text).toContain(words)
    expect(turn.reply?.text).toContain('"holdfast chat some key"')
    expect(existsSync(inWork('never'))).toBe(false)
  })

  it('is withdrawn when its turn is cancelled, and the next turn goes on in the same child', async () => {
    const session = await sessionOf()
    await session.turn('hello')
    const pids = running()
    const turn = session.turn(call('Bash', { command: 'mkdir never', description: 'x' }))
    await asks(session)
    const { running: runs } = await session.state()
    await session.cancelTurn(runs?.id ?? '')
    expect((await turn).state).toBe('cancelled')
    expect((await session.turn('again')).reply?.text).toMatch(/\bagain$/)
    expect(running()).toEqual(pids)
    const settled = (await events(session)).filter(({ type }) => type === 'ask.settled')
    expect(settled).toMatchObject([{ outcome: 'withdrawn' }])
    expect(existsSync(inWork('never'))).toBe(false)
  })
})

describe('questions of the agent', () => {
  const questions = [
    {
      question: 'Which colour?',
      header: 'Colour',
      multiSelect: false,
      options: [
        { label: 'Red', description: 'warm' },
        { label: 'Blue', description: 'cold' },
      ],
    },
    {
      question: 'Which fruits?',
      header: 'Fruits',
      multiSelect: true,
      options: [
        { label: 'Apple', description: 'a' },
        { label: 'Pear', description: 'p' },
      ],
    },
  ]

  it('are asks: one option, several, or own words', async () => {
    const session = await sessionOf()
    const turn = session.turn(call('AskUserQuestion', { questions }))
    const [colour, fruits] = await asks(session, 2)
    expect(colour).toMatchObject({ kind: 'question', question: 'Which colour?', accepts: ['text'] })
    expect(fruits.accepts).toEqual(['several', 'text'])
    expect(fruits.options).toEqual([
      { id: 'Apple', label: 'Apple: a' },
      { id: 'Pear', label: 'Pear: p' },
    ])
    await session.answer(fruits.id, ['Apple', 'Pear'])
    await session.answer(colour.id, { text: 'rather green' })
    expect((await turn).reply?.text).toContain(
      '"Which colour?"="rather green", "Which fruits?"="Apple, Pear"',
    )
  })

  it('that nobody answers are denied together', async () => {
    const session = await sessionOf({ askMs: 50 })
    const turn = await session.turn(call('AskUserQuestion', { questions }))
    expect(turn.reply?.text).toContain('No person has answered')
    expect((await session.state()).asks).toEqual([])
  })
})

it('calls tools of clients by asks, and knows the ones that there are', async () => {
  const holdfast = await open()
  const session = await holdfast.resolve()
  const { clientTools } = holdfast.authority
  const tool = { description: 'the weather', parameters: {}, skipPermission: true }
  const remove = clientTools.add(session.id, [{ ...tool, name: 'weather' }])
  const turn = session.turn(call('mcp__client__weather', { city: 'Bern' }))
  const [ask] = await asks(session)
  expect(ask).toMatchObject({ kind: 'tool:weather', detail: { input: { city: 'Bern' } } })
  await session.answer(ask.id, { result: 'sunny' })
  expect((await turn).reply?.text).toContain('sunny')
  remove()
  // It has no such tool any more: nothing is asked.
  expect((await session.turn(call('mcp__client__weather', {}))).state).toBe('done')
  clientTools.add(session.id, [{ ...tool, name: 'news' }])
  const next = session.turn(call('mcp__client__news', {}))
  const [second] = await asks(session)
  await session.answer(second.id, { error: 'none today' })
  expect((await next).reply?.text).toContain('none today')
})

describe('settings', () => {
  it('let it plan, and the approved plan takes the mode back', async () => {
    const session = await sessionOf()
    await session.configure({ mode: 'plan' })
    const turn = session.turn(call('ExitPlanMode', { plan: '1. Do it' }))
    const [ask] = await asks(session)
    expect(ask).toMatchObject({ kind: 'permission', detail: { plan: '1. Do it' } })
    await session.answer(ask.id, 'allow')
    expect((await turn).state).toBe('done')
    expect((await session.state()).settings).toEqual({ mode: 'default' })
    const configured = (await events(session)).filter(({ type }) => type === 'session.configured')
    expect(configured.map(({ settings }) => settings.mode)).toEqual(['plan', 'default'])
  })

  it('choose the model and the instructions, and keep the conversation', async () => {
    const session = await sessionOf()
    const asked = () => model.requests.at(-1)
    await session.turn('one')
    const [before] = running()
    await session.configure({ model: 'claude-sonnet-4-5' })
    await session.turn('two')
    expect(asked()?.model).toBe('claude-sonnet-4-5')
    expect(running()).toEqual([before])
    await session.configure({ instructions: 'Speak like a pirate.' })
    expect((await session.turn('three')).reply?.text).toBe('seen 3: three')
    expect(asked()?.system).toContain('Speak like a pirate.')
    expect(asked()?.model).toBe('claude-sonnet-4-5')
    expect(running()).not.toEqual([before])
  })

  it('that the operator does not offer are refused', async () => {
    mkdirSync(inWork('allowed'), { recursive: true })
    const session = await sessionOf({ folders: [inWork('allowed')], mcpServers: { notes: {} } })
    const refused = (settings: object) =>
      session.configure(settings).then(
        () => null,
        ({ code, details }) => [code, details?.field],
      )
    expect(await refused({ mode: 'bypassPermissions' })).toEqual(['invalid_field', 'settings.mode'])
    expect(await refused({ cwd: folder })).toEqual(['invalid_field', 'settings.cwd'])
    expect(await refused({ directories: [`${inWork('allowed')}/..`] })).toEqual([
      'invalid_field',
      'settings.directories.0',
    ])
    expect(await refused({ mcpServers: ['other'] })).toEqual([
      'invalid_field',
      'settings.mcpServers.0',
    ])
    const plain = await sessionOf()
    await expect(plain.configure({ cwd: folder })).rejects.toMatchObject({
      code: 'setting_unsupported',
    })
  })

  it('move it to another folder with its conversation', async () => {
    mkdirSync(inWork('allowed'), { recursive: true })
    const session = await sessionOf({ folders: [inWork('allowed')] })
    await session.turn('one')
    await session.configure({ cwd: inWork('allowed') })
    expect((await session.turn('two')).reply?.text).toBe('seen 2: two')
    const turn = session.turn(call('Bash', { command: 'rmdir x', description: 'x' }))
    const [ask] = await asks(session)
    expect(ask.detail.cwd).toBe(inWork('allowed'))
    await session.answer(ask.id, 'deny')
    await turn
    expect(await activities(session, 'context_lost')).toEqual([])
  })
})

describe('a child', () => {
  it('that is idle is stopped, and the next continues its conversation', async () => {
    const session = await sessionOf({ idleMs: 50 })
    expect((await session.turn('one')).reply?.text).toBe('seen 1: one')
    await expect.poll(running).toEqual([])
    expect((await session.turn('two')).reply?.text).toBe('seen 2: two')
    expect(await transcriptOf(session)).toMatchObject({ roots: 1, forks: 0, lost: 0 })
    expect(await activities(session, 'commands')).toHaveLength(1)
    expect(await activities(session, 'backend_retried')).toEqual([])
  })

  it('makes room for another when there are as many as there may be', async () => {
    const holdfast = await open({ childrenMax: 1 })
    const [one, two] = [await holdfast.resolve(), await holdfast.resolve()]
    await one.turn('one')
    const before = running()
    await two.turn('two')
    expect(running()).toHaveLength(1)
    expect(running()).not.toEqual(before)
    expect((await one.turn('three')).reply?.text).toBe('seen 2: three')
  })

  it('that is killed during a turn fails it, and the next turn has the context', async () => {
    const session = await sessionOf()
    await session.turn('one')
    model.hold(1)
    const turn = session.turn('cut off')
    await model.askedAbout('cut off')
    for (const pid of running()) process.kill(pid, 'SIGKILL')
    const { state, error } = await turn
    expect([state, error?.message]).toEqual(['failed', expect.stringContaining('SIGKILL')])
    model.letGo()
    expect((await session.turn('three')).reply?.text).toMatch(/^seen [23]: three$/)
    expect(await activities(session, 'diagnosis')).toHaveLength(1)
  })

  it('that is killed as soon as its turn is over has the turn, and fails no other', async () => {
    const session = await sessionOf()
    for (const [index, text] of ['one', 'two', 'three', 'four'].entries()) {
      expect((await session.turn(text)).reply?.text).toBe(`seen ${index + 1}: ${text}`)
      for (const pid of running()) process.kill(pid, 'SIGKILL')
    }
    expect((await session.turn('five')).reply?.text).toBe('seen 5: five')
    expect(await transcriptOf(session)).toMatchObject({ roots: 1, forks: 0, lost: 0 })
    expect(await activities(session, 'context_lost')).toEqual([])
  })

  it('that does not stop in time is killed', async () => {
    const session = await sessionOf({ cancelMs: 1 })
    model.hold(1)
    const turn = session.turn('long')
    await model.askedAbout('long')
    const pids = running()
    await session.cancelTurn((await session.state()).running?.id ?? '')
    expect((await turn).state).toBe('cancelled')
    model.letGo()
    expect((await session.turn('next')).state).toBe('done')
    expect(running()).not.toEqual(pids)
  })

  it('that clears its conversation fails the turn: a session has one transcript', async () => {
    const session = await sessionOf()
    await session.turn('one')
    const turn = await session.turn('/clear')
    expect(turn.error?.message).toContain('another session')
    expect((await session.turn('two')).reply?.text).toMatch(/^seen \d: [^]*two$/)
  })
})

it('tells its plan, its commands and its usage', async () => {
  const session = await sessionOf()
  await session.turn(call('TaskCreate', { subject: 'First', description: 'd', activeForm: 'f' }))
  await session.turn(call('TaskUpdate', { taskId: '1', status: 'in_progress' }))
  const { plan, commands, usage } = await session.state()
  expect(plan).toEqual([{ content: 'First', status: 'in_progress' }])
  expect(commands).toContainEqual(expect.objectContaining({ name: 'compact' }))
  // Each turn calls the model twice: 10 tokens in, 5 out.
  expect(usage).toMatchObject({ inputTokens: 40, outputTokens: 20 })
  const [first, second] = await activities(session, 'usage')
  expect(second.costUsd).toBeCloseTo(first.costUsd)
  expect((await session.turn('/context')).reply?.text).toContain('Context Usage')
})

it('is forked at any of its turns', async () => {
  const holdfast = await open()
  const session = await holdfast.resolve()
  const one = await session.turn('one')
  await session.turn('two')
  const fork = await holdfast.fork(session.id, { turn: one.id })
  expect(await fork.turn('other')).toMatchObject({ error: null, reply: { text: 'seen 2: other' } })
  expect((await fork.turn('more')).reply?.text).toBe('seen 3: more')
  expect((await session.turn('three')).reply?.text).toBe('seen 3: three')
  expect((await fork.state()).backend).not.toBe((await session.state()).backend)
})

describe('a conversation that is continued in a terminal', () => {
  it('is told, known from then on, and stays one conversation', async () => {
    const told: object[] = []
    const holdfast = await open({}, {}, (one) => void told.push(one))
    const session = await holdfast.resolve()
    await session.turn('one')
    const backend = String((await session.state()).backend)
    expect(await holdfast.terminal(session.id)).toMatchObject({ writtenOutside: 0 })
    // The words of the turn before are no proof that they are ours.
    await inTerminal('one', '--resume', backend)
    expect(await holdfast.terminal(session.id)).toMatchObject({ writtenOutside: 2 })
    expect((await session.turn('two')).reply?.text).toBe('seen 3: two')
    expect(await activities(session, 'conversation_changed')).toMatchObject([
      {
        messages: [
          { role: 'user', text: 'one' },
          { role: 'assistant', text: 'seen 2: one' },
        ],
        omitted: 0,
      },
    ])
    const facts = { session: session.id, messages: 2 }
    const changed = { code: 'conversation_changed', facts }
    expect(told.filter((one: any) => one.code === changed.code)).toMatchObject([changed])
    expect(await holdfast.terminal(session.id)).toMatchObject({ writtenOutside: 0 })
    expect((await session.turn('three')).reply?.text).toBe('seen 4: three')
    expect(await activities(session, 'conversation_changed')).toHaveLength(1)
    expect(await transcriptOf(session)).toMatchObject({ roots: 1, forks: 0, lost: 0 })
  })

  it('is told after a restart, but not the turn that was cut short', async () => {
    const store = `sqlite:${join(folder, 'crashed.db')}`
    const first = await open({}, {}, undefined, store)
    const session = await first.resolve({ key: 'crashed' })
    await session.turn('one')
    const cut = session.turn('hang here')
    await model.askedAbout('hang here')
    await first.close()
    expect((await cut).state).toBe('interrupted')
    const second = await open({}, {}, undefined, store)
    const again = await second.resolve({ key: 'crashed' })
    expect(await second.terminal(again.id)).toMatchObject({ writtenOutside: 0 })
    await inTerminal('elsewhere', '--resume', String((await again.state()).backend))
    await again.turn('two')
    const [change, ...others] = await activities(again, 'conversation_changed')
    expect(others).toEqual([])
    expect(change.messages[0]).toMatchObject({ role: 'user', text: 'elsewhere' })
    expect(await transcriptOf(again)).toMatchObject({ roots: 1, forks: 0, lost: 0 })
  })

  it.each(['cancelled', 'killed'])('is not a turn of ours that was %s', async (how) => {
    const session = await sessionOf()
    await session.turn('one')
    const before = model.requests.length
    const turn = session.turn('hang')
    const since = () => model.requests.slice(before)
    await until(() => since().some(({ users }) => users.at(-1)?.includes('hang') === true))
    if (how === 'killed') for (const pid of running()) process.kill(pid, 'SIGKILL')
    else await session.cancelTurn(String((await session.state()).running?.id))
    expect((await turn).state).toBe(how === 'killed' ? 'failed' : 'cancelled')
    expect((await session.turn('two')).state).toBe('done')
    expect(await activities(session, 'conversation_changed')).toEqual([])
  })
})

it('continues a conversation that was begun in a terminal, and no other', async () => {
  const begun = randomUUID()
  const cwd = join(folder, 'work')
  await inTerminal('from the terminal', '--session-id', begun)
  const holdfast = await open({ folders: [cwd] })
  const adopted = await holdfast.adopt(begun, { key: 'mine' })
  const messages: string[] = []
  for await (const { role, text } of adopted.messages()) messages.push(`${role}: ${text}`)
  expect(messages).toEqual(['user: from the terminal', 'assistant: seen 1: from the terminal'])
  expect((await adopted.state()).settings).toEqual({ cwd })
  expect((await adopted.turn('more')).reply?.text).toBe('seen 2: more')
  expect((await adopted.state()).backend).toBe(begun)
  const wrong = { code: 'invalid_field', details: { field: 'backend' } }
  await expect(holdfast.adopt(randomUUID())).rejects.toMatchObject(wrong)
  await expect(holdfast.adopt('../secrets')).rejects.toMatchObject(wrong)
  const elsewhere = await open({ folders: [join(folder, 'agents')] })
  const field = 'settings.cwd'
  await expect(elsewhere.adopt(begun)).rejects.toMatchObject({ details: { field } })
  await expect((await open()).adopt(begun)).rejects.toMatchObject({ code: 'invalid_field' })
})

it('takes pictures and files', async () => {
  const session = await sessionOf()
  const image = Buffer.from(PIXEL, 'base64')
  const turn = await session.turn({
    text: 'look',
    parts: [
      { type: 'text', text: 'look' },
      { type: 'image', mediaType: 'image/png', data: image },
      { type: 'file', name: 'a.txt', mediaType: 'text/plain', data: Buffer.from('words') },
      { type: 'file', name: 'b.zip', mediaType: 'application/zip', data: Buffer.from([255, 0]) },
    ],
  })
  expect(turn.error ?? turn.reply?.text).toMatch(/^seen 1: look\n/)
  const content = JSON.stringify(model.requests.at(-1)?.messages)
  expect(content).toContain(PIXEL)
  expect(content).toContain('"title":"a.txt"')
  const [, stored = ''] = /The attached file is ([^\]]+)\]/.exec(content) ?? []
  expect(stored).toMatch(/\/work\/attached-\w+\/b\.zip$/)
  expect([...readFileSync(stored)]).toEqual([255, 0])
})
