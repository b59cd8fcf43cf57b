/** The ACP runner with real children: an agent on the protocol's own library that can misbehave. */
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { acpRunner, openHoldfast } from 'holdfast'
import { openBench, type AcpBench, type BenchOptions } from '../support/acp-bench.ts'
import { until } from '../support/gate.ts'
import { isAlive, isReaped } from '../support/processes.ts'

let bench: AcpBench | null = null

async function open(options: BenchOptions = {}): Promise<AcpBench> {
  bench = await openBench(options)
  return bench
}

async function kill(pid: number): Promise<void> {
  process.kill(pid, 'SIGKILL')
  await until(() => isReaped(pid))
}

async function saying(turn: AsyncIterable<string>, text: string): Promise<void> {
  for await (const part of turn) if (part.includes(text)) return
  throw new Error(`it never said ${text}`)
}

afterEach(async () => {
  const last = bench
  bench = null
  await last?.close()
})

describe('a turn with an ACP agent', () => {
  it('streams, ends with the prompt, and the next one goes on in the same session', async () => {
    const { pids } = await open()
    expect(pids).toEqual([])
    const session = await bench!.session('a')
    const parts: string[] = []
    for await (const part of session.turn('hello')) parts.push(part)
    expect(parts.join('')).toBe('1 hello')
    const { backend } = await session.state()
    expect(backend).toMatch(/^tiny-/)
    expect(await session.turn('again')).toMatchObject({
      state: 'done',
      reply: { text: '2 again' },
    })
    expect((await session.state()).backend).toBe(backend)
    expect(bench!.pids).toHaveLength(1)
  })

  it('records thoughts, plans, tools, usage and an early stop in their places', async () => {
    await open()
    const session = await bench!.session('a')
    await session.turn('work')
    const told = (await bench!.events(session)).map(({ type, kind, text, data }) =>
      type === 'turn.activity' ? { kind, data } : (text ?? type),
    )
    expect(told).toEqual([
      'session.created',
      'turn.started',
      'session.bound',
      { kind: 'thought', data: { text: 'hm, so' } },
      {
        kind: 'plan',
        data: { entries: [{ content: 'look', priority: 'high', status: 'pending' }] },
      },
      'I look. ',
      {
        kind: 'tool',
        data: {
          ...{ id: 'call-1', title: 'grep', kind: 'read', status: 'pending' },
          input: { pattern: 'x' },
        },
      },
      { kind: 'tool', data: { id: 'call-1', status: 'running' } },
      { kind: 'tool', data: { id: 'call-1', status: 'done', output: { matches: 2 } } },
      {
        kind: 'usage',
        data: { inputTokens: 7, outputTokens: 2, contextUsed: 10, contextSize: 100 },
      },
      { kind: 'stop', data: { reason: 'max_tokens' } },
      'Two.',
      'turn.done',
    ])
  })

  it('loses no chunk that came before its end, and takes none that came after', async () => {
    await open()
    const session = await bench!.session('a')
    const numbers = Array.from({ length: 500 }, (_, index) => `${index + 1} `).join('')
    expect((await session.turn('burst 500')).reply?.text).toBe(numbers)
    expect((await session.turn('late')).reply?.text).toBe('in time')
    expect((await session.turn('next')).reply?.text).toBe('3 next')
    expect(JSON.stringify(await bench!.events(session))).not.toContain('TOO LATE')
  })

  it('takes a flood no faster than it can be recorded, and refuses one message that is too large', async () => {
    await open()
    const session = await bench!.session('a')
    expect((await session.turn('flood 3000')).reply?.text).toHaveLength(3_000_000)
    const { state, error } = await session.turn('huge')
    expect({ state, ...error }).toMatchObject({
      state: 'failed',
      message: expect.stringMatching(/byte limit/),
    })
    expect((await session.turn('next')).reply?.text).toBe('3 next')
  })

  it('bears stray output and wrong messages, and offers no file system', async () => {
    await open({ env: { START: 'noise', RESTORE: 'load' } })
    const session = await bench!.session('a')
    expect((await session.turn('wild')).reply?.text).toBe('-32601')
  })

  it('fails with what the agent says, and the agent lives on', async () => {
    await open()
    const session = await bench!.session('a')
    expect(await session.turn('refuse')).toMatchObject({
      state: 'failed',
      error: {
        code: 'runner_failed',
        message: 'the agent refused session/prompt: Internal error (the model is not there)',
      },
    })
    expect(await session.turn('quit')).toMatchObject({
      state: 'failed',
      error: { message: 'the agent cancelled the turn by itself' },
    })
    expect((await session.turn('next')).reply?.text).toBe('3 next')
    expect(bench!.pids).toHaveLength(1)
  })

  it('sees of our environment only what is allowed', async () => {
    process.env['ACP_TEST_SECRET'] = 'secret'
    process.env['ACP_TEST_SHOWN'] = 'shown'
    try {
      await open({ envAllow: ['ACP_TEST_SHOWN'] })
      const session = await bench!.session('a')
      expect((await session.turn('env ACP_TEST_SECRET')).reply?.text).toBe('undefined')
      expect((await session.turn('env ACP_TEST_SHOWN')).reply?.text).toBe('shown')
    } finally {
      delete process.env['ACP_TEST_SECRET']
      delete process.env['ACP_TEST_SHOWN']
    }
  })
})

describe('an agent that is gone', () => {
  it.each(['load', 'late', 'resume'])('after idling goes on by %s', async (RESTORE) => {
    const { holdfast } = await open({ idleMs: 1, env: { RESTORE } })
    const session = await bench!.session('a')
    await session.turn('hello')
    const { backend } = await session.state()
    const [first] = bench!.pids
    await until(() => !isAlive(first!))
    expect((await session.turn('again')).reply?.text).toBe('2 again')
    expect((await session.state()).backend).toBe(backend)
    expect(JSON.stringify(await bench!.events(session))).not.toContain('REPLAYED')
    expect(holdfast.authority.counters.outputsLate).toBe(0)
  })

  it('is gone before another takes its place', async () => {
    await open({ idleMs: 1, env: { RESTORE: 'resume', LEAVE_MS: '700' } })
    const session = await bench!.session('a')
    for (const text of ['one', 'two']) {
      await session.turn(text)
      // The second turn finds it on its way out.
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    await until(() => bench!.living.length === 0)
    const log = readFileSync(join(bench!.folder, 'log'), 'utf8').trim().split('\n')
    const expected = bench!.pids.flatMap((pid) => [`here ${pid}`, `gone ${pid}`])
    expect(log).toEqual(expected)
  })

  it('in the middle of a turn fails that turn, with its last words, and the next one works', async () => {
    await open()
    const session = await bench!.session('a')
    await session.turn('hello')
    expect(await session.turn('die because')).toMatchObject({
      state: 'failed',
      reply: { text: 'about to' },
      error: { code: 'runner_failed', message: expect.stringMatching(/exited with code 3/) },
    })
    const [diagnosis] = await bench!.activities(session, 'diagnosis')
    expect(diagnosis.stderr).toContain('fatal: because')
    expect((await session.turn('next')).reply?.text).toBe('3 next')
    expect(bench!.pids).toHaveLength(2)
  })

  it('before it said a word leaves no id behind: the next turn is the first', async () => {
    await open()
    const session = await bench!.session('a')
    expect((await session.turn('dieSilent')).state).toBe('failed')
    expect((await session.state()).backend).toBeNull()
    expect((await session.turn('next')).reply?.text).toBe('1 next')
  })

  it('and does not know its session any more is told as lost, and is asked again', async () => {
    await open()
    const session = await bench!.session('a')
    await session.turn('hello')
    const { backend } = await session.state()
    const file = join(bench!.folder, `${backend}.json`)
    renameSync(file, `${file}.away`)
    await kill(bench!.pids[0]!)
    const lost = { state: 'failed', error: { code: 'backend_lost' } }
    expect(await session.turn('who am I')).toMatchObject(lost)
    expect(await session.turn('who am I')).toMatchObject(lost)
    renameSync(`${file}.away`, file)
    expect((await session.turn('back')).reply?.text).toBe('2 back')
    expect((await session.state()).backend).toBe(backend)
  })

  it('only as far as its session goes has it loaded again by the next turn', async () => {
    await open()
    const session = await bench!.session('a')
    await session.turn('hello')
    expect((await session.turn('forget')).error?.message).toMatch(/Resource not found/)
    expect((await session.turn('next')).reply?.text).toBe('3 next')
    expect(bench!.pids).toHaveLength(1)
  })

  it('and never could load sessions goes on without context, and the log says so', async () => {
    await open({ idleMs: 1, env: { RESTORE: '' } })
    const session = await bench!.session('a')
    await session.turn('hello')
    expect((await session.state()).backend).toBeNull()
    expect((await session.turn('again')).reply?.text).toBe('2 again')
    expect(bench!.pids).toHaveLength(1)
    expect(await bench!.activities(session, 'context_lost')).toEqual([])
    await kill(bench!.pids[0]!)
    expect((await session.turn('anew')).reply?.text).toBe('1 anew')
    expect(await bench!.activities(session, 'context_lost')).toHaveLength(1)
  })

  it('at random moments never holds up its session', async () => {
    await open({ env: { RESTORE: 'resume' } })
    const session = await bench!.session('a')
    for (let round = 0; round < 8; round += 1) {
      const turn = session.turn('burst 200')
      const killed = await killSoon(round)
      const { state } = await turn
      expect(['done', 'failed']).toContain(state)
      const next = await session.turn('next')
      expect({ killed, round, next }).toMatchObject({ next: { state: 'done', error: null } })
    }
    const ends = (await bench!.events(session)).filter(({ type }) =>
      /^turn\.(done|fail)/.test(type),
    )
    expect(ends).toHaveLength(16)
  })

  /** Kills the agent that was started last, after so many turns of the event loop. */
  async function killSoon(round: number): Promise<boolean> {
    const before = bench!.pids.length
    for (let loops = round * 60; loops > 0; loops -= 1) {
      await new Promise((resolve) => setImmediate(resolve))
    }
    if (before === 0) await until(() => bench!.pids.length > 0)
    const pid = bench!.pids.at(-1)!
    if (!isAlive(pid)) return false
    await kill(pid)
    return true
  }
})

describe('an agent that does not start', () => {
  it('because it exits fails the turn, with its last words', async () => {
    await open({ env: { START: 'exit' } })
    const session = await bench!.session('a')
    expect(await session.turn('hello')).toMatchObject({
      state: 'failed',
      error: { code: 'runner_failed', message: expect.stringMatching(/exited with code 4/) },
    })
    const [diagnosis] = await bench!.activities(session, 'diagnosis')
    expect(diagnosis).toMatchObject({ code: 4, stderr: 'fatal: no configuration' })
  })

  it('because it hangs is given up', async () => {
    await open({ env: { START: 'hang' }, startMs: 100 })
    const session = await bench!.session('a')
    const { error } = await session.turn('hello')
    expect(error?.message).toMatch(/did not answer initialize within 100 ms/)
  })

  it.each([
    ['version', /speaks ACP version 99/],
    ['login', /requires a login .*: run `tiny login`/],
  ])('because of its %s fails the turn and says so', async (START, message) => {
    await open({ env: { START } })
    const session = await bench!.session('a')
    expect((await session.turn('hello')).error?.message).toMatch(message)
  })

  it('because there is no such program says so', async () => {
    await open({ command: '/no/such/agent' })
    const session = await bench!.session('a')
    expect((await session.turn('hello')).error?.message).toMatch(/no such program/)
  })
})

describe('a cancelled turn', () => {
  it('is passed on, and the agent lives', async () => {
    await open()
    const session = await bench!.session('a')
    const turn = session.turn('hang')
    await saying(turn, 'hanging')
    const { id } = (await session.state()).running!
    await session.cancelTurn(id)
    expect(await turn).toMatchObject({ state: 'cancelled', reply: { text: 'hanging' } })
    expect((await session.turn('next')).reply?.text).toBe('2 next')
    expect(bench!.pids).toHaveLength(1)
  })

  it.each([
    ['within the grace time', { cancelMs: 50 }],
    ['after the turn was given up', { cancelMs: 300, limits: { cancelGraceMs: 1 } }],
  ])('that the agent ignores costs it its life, %s', async (_, options) => {
    await open(options)
    const session = await bench!.session('a')
    await session.turn('hello')
    const turn = session.turn('deaf')
    await saying(turn, 'deaf')
    const { id } = (await session.state()).running!
    await session.cancelTurn(id)
    // I2: not before the one before it is really over.
    const next = session.turn('next')
    expect((await turn).state).toBe('cancelled')
    expect((await next).reply?.text).toBe('3 next')
    expect(bench!.pids).toHaveLength(2)
    expect(bench!.living).toHaveLength(1)
  })

  it('before the agent has started leaves nothing running in it', async () => {
    await open({ env: { START: 'hang' } })
    const session = await bench!.session('a')
    const turn = session.turn('hello')
    await until(() => bench!.pids.length === 1)
    await session.cancelTurn((await session.state()).running!.id)
    expect((await turn).state).toBe('cancelled')
  })
})

describe('a permission request', () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-asked-'))
  const asked = join(folder, 'asked')
  const outcomes = (): unknown[] =>
    readFileSync(asked, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown)
  /** A file is there before what is written in it. */
  const isTold = (): boolean => existsSync(asked) && readFileSync(asked, 'utf8').endsWith('\n')
  const env = { RESTORE: 'load', ASKED: asked }

  afterEach(() => rmSync(asked, { force: true }))
  afterAll(() => rmSync(folder, { recursive: true }))

  it('becomes an ask with the options of the agent, and the answer is passed on', async () => {
    await open({ env })
    const session = await bench!.session('a')
    const turn = session.turn('ask rm -rf')
    await until(async () => (await session.asks()).length > 0)
    const [ask] = await session.asks()
    expect(ask).toMatchObject({
      kind: 'permission',
      question: 'rm -rf',
      options: [
        { id: 'yes', label: 'Allow' },
        { id: 'no', label: 'Reject' },
      ],
      detail: { kind: 'execute', command: 'rm -rf', input: { command: 'rm -rf' } },
      data: { tool: { id: 'call-2' }, kinds: { yes: 'allow_once', no: 'reject_once' } },
    })
    await expect(session.answer(ask!.id, 'maybe')).rejects.toMatchObject({ code: 'invalid_answer' })
    await session.answer(ask!.id, 'yes')
    await turn
    expect(outcomes()).toEqual([{ outcome: 'selected', optionId: 'yes' }])
  })

  it.each([
    ['timed_out', { askMs: 20 }],
    ['nobody_to_ask', { onNobody: 'deny' as const }],
  ])('that ends as %s is never taken for a yes, nor for a person’s no', async (outcome, more) => {
    await open({ env, ...more })
    const session = await bench!.session('a')
    expect((await session.turn('ask rm -rf')).reply?.text).toBe('{"outcome":"cancelled"}')
    expect(outcomes()).toEqual([{ outcome: 'cancelled' }])
    const settled = (await bench!.events(session)).find(({ type }) => type === 'ask.settled')
    expect(settled.outcome).toBe(outcome)
  })

  it('that comes after the prompt’s end finds nobody to ask', async () => {
    await open({ env })
    const session = await bench!.session('a')
    expect((await session.turn('lateAsk')).reply?.text).toBe('in time')
    await until(isTold)
    expect(outcomes()).toEqual([{ outcome: 'cancelled' }])
    const events = await bench!.events(session)
    expect(events.filter(({ type }) => type === 'ask.opened')).toEqual([])
  })

  it('of a turn that is cancelled is withdrawn, and the agent is told', async () => {
    await open({ env })
    const session = await bench!.session('a')
    const turn = session.turn('ask rm -rf')
    await until(async () => (await session.asks()).length > 0)
    await session.cancelTurn((await session.state()).running!.id)
    expect((await turn).state).toBe('cancelled')
    await until(isTold)
    expect(outcomes()).toEqual([{ outcome: 'cancelled' }])
    const settled = (await bench!.events(session)).find(({ type }) => type === 'ask.settled')
    expect(settled.outcome).toBe('withdrawn')
    expect((await session.turn('next')).reply?.text).toBe('2 next')
  })
})

describe('a conversation that was begun elsewhere', () => {
  const folder = (): string => bench!.folder
  const begin = (id: string): void =>
    writeFileSync(join(folder(), `${id}.json`), JSON.stringify(['one', 'two']))

  it('is adopted with what was said in it, in the folder that the agent tells', async () => {
    await open({ folders: [tmpdir()], env: { LISTED: 'known' } })
    begin('known')
    const session = await bench!.holdfast.adopt('known')
    const said: string[] = []
    for await (const { role, text } of session.messages()) said.push(`${role}: ${text}`)
    expect(said).toEqual([
      ...['user: one', 'assistant: REPLAYED 1 one', 'user: two', 'assistant: REPLAYED 2 two'],
    ])
    expect((await session.state()).settings).toEqual({ cwd: folder() })
    expect((await session.turn('three')).reply?.text).toBe('3 three')
    expect((await session.state()).backend).toBe('known')
    // The agent that was asked for it has ended.
    expect(bench!.living).toHaveLength(1)
  })

  it('needs its folder where the agent does not tell it, and is refused if it is unknown', async () => {
    await open({ folders: [tmpdir()] })
    begin('known')
    const { holdfast } = bench!
    const adopt = (backend: string, settings = {}) => holdfast.adopt(backend, { settings })
    await expect(adopt('known')).rejects.toMatchObject({ details: { field: 'settings.cwd' } })
    const cwd = folder()
    await expect(adopt('none', { cwd })).rejects.toMatchObject({ details: { field: 'backend' } })
    const outside = adopt('known', { cwd: '/' })
    await expect(outside).rejects.toMatchObject({ details: { field: 'settings.cwd' } })
    expect((await (await adopt('known', { cwd })).turn('x')).reply?.text).toBe('3 x')
  })

  it('is not looked for without an end', async () => {
    await open({ folders: [tmpdir()], env: { LISTED: 'endless' } })
    const adopted = bench!.holdfast.adopt('known')
    await expect(adopted).rejects.toMatchObject({ details: { field: 'settings.cwd' } })
  })

  it('is refused by an agent that does not repeat it, and without folders', async () => {
    await open({ folders: [tmpdir()], env: { RESTORE: 'resume' } })
    await expect(bench!.holdfast.adopt('x')).rejects.toMatchObject({ code: 'capability_missing' })
    await bench!.close()
    await open()
    await expect(bench!.holdfast.adopt('x')).rejects.toMatchObject({ details: { field: 'agent' } })
  })
})

describe('children', () => {
  it('are one for each session, and gone when it is closed', async () => {
    await open()
    const sessions = [await bench!.session('a'), await bench!.session('b')]
    await Promise.all(sessions.map((session) => session.turn('hello')))
    expect(bench!.living).toHaveLength(2)
    await sessions[0]!.close()
    await until(() => bench!.living.length === 1)
    expect((await sessions[1]!.turn('again')).reply?.text).toBe('2 again')
  })

  it('can be one for all: it falls as one, and each session goes on', async () => {
    await open({ perSession: false, env: { RESTORE: 'resume' } })
    const sessions = await Promise.all(['a', 'b', 'c'].map((key) => bench!.session(key)))
    const turns = await Promise.all(sessions.map((session) => session.turn('hello')))
    expect(turns.map(({ reply }) => reply?.text)).toEqual(['1 hello', '1 hello', '1 hello'])
    expect(bench!.pids).toHaveLength(1)
    await sessions[2]!.close()
    const first = sessions[0]!.turn('hang')
    await saying(first, 'hanging')
    const second = sessions[1]!.turn('die now')
    expect((await Promise.all([first, second])).map(({ state }) => state)).toEqual([
      'failed',
      'failed',
    ])
    const next = await Promise.all(sessions.slice(0, 2).map((session) => session.turn('next')))
    expect(next.map(({ reply }) => reply?.text)).toEqual(['3 next', '3 next'])
    expect(bench!.pids).toHaveLength(2)
  })

  it('are no more than there may be: the longest idle one makes room', async () => {
    await open({ childrenMax: 2, cancelMs: 50 })
    const keys = ['a', 'b', 'c']
    const [a, b, c] = await Promise.all(keys.map((key) => bench!.session(key)))
    await a!.turn('hello')
    await b!.turn('hello')
    expect((await c!.turn('hello')).reply?.text).toBe('1 hello')
    await until(() => bench!.living.length === 2)
    const busy = [b!.turn('deaf'), c!.turn('deaf')]
    await Promise.all(busy.map((turn) => saying(turn, 'deaf')))
    expect((await a!.turn('again')).error?.code).toBe('too_many')
    for (const session of [b!, c!]) await session.cancelTurn((await session.state()).running!.id)
    await Promise.all(busy)
    expect((await a!.turn('again')).reply?.text).toBe('2 again')
  })

  it('are gone when Holdfast is closed, in the middle of a turn too', async () => {
    const { holdfast } = await open()
    const session = await bench!.session('a')
    const turn = session.turn('deaf')
    for await (const _ of turn) break
    await holdfast.close()
    expect(bench!.living).toEqual([])
  })

  it('are not started before a turn wants them', async () => {
    const holdfast = await openHoldfast({
      store: 'memory:',
      agents: { gone: acpRunner({ command: '/no/such/agent' }) },
    })
    await holdfast.resolve({ key: 'a' })
    await holdfast.close()
  })
})

it('waits to open a session again by the time of its log, whatever the clock here says', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-acp-'))
  const agent = fileURLToPath(new URL('../support/acp-agent.mjs', import.meta.url))
  const env = { KEEP: folder, RESTORE: 'load' }
  const reopenMs = 60_000
  const runner = acpRunner({ command: process.execPath, args: [agent], env, reopenMs })
  const stop = new AbortController()
  // Written by a node whose clock is an hour ahead of this one's.
  const at = Date.now() + 3_600_000
  const run = runner.run(
    { id: 't9', input: 'hello', text: 'hello' },
    {
      session: {
        ...{ id: 's', key: null, agent: 'tiny', labels: {}, backend: 'tiny-1', origin: null },
        grants: [],
      },
      signal: stop.signal,
      now: () => at + 20_000,
      bind: () => Promise.resolve(),
      settings: {},
      configure: () => Promise.resolve(),
      ask: () => Promise.reject(new Error('it asks')),
      lastPosition: () => Promise.reject(new Error('it reads the position')),
      readBlob: () => Promise.reject(new Error('it reads a blob')),
      clientOffers: () => new Set(),
      clientTools: () => [],
      askClient: () => Promise.reject(new Error('it asks the client')),
      async *history() {
        yield { seq: 2, turn: 't2', role: 'user', text: 'before', at }
      },
    },
  )
  const { value } = await run.next()
  stop.abort(new Error('enough'))
  await run.next().catch(() => undefined)
  await runner.close?.()
  rmSync(folder, { recursive: true })
  expect(value).toMatchObject({ type: 'activity', kind: 'waiting', data: { ms: 40_000 } })
})
