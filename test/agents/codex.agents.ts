/**
 * The real Codex by its app server, with a stub for the model: its approval requests reach clients
 * with what they are about, and their answers reach Codex. `npm run e2e:agents` runs this.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { codexRunner, processRunner, type CodexOptions } from 'holdfast'
import { runnerConformance, type RunnerUnderTest } from 'holdfast/testing'
import { until } from '../support/gate.ts'
import { allIn, isReaped } from '../support/processes.ts'
import { offline, programOf } from '../support/real-agents.ts'
import { serve, type TestServer } from '../support/server.ts'
import {
  seen,
  startStubResponses,
  type ResponsesAnswer,
  type ResponsesRequest,
  type StubResponses,
} from '../support/stub-responses.ts'
import { dial, type WireClient } from '../support/wire-client.ts'

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD' +
    'hgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)

/** The contract of every runner, tried on the real program. */
describe('the runner of codex', () => {
  const open = async (): Promise<RunnerUnderTest> => {
    const root = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-codex-')))
    const model = await startStubResponses()
    model.answer = async (request) => {
      const { users, tool } = request
      if (users.at(-1) === 'hang') return { text: 'hanging', isHeld: true }
      if (users.at(-1) !== 'ask' || tool !== null) return seen(request)
      const escalated = { sandbox_permissions: 'require_escalated', justification: 'to try' }
      return { tool: 'exec_command', input: { cmd: 'true', ...escalated } }
    }
    const env = await offline('codex', join(root, 'home'), model.url)
    const runner = () =>
      codexRunner({ command: programOf('codex'), args: ['app-server'], env, folder: root })
    return {
      runner: runner(),
      inputs: { answer: 'hello', hang: 'hang', fail: null, ask: 'ask' },
      reopen: async () => runner(),
      dispose: async () => {
        await model.close()
        rmSync(root, { recursive: true, force: true, maxRetries: 5 })
      },
    }
  }
  for (const { title, run } of runnerConformance(open)) it(title, run)
})

describe('codex by its app server', () => {
  let root: string
  let home: string
  let shared: string
  let model: StubResponses
  let serving: TestServer | null = null
  const clients: WireClient[] = []

  beforeEach(async () => {
    root = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-codex-')))
    home = join(root, 'home')
    shared = join(root, 'shared')
    mkdirSync(shared)
    model = await startStubResponses()
    model.answer = said
  })

  afterEach(async () => {
    for (const client of clients.splice(0)) client.socket.terminate()
    await serving?.close()
    serving = null
    expect(allIn(home)).toEqual([])
    await model.close()
    rmSync(root, { recursive: true, force: true, maxRetries: 5 })
  })

  /** The model does what the user says: `run`, `patch`, or repeats it; then says how it went. */
  const said = (request: ResponsesRequest): ResponsesAnswer => {
    const { users, tool } = request
    if (tool !== null) return { text: `tool: ${tool}` }
    const escalated = { sandbox_permissions: 'require_escalated', justification: 'to leave a mark' }
    if (users.at(-1) === 'run') {
      return { tool: 'exec_command', input: { cmd: 'echo x >> mark', ...escalated } }
    }
    if (users.at(-1) !== 'patch') return seen(request)
    const lines = ['*** Begin Patch', '*** Add File: new.txt', '+hello', '*** Update File: old.txt']
    const patch = [...lines, '@@', '-one', '+two', '*** End Patch'].join('\n')
    return { tool: 'exec_command', input: { cmd: `apply_patch <<'EOF'\n${patch}\nEOF` } }
  }

  const start = async (options: Partial<CodexOptions> = {}): Promise<TestServer> => {
    const env = await offline('codex', home, model.url)
    const common = { command: programOf('codex'), env, folder: join(root, 'work') }
    const codex = codexRunner({ ...common, args: ['app-server'], cwd: shared, ...options })
    const once = processRunner({
      ...{ ...common, cwd: shared, args: ['exec'], output: 'codex' as const },
      firstArgs: ['--json', '--skip-git-repo-check', '-'],
      laterArgs: ['resume', '--json', '--skip-git-repo-check', '{sessionUuid}', '-'],
    })
    const store = `sqlite:${join(root, 'holdfast.db')}`
    serving = await serve({ store, agents: { codex, once }, defaultAgent: 'codex' })
    return serving
  }
  const attach = async (session: string): Promise<WireClient> => {
    const client = dial(serving!.url, { session, answers: ['permission', 'question'] })
    clients.push(client)
    await client.frame('welcome')
    return client
  }
  const create = async (body: object = {}): Promise<string> => {
    const answer = await serving!.post('/v1/sessions', { key: 'k', ...body })
    return answer.body.id as string
  }
  const turn = async (input: unknown, more: object = {}): Promise<any> => {
    const { body } = await serving!.post('/v1/keys/k/turns', { input, ...more })
    return body.turn ?? body
  }
  const events = async (id: string): Promise<any[]> =>
    (await serving!.get(`/v1/sessions/${id}/events`)).body.events
  const activities = async (id: string, kind: string): Promise<any[]> =>
    (await events(id)).filter((one) => one.type === 'turn.activity' && one.kind === kind)

  it('asks with the command, and runs what was allowed', async () => {
    await start()
    const id = await create()
    const phone = await attach(id)
    phone.send({ type: 'turn', id: 'r', input: 'run' })
    const ask = await phone.frame('ask.opened')
    expect(ask).toMatchObject({
      kind: 'permission',
      options: [{ id: 'allow' }, { id: 'allow_always' }, { id: 'deny' }],
      detail: { kind: 'execute', cwd: shared, reason: 'to leave a mark' },
    })
    expect(ask['detail'].command).toContain('echo x >> mark')
    expect(existsSync(join(shared, 'mark'))).toBe(false)
    phone.send({ type: 'answer', id: 'a', ask: ask['ask'], answer: 'allow' })
    await phone.frame('turn.done')
    expect(readFileSync(join(shared, 'mark'), 'utf8')).toBe('x\n')
    const tools = await activities(id, 'tool')
    expect(tools.map(({ data }) => data)).toMatchObject([
      { name: 'command', kind: 'execute', status: 'running' },
      { status: 'done' },
    ])
    expect(await activities(id, 'usage')).toMatchObject([
      { data: { inputTokens: 20, outputTokens: 10, cachedTokens: 6 } },
    ])
  })

  it('is continued in its own program and back, which is told, and adopted', async () => {
    await start({ folders: [shared] })
    const { holdfast } = serving!
    const id = await create()
    expect((await turn('one')).reply.text).toBe('seen 1: one')
    const inTerminal = async (text: string): Promise<void> => {
      const { command } = await holdfast.terminal(id, true)
      const [, ...variables] = command.slice(0, command.indexOf(programOf('codex')))
      const env = Object.fromEntries(variables.map((one) => one.split('=')))
      const args = ['exec', 'resume', command.at(-1)!, text, '--skip-git-repo-check']
      const options = { cwd: shared, env: { ...process.env, ...env, STUB_KEY: 'stub' } }
      const program = spawn(programOf('codex'), args, { ...options, stdio: 'ignore' })
      expect(await once(program, 'close')).toEqual([0, null])
    }
    await inTerminal('elsewhere')
    expect(await holdfast.terminal(id)).toMatchObject({ writtenOutside: 2 })
    expect((await turn('two')).reply.text).toBe('seen 3: two')
    const [change, ...others] = await activities(id, 'conversation_changed')
    expect(others).toEqual([])
    expect(change.data.messages).toMatchObject([
      { role: 'user', text: 'elsewhere' },
      { role: 'assistant', text: 'seen 2: elsewhere' },
    ])
    expect(await holdfast.terminal(id)).toMatchObject({ writtenOutside: 0 })
    const backend = String((await holdfast.session(id).state()).backend)
    await holdfast.session(id).close()
    const adopted = await holdfast.adopt(backend, { key: 'adopted' })
    const said: string[] = []
    for await (const { text } of adopted.messages()) said.push(text)
    expect(said).toEqual([
      ...['one', 'seen 1: one', 'elsewhere', 'seen 2: elsewhere', 'two', 'seen 3: two'],
    ])
    expect((await adopted.turn('three')).reply?.text).toBe('seen 4: three')
  })

  it('asks with the diff of every file, and changes nothing that was denied', async () => {
    await start({ mode: 'read-only' })
    writeFileSync(join(shared, 'old.txt'), 'one\n')
    const id = await create()
    const phone = await attach(id)
    phone.send({ type: 'turn', id: 'r', input: 'patch' })
    const { ask, detail } = await phone.frame('ask.opened')
    expect(detail).toMatchObject({
      kind: 'edit',
      paths: [join(shared, 'new.txt'), join(shared, 'old.txt')],
      diff: [
        { path: join(shared, 'new.txt'), before: null, after: 'hello\n' },
        { path: join(shared, 'old.txt'), unified: expect.stringContaining('-one\n+two') },
      ],
    })
    const answer = { option: 'deny', message: 'not in my house' }
    phone.send({ type: 'answer', id: 'a', ask, answer })
    const { turn: ended } = await phone.frame('turn.done')
    expect(existsSync(join(shared, 'new.txt'))).toBe(false)
    expect(readFileSync(join(shared, 'old.txt'), 'utf8')).toBe('one\n')
    // The words of the refusal have reached the model in the same turn.
    const { body } = await serving!.get(`/v1/sessions/${id}/turns/${ended}`)
    expect(body.turn.reply.text).toContain('not in my house')
    expect(await activities(id, 'permission_denied')).toEqual([])
  })

  it('asks once for what is allowed for the session', async () => {
    await start()
    const id = await create()
    const phone = await attach(id)
    phone.send({ type: 'turn', id: 'r', input: 'run' })
    const { ask } = await phone.frame('ask.opened')
    phone.send({ type: 'answer', id: 'a', ask, answer: 'allow_always' })
    await phone.frame('turn.done')
    expect((await turn('run')).state).toBe('done')
    expect(readFileSync(join(shared, 'mark'), 'utf8')).toBe('x\nx\n')
  })

  it.each([
    ['timed_out', { askMs: 100 }],
    ['nobody_to_ask', { onNobody: 'deny' as const }],
  ])('runs nothing when its ask is %s, and the turn ends', async (outcome, options) => {
    await start(options)
    const id = await create()
    expect((await turn('run')).state).toBe('done')
    expect(existsSync(join(shared, 'mark'))).toBe(false)
    const settled = (await events(id)).filter(({ type }) => type === 'ask.settled')
    expect(settled).toMatchObject([{ outcome }])
    // The words about the refusal were a message too.
    expect((await turn('next')).reply.text).toBe('seen 3: next')
  })

  it('is interrupted while it asks, and while the model works, and goes on', async () => {
    await start()
    const id = await create()
    const phone = await attach(id)
    phone.send({ type: 'turn', id: 'r', input: 'run' })
    const { turn: asking } = await phone.frame('ask.opened')
    await serving!.delete(`/v1/sessions/${id}/turns/${asking}`)
    await phone.frame('turn.cancelled')
    let release: () => void = () => undefined
    model.answer = async (request) => {
      if (request.users.at(-1) === 'slow') {
        await new Promise<void>((resolve) => {
          release = resolve
        })
      }
      return said(request)
    }
    const pids = allIn(home)
    const slow = turn('slow')
    await until(() => model.requests.some(({ users }) => users.at(-1) === 'slow'))
    const { body } = await serving!.get(`/v1/sessions/${id}`)
    await serving!.delete(`/v1/sessions/${id}/turns/${body.running.id ?? body.running}`)
    expect((await slow).state).toBe('cancelled')
    release()
    expect((await turn('next')).reply.text).toMatch(/^seen \d: next$/)
    expect(allIn(home)).toEqual(pids)
    expect(existsSync(join(shared, 'mark'))).toBe(false)
  })

  it('comes back with its context after an idle stop, a kill and a restart', async () => {
    await start({ idleMs: 50 })
    const id = await create()
    expect((await turn('one')).reply.text).toBe('seen 1: one')
    await until(() => allIn(home).length === 0)
    expect((await turn('two')).reply.text).toBe('seen 2: two')
    const pids = allIn(home)
    for (const pid of pids) process.kill(pid, 'SIGKILL')
    await until(() => pids.every(isReaped))
    expect((await turn('three')).reply.text).toBe('seen 3: three')
    await serving!.close()
    await start()
    expect((await turn('four')).reply.text).toBe('seen 4: four')
    const bound = (await events(id)).filter(({ type }) => type === 'session.bound')
    expect(bound).toHaveLength(1)
  })

  it('continues a session that `codex exec` began, and asks in it', async () => {
    await start()
    const id = await create({ agent: 'once' })
    expect((await turn('one')).reply.text).toBe('seen 1: one')
    const { backend } = (await serving!.get(`/v1/sessions/${id}`)).body
    await serving!.close()
    // The same session, whose agent is now the other runner.
    const env = await offline('codex', home, model.url)
    const once = codexRunner({
      ...{ command: programOf('codex'), args: ['app-server'], env, cwd: shared },
      ...{ folder: join(root, 'work'), onNobody: 'deny' as const },
    })
    serving = await serve({ store: `sqlite:${join(root, 'holdfast.db')}`, agents: { once } })
    expect((await turn('two')).reply.text).toBe('seen 2: two')
    await turn('run')
    const asks = (await events(id)).filter(({ type }) => type === 'ask.opened')
    expect(asks).toHaveLength(1)
    expect((await serving.get(`/v1/sessions/${id}`)).body.backend).toBe(backend)
  })

  it('records what it refuses by itself, also once per turn', async () => {
    await start({ mode: 'danger-full-access' })
    for (const agent of ['codex', 'once']) {
      const { body } = await serving!.post('/v1/sessions', { agent })
      await serving!.post(`/v1/sessions/${body.id}/turns`, { input: 'run' })
      // `codex exec` does not tell where the call is.
      const call =
        agent === 'once' ? {} : { tool: 'exec_command', input: { cmd: 'echo x >> mark' } }
      const reason = expect.stringContaining('approval policy is Never')
      expect(await activities(body.id, 'permission_denied'), agent).toMatchObject([
        { data: [{ ...call, reason }] },
      ])
    }
    expect(existsSync(join(shared, 'mark'))).toBe(false)
  })

  it('honours mode, model, instructions and folders, and refuses what is not allowed', async () => {
    const other = join(root, 'other')
    mkdirSync(other)
    await start({ folders: [other] })
    const settings = { model: 'model-two', instructions: 'Speak like a sailor.', cwd: other }
    await create({ settings })
    await turn('one')
    const { body } = model.requests.at(-1)!
    expect(body.model).toBe('model-two')
    expect(JSON.stringify(body.input)).toContain('Speak like a sailor.')
    expect(JSON.stringify(body.input)).toContain(`<cwd>${other}</cwd>`)
    for (const [settings, field] of [
      [{ mode: 'danger-full-access' }, 'settings.mode'],
      [{ mode: 'no such mode' }, 'settings.mode'],
      [{ cwd: '/etc' }, 'settings.cwd'],
      [{ cwd: `${other}/../elsewhere` }, 'settings.cwd'],
    ] as const) {
      const refused = await serving!.post('/v1/sessions', { settings })
      expect([refused.status, refused.body]).toMatchObject([422, { field }])
    }
  })

  it('asks questions in its plan mode, and leaves it with the mode', async () => {
    await start()
    const questions = [
      {
        ...{ id: 'colour', header: 'Colour', question: 'Which colour?' },
        options: [
          { label: 'Red', description: 'warm' },
          { label: 'Blue', description: 'cold' },
        ],
      },
    ]
    model.answer = (request) =>
      request.users.at(-1) === 'ask' && request.tool === null
        ? { tool: 'request_user_input', input: { questions } }
        : said(request)
    const id = await create({ settings: { mode: 'plan' } })
    const phone = await attach(id)
    phone.send({ type: 'turn', id: 'r', input: 'ask' })
    const { ask, ...asked } = await phone.frame('ask.opened')
    expect(asked).toMatchObject({
      kind: 'question',
      question: 'Which colour?',
      options: [{ id: 'Red' }, { id: 'Blue' }],
      accepts: ['text'],
    })
    phone.send({ type: 'answer', id: 'a', ask, answer: { text: 'Green' } })
    await phone.frame('turn.done')
    expect(model.requests.at(-1)!.tool).toContain('Green')
    const { text } = (await turn('ask', { settings: { mode: 'workspace-write' } })).reply
    expect(text).toContain('unavailable in Default mode')
  })

  it('takes a message into its running turn, and one answer covers both', async () => {
    await start()
    let release: () => void = () => undefined
    model.answer = async (request) => {
      if (request.users.length === 1) {
        await new Promise<void>((resolve) => {
          release = resolve
        })
      }
      return { text: request.users.join(' and ') }
    }
    const id = await create()
    const first = turn('first')
    await until(() => model.requests.length === 1)
    const second = turn('second', { busy: 'steer' })
    await until(async () => (await events(id)).some(({ type }) => type === 'turn.steered'))
    release()
    const [one, two] = await Promise.all([first, second])
    expect(one.reply.text).toBe('first and second')
    expect(two.id).toBe(one.id)
  })

  it('is forked at an earlier turn, and works in the same folder', async () => {
    await start()
    const id = await create()
    const first = await turn('one')
    await turn('two')
    const forked = await serving!.holdfast.fork(id, { turn: first.id })
    expect((await forked.turn('three')).reply?.text).toBe('seen 2: three')
    expect((await turn('four')).reply.text).toBe('seen 3: four')
  })

  it('takes images, and refuses files', async () => {
    const env = await offline('codex', home, model.url)
    const runner = codexRunner({
      command: programOf('codex'),
      args: ['app-server'],
      env,
      cwd: shared,
    })
    const image = { type: 'image', mediaType: 'image/png', data: new Uint8Array(PNG) }
    const file = { type: 'file', name: 'a', mediaType: 'text/plain', data: new Uint8Array() }
    const run = async (part: object): Promise<void> => {
      const parts = [{ type: 'text', text: 'look' }, part]
      const session = { id: 's', key: null, agent: 'codex', labels: {}, backend: null }
      const context = { session, signal: new AbortController().signal, settings: {} }
      const bind = async (): Promise<void> => undefined
      const outputs = runner.run(
        { id: 't', input: 'look', text: 'look', parts } as never,
        {
          ...context,
          bind,
        } as never,
      )
      while ((await outputs.next()).done !== true);
    }
    try {
      await run(image)
      const { input } = model.requests.at(-1)!.body
      const shown = { image_url: expect.stringContaining('data:image/png;base64,') }
      expect(input.at(-1).content.at(-1)).toMatchObject(shown)
      await expect(run(file)).rejects.toMatchObject({ code: 'input_unsupported' })
    } finally {
      await runner.close?.()
    }
  })
})
