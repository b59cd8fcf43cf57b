import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { AskOption, AskOutcome, Grant, Question, RunnerOutput } from '../../core/index.ts'
import { Outbox } from '../outbox.ts'
import { respond } from './approvals.ts'
import { FirstStart } from './first-start.ts'
import { itemOfExec, toolCallOf } from './items.ts'
import { threadOf, turnParams, type Defaults, type Workspace } from './params.ts'
import { denialsIn, refusalsIn } from './refusals.ts'
import { TurnRun } from './turn.ts'

const answered = (answer: unknown): AskOutcome => ({ outcome: 'answered', answer, by: null })

/** What was asked, what was said besides, and the response. */
async function responseTo(method: string, params: object, ...outcomes: AskOutcome[]) {
  const asked: Question[] = []
  const said: string[] = []
  const response = await respond(method, params as never, {
    ask: async (question) => {
      asked.push(question)
      return outcomes.shift() ?? { outcome: 'withdrawn' }
    },
    tool: () => ({ id: 'c', title: 'Edit a', diff: [{ path: 'a', before: null, after: 'x' }] }),
    say: (text) => said.push(text),
    isAllowed: () => false,
  })
  return { asked, said, response }
}

/** What the question grants if it is answered with "for this session". */
function grantsIn(asked: readonly Question[]): readonly Grant[] {
  const options = asked.flatMap((question) => question.options ?? []) as readonly AskOption[]
  return options.flatMap(({ grants = [] }) => grants)
}

const COMMAND = 'item/commandExecution/requestApproval'

describe('an approval request of Codex', () => {
  it.each<[AskOutcome, string]>([
    [answered('allow'), 'accept'],
    [answered('allow_always'), 'acceptForSession'],
    [answered('deny'), 'decline'],
    [{ outcome: 'timed_out' }, 'decline'],
    [{ outcome: 'nobody_to_ask' }, 'decline'],
    [{ outcome: 'withdrawn' }, 'decline'],
  ])('of which became %j is answered with %s', async (outcome, decision) => {
    const { response } = await responseTo(COMMAND, { command: 'ls', cwd: '/w' }, outcome)
    expect(response).toEqual({ decision })
  })

  it('has the command, its folder and the reason', async () => {
    const params = { command: 'ls', cwd: '/w', reason: 'to look' }
    const { asked } = await responseTo(COMMAND, params)
    const detail = { tool: 'command', kind: 'execute', command: 'ls', cwd: '/w', reason: 'to look' }
    expect(asked).toMatchObject([{ kind: 'permission', detail, accepts: ['message'] }])
  })

  it('for the network has the address', async () => {
    const networkApprovalContext = { host: 'example.com', protocol: 'https' }
    const { asked } = await responseTo(COMMAND, { networkApprovalContext })
    expect(asked).toMatchObject([{ detail: { url: 'https://example.com' } }])
  })

  it('for files has the diff of the tool call', async () => {
    const method = 'item/fileChange/requestApproval'
    const { asked } = await responseTo(method, { itemId: 'c', reason: null })
    expect(asked[0]?.detail).toEqual({
      ...{ tool: 'file_change', kind: 'edit', paths: ['a'] },
      diff: [{ path: 'a', before: null, after: 'x' }],
    })
  })

  it('that was allowed for the session is known again, and no other', async () => {
    const { asked } = await responseTo(COMMAND, { command: 'ls', cwd: '/w', reason: 'one' })
    const [grant] = grantsIn(asked)
    const again = async (params: object) => {
      const ask = async (): Promise<AskOutcome> => ({ outcome: 'withdrawn' })
      const isAllowed = ({ data }: Grant): boolean =>
        JSON.stringify(data) === JSON.stringify(grant?.data)
      return respond(COMMAND, params as never, {
        ...{ ask, isAllowed, say: () => undefined, tool: () => undefined },
      })
    }
    const allowed = { decision: 'acceptForSession' }
    expect(await again({ command: 'ls', cwd: '/w', reason: 'another' })).toEqual(allowed)
    for (const other of [
      { command: 'ls -a', cwd: '/w' },
      { command: 'ls', cwd: '/other' },
      { command: 'ls', cwd: '/w', kind: 'stdin' },
      {
        command: 'ls',
        cwd: '/w',
        networkApprovalContext: { host: 'example.com', protocol: 'https' },
      },
    ]) {
      expect(await again(other)).toEqual({ decision: 'decline' })
    }
  })

  it('passes on the words of a refusal', async () => {
    const outcome = answered({ option: 'deny', message: 'not now' })
    const { said, response } = await responseTo(COMMAND, { command: 'ls' }, outcome)
    expect([said, response]).toEqual([['not now'], { decision: 'decline' }])
  })

  it.each([
    ['allow', { permissions: { network: { enabled: true } }, scope: 'turn' }],
    ['allow_always', { permissions: { network: { enabled: true } }, scope: 'session' }],
    ['deny', { permissions: {}, scope: 'turn' }],
  ])('for more permissions, answered with %s, grants %j', async (answer, granted) => {
    const permissions = { network: { enabled: true }, fileSystem: null }
    const method = 'item/permissions/requestApproval'
    const { response } = await responseTo(method, { permissions }, answered(answer))
    expect(response).toEqual(granted)
  })
})

describe('a question of Codex', () => {
  const options = [{ label: 'Red', description: 'warm' }, { label: 'Blue' }]
  const question = { id: 'q', question: 'Which?', isOther: true, isSecret: false, options }

  it.each([
    [answered('Blue'), { q: { answers: ['Blue'] } }],
    [answered({ text: 'Green' }), { q: { answers: ['Green'] } }],
    [{ outcome: 'timed_out' } as const, {}],
  ])('of which became %j has the answers %j', async (outcome, answers) => {
    const method = 'item/tool/requestUserInput'
    const { asked, response } = await responseTo(method, { questions: [question] }, outcome)
    expect(asked).toMatchObject([{ kind: 'question', options: [{ id: 'Red' }, { id: 'Blue' }] }])
    expect(response).toEqual({ answers })
  })

  it('for a secret is not asked: answers are recorded', async () => {
    const questions = [{ ...question, isSecret: true }]
    const { asked, response } = await responseTo('item/tool/requestUserInput', { questions })
    expect([asked, response]).toEqual([[], { answers: {} }])
  })

  it('of an MCP server is asked field by field', async () => {
    const requestedSchema = {
      properties: {
        name: { type: 'string' },
        size: { enum: ['s', 'l'] },
        sure: { type: 'boolean' },
      },
      required: ['name'],
    }
    const { asked, response } = await responseTo(
      'mcpServer/elicitation/request',
      { mode: 'form', serverName: 'shop', message: 'Order', requestedSchema },
      ...[answered('Ann'), answered('l'), answered('true')],
    )
    expect(asked.map(({ options = [] }) => options.length)).toEqual([0, 2, 2])
    const content = { name: 'Ann', size: 'l', sure: true }
    expect(response).toMatchObject({ action: 'accept', content })
  })

  it('without fields asks for consent', async () => {
    const params = { mode: 'form', message: 'Call it?', requestedSchema: { properties: {} } }
    const { response } = await responseTo('mcpServer/elicitation/request', params, answered('deny'))
    expect(response).toMatchObject({ action: 'decline' })
  })
})

it('knows no other request of Codex', async () => {
  expect((await responseTo('item/tool/call', {})).response).toBeUndefined()
})

describe('an item of Codex', () => {
  it('that runs a command is a tool call', () => {
    const item = {
      id: 'c',
      type: 'commandExecution',
      command: 'ls',
      cwd: '/w',
      status: 'inProgress',
    }
    expect(toolCallOf(item, false)).toMatchObject({
      ...{ id: 'c', name: 'command', kind: 'execute', status: 'running', title: 'ls' },
      input: { command: 'ls', cwd: '/w' },
    })
  })

  it('that changes files has their diffs', () => {
    const changes = [
      { path: '/n', kind: { type: 'add' }, diff: 'new\n' },
      { path: '/d', kind: { type: 'delete' }, diff: 'old\n' },
      { path: '/u', kind: { type: 'update', move_path: '/v' }, diff: '@@ -1 +1 @@\n' },
    ]
    expect(toolCallOf({ id: 'c', type: 'fileChange', changes, status: 'completed' }, true)).toEqual(
      {
        ...{ id: 'c', name: 'file_change', kind: 'edit', title: 'Edit /n, /d, /u', status: 'done' },
        diff: [
          { path: '/n', before: null, after: 'new\n' },
          { path: '/d', before: 'old\n', after: '' },
          { path: '/u', unified: 'rename to /v\n@@ -1 +1 @@\n' },
        ],
        locations: [{ path: '/n' }, { path: '/d' }, { path: '/u' }],
      },
    )
  })

  it('of `codex exec` is the same tool call', () => {
    const item = { id: 'i', type: 'command_execution', aggregated_output: 'x', exit_code: 0 }
    const call = toolCallOf(itemOfExec({ ...item, command: 'ls', status: 'completed' }), true)
    expect(call).toMatchObject({ id: 'i', kind: 'execute', status: 'done', output: 'x' })
  })

  it('that is no tool call is none', () => {
    expect(toolCallOf({ id: 'm', type: 'agentMessage', text: 'hi' }, true)).toBeNull()
  })
})

const runOf = (grants: readonly Grant[] = []) => {
  const outbox = new Outbox()
  const bound: string[] = []
  const said: string[] = []
  const asked: Question[] = []
  const context = {
    session: { backend: null, id: 's1', key: 'moon', grants },
    signal: new AbortController().signal,
    bind: async (id: string) => void bound.push(id),
    ask: async (question: Question) => {
      asked.push(question)
      return { outcome: 'nobody_to_ask' }
    },
  }
  const say = (text: string): void => void said.push(text)
  const parts = { outbox, context: context as never, settings: {}, thread: 'T', say }
  const run = new TurnRun(parts)
  run.id = 'now'
  const ended = async (): Promise<RunnerOutput[]> => {
    outbox.end()
    const outputs: RunnerOutput[] = []
    for await (const output of outbox.read()) outputs.push(output)
    return outputs
  }
  return { run, bound, said, asked, ended }
}

describe('a turn of Codex', () => {
  const item = (fields: object) => ({ turnId: 'now', item: fields })

  it('records what an agent does, and the thread once it works', async () => {
    const { run, bound, ended } = runOf()
    run.notification('item/completed', item({ type: 'userMessage', id: 'u' }))
    expect(bound).toEqual([])
    run.notification('item/agentMessage/delta', { turnId: 'now', delta: 'hi' })
    run.notification('item/completed', item({ type: 'agentMessage', id: 'm', text: 'hi' }))
    const last = { inputTokens: 10, outputTokens: 5, cachedInputTokens: 3, totalTokens: 15 }
    const tokenUsage = { last, modelContextWindow: 100 }
    run.notification('thread/tokenUsage/updated', { turnId: 'now', tokenUsage })
    run.notification('thread/tokenUsage/updated', { turnId: 'now', tokenUsage })
    run.notification('turn/completed', { turn: { id: 'now', status: 'completed' } })
    await run.ended
    expect(bound).toEqual(['T'])
    const used = { inputTokens: 20, outputTokens: 10, cachedTokens: 6 }
    expect(await ended()).toEqual([
      { type: 'delta', text: 'hi' },
      { type: 'message', text: 'hi' },
      { type: 'activity', kind: 'usage', data: { ...used, contextUsed: 15, contextSize: 100 } },
    ])
  })

  it('drops what is late from another turn', async () => {
    const { run, ended } = runOf()
    run.notification('item/agentMessage/delta', { turnId: 'before', delta: 'late' })
    run.notification('turn/completed', { turn: { id: 'before', status: 'completed' } })
    expect(await ended()).toEqual([])
  })

  it('fails with the words of Codex', async () => {
    const { run } = runOf()
    const error = { message: 'no model', additionalDetails: 'at all' }
    run.notification('turn/completed', { turn: { id: 'now', status: 'failed', error } })
    await expect(run.ended).rejects.toThrow('no model: at all')
  })

  it('records an item that was declined without an ask as denied', async () => {
    const { run, ended } = runOf()
    const declined = { type: 'commandExecution', id: 'c', command: 'ls', status: 'declined' }
    run.notification('item/completed', item(declined))
    const denials = (await ended()).filter((one) => one.type === 'activity')
    expect(denials).toMatchObject([
      { kind: 'tool', data: { status: 'failed' } },
      { kind: 'permission_denied', data: [{ id: 'c', tool: 'ls' }] },
    ])
  })
})

describe('a request that no person answers', () => {
  it('is denied with words for Codex, once, and for the log', async () => {
    const { run, said, ended } = runOf()
    for (const command of ['ls', 'rm a']) {
      expect(await run.request(COMMAND, { command, cwd: '/w' })).toEqual({ decision: 'decline' })
    }
    expect(said).toEqual([expect.stringContaining('holdfast chat moon')])
    const reason = said[0]
    expect(await ended()).toMatchObject([
      { kind: 'permission_denied', data: [{ tool: 'Run a command: ls', reason }] },
      { kind: 'permission_denied', data: [{ tool: 'Run a command: rm a', reason }] },
    ])
  })

  it('and was allowed for the session before is allowed, and the log says so', async () => {
    const first = runOf()
    await first.run.request(COMMAND, { command: 'ls', cwd: '/w' })
    const { run, asked, ended } = runOf(grantsIn(first.asked))
    const decision = await run.request(COMMAND, { command: 'ls', cwd: '/w' })
    expect([decision, asked]).toEqual([{ decision: 'acceptForSession' }, []])
    expect(await ended()).toMatchObject([
      { kind: 'permission_allowed', data: [{ tool: 'Run a command: ls' }] },
    ])
  })
})

describe('what Codex is told with a turn', () => {
  const workspace: Workspace = { cwd: '/w', directories: ['/more'], servers: [] }
  const thread = () => threadOf({ thread: { id: 'T' }, model: 'own', reasoningEffort: 'high' })
  const told = (settings: object, defaults: Defaults = {}) =>
    turnParams(thread(), { settings, workspace, defaults })

  it('is the whole policy each time: Codex keeps that of the turn before', () => {
    expect(told({})).toMatchObject({
      ...{ threadId: 'T', cwd: '/w', model: 'own', approvalPolicy: 'on-request' },
      sandboxPolicy: { type: 'workspaceWrite', writableRoots: ['/more'], networkAccess: false },
    })
    const policy = { approvalPolicy: 'never', sandboxPolicy: { type: 'dangerFullAccess' } }
    expect(told({ mode: 'danger-full-access' })).toMatchObject(policy)
  })

  it("is what Codex's own configuration says, unless the operator or the session chooses", () => {
    const config = { approval_policy: 'untrusted', sandbox_mode: 'read-only' }
    expect(told({}, config)).toMatchObject({
      ...{ approvalPolicy: 'untrusted', sandboxPolicy: { type: 'readOnly' } },
    })
    const chosen = { ...config, mode: 'workspace-write' as const }
    expect(told({}, chosen)).toMatchObject({ sandboxPolicy: { type: 'workspaceWrite' } })
    expect(told({ mode: 'read-only' }, chosen)).toMatchObject({
      sandboxPolicy: { type: 'readOnly' },
    })
  })

  it('names the plan mode when it is entered, and when it is left', () => {
    const one = thread()
    const modes = [{}, { mode: 'plan' }, { mode: 'plan' }, {}, {}].map((settings) => {
      const { collaborationMode } = turnParams(one, { settings, workspace, defaults: {} }) as any
      return collaborationMode?.mode
    })
    expect(modes).toEqual([undefined, 'plan', 'plan', 'default', undefined])
  })
})

describe('the first start of Codex', () => {
  const { signal } = new AbortController()
  /** How many of so many that begin at once may start now. */
  const entered = async (first: FirstStart, count: number) => {
    const all: ((hasStarted: boolean) => void)[] = []
    for (let n = 0; n < count; n += 1) void first.enter(signal).then((one) => all.push(one))
    await new Promise((resolve) => setImmediate(resolve))
    return all
  }
  const next = () => new Promise((resolve) => setImmediate(resolve))

  it('is waited for by all others, and then by none', async () => {
    const first = new FirstStart()
    const all = await entered(first, 3)
    expect(all).toHaveLength(1)
    all[0]!(true)
    await next()
    expect(await entered(first, 2)).toHaveLength(2)
  })

  it('is tried by the next if it fails, or is not awaited any more', async () => {
    const first = new FirstStart()
    const [one] = await entered(first, 1)
    const abort = new AbortController()
    const second = first.enter(abort.signal)
    const all = await entered(first, 1)
    abort.abort(new Error('enough'))
    await expect(second).rejects.toThrow('enough')
    expect(all).toEqual([])
    one!(false)
    await next()
    expect(all).toHaveLength(1)
  })
})

it('finds in its stderr what Codex refused by itself, and not what a person did', () => {
  const colours = ['\u001b[2m', '\u001b[0m', '\u001b[31m', '\u001b[0m'] as const
  const [dim, plain, red, end] = colours
  const at = '2026-11-18T16:04:35.1Z'
  const line = (error: string) =>
    `${dim}${at}${plain} ${red}ERROR${end} codex_core::tools::router: error=${error}`
  const own = 'approval policy is Never; reject command'
  const stderr = [line(own), line('Rejected("rejected by user")'), 'WARNING: x'].join('\n')
  expect(refusalsIn(stderr)).toEqual([{ at, reason: own }])
})

it('reads what Codex refused in no file outside of its home', async () => {
  const root = await mkdtemp(join(tmpdir(), 'holdfast-codex-'))
  const [own, other] = [join(root, 'own'), join(root, 'other')]
  const reason = 'approval policy is Never; reject command'
  const payloads = [
    { type: 'function_call', call_id: 'c', name: 'shell', arguments: '{"command":"x"}' },
    { type: 'function_call_output', call_id: 'c', output: reason },
  ]
  for (const home of [own, other]) {
    await mkdir(home)
    const lines = payloads.map((payload) => JSON.stringify({ payload }))
    await writeFile(join(home, 'thread.jsonl'), lines.join('\n'))
  }
  const denialsOf = (home: string) =>
    denialsIn({ path: join(home, 'thread.jsonl'), home: own }, [{ at: '', reason }])
  expect(await denialsOf(own)).toEqual([{ tool: 'shell', input: { command: 'x' }, reason }])
  expect(await denialsOf(other)).toEqual([{ reason }])
  await rm(root, { recursive: true })
})
