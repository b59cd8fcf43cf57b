/**
 * Trinity #779 with the real thing: two concurrent first turns of Claude Code, and two concurrent
 * resumes. Bare, they tear the transcript; through Holdfast both are answered, in order, each its own,
 * and there is one transcript, whatever is killed in between. Only the model is a stub.
 */
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { verifyFile } from '../../src/cli/file-checks.ts'
import { GUARDED, guarded } from '../support/guarded.ts'
import { claudeTranscripts, type ClaudeTranscript } from '../support/claude-transcript.ts'
import { brokenInLog, type LoggedEvent } from '../support/log.ts'
import { trafficUnderTest } from '../support/nodes-under-test.ts'
import { startProcess, type ProcessUnderTest } from '../support/processes-under-test.ts'
import { runningIn } from '../support/processes.ts'
import { offline, programOf } from '../support/real-agents.ts'
import { lines } from '../support/server.ts'
import { StubModel } from '../support/stub-model.ts'

const CLAUDE = programOf('claude')

// A turn takes a second, more on a machine that has much else to do.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 })

let folder: string
let model: StubModel
let env: Record<string, string>

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-claude-'))
  model = await StubModel.start()
  env = await offline('claude', join(folder, 'home'), model.url)
})
afterEach(async () => {
  await model.close()
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
})

/** Processes of Claude Code that there are. */
const running = (): number[] => runningIn(join(folder, 'home'), CLAUDE)
const transcripts = (): Promise<ClaudeTranscript[]> =>
  claudeTranscripts(env['CLAUDE_CONFIG_DIR'] ?? '')

// Without Holdfast there are no nodes.
describe.runIf(trafficUnderTest() === null)('Claude Code, bare', () => {
  const claude = async (text: string, ...args: string[]): Promise<string> => {
    const child = guarded(
      spawn(CLAUDE, ['-p', '--output-format', 'json', ...args], {
        cwd: folder,
        env: { PATH: process.env['PATH'], ...env },
        stdio: ['pipe', 'pipe', 'ignore'],
        ...GUARDED,
      }),
    )
    child.stdin.end(text)
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
    await once(child, 'close')
    return (JSON.parse(output) as { result: string }).result
  }

  it('makes two transcripts of two concurrent first turns without an id', async () => {
    model.together(2)
    const answers = await Promise.all([claude('one'), claude('two')])
    expect(answers).toEqual(['seen 1: one', 'seen 1: two'])
    expect(await transcripts()).toHaveLength(2)
  })

  // Claude Code refuses an id that it finds in use: both have to have looked before either writes.
  it('makes two roots of two concurrent first turns with one id', { retry: 5 }, async () => {
    model.together(2)
    const id = ['--session-id', randomUUID()]
    const answers = await Promise.all([claude('one', ...id), claude('two', ...id)])
    expect(answers).toEqual(['seen 1: one', 'seen 1: two'])
    const [transcript, ...others] = await transcripts()
    expect(others).toEqual([])
    expect(transcript?.roots).toBe(2)
    expect(transcript?.lost).toBeGreaterThan(0)
  })

  it('forks by two concurrent resumes, and forgets what was answered', async () => {
    const id = randomUUID()
    await claude('zero', '--session-id', id)
    model.together(2)
    await Promise.all([claude('one', '--resume', id), claude('two', '--resume', id)])
    const [transcript] = await transcripts()
    expect(transcript?.forks).toBeGreaterThan(0)
    expect(transcript?.lost).toBeGreaterThan(0)
  })
})

/** What happens between Holdfast and Claude Code alone: through which node is all one. */
const aside = it.runIf(trafficUnderTest() === null)

describe('Claude Code behind Holdfast', () => {
  let server: ProcessUnderTest

  const start = async (): Promise<void> => {
    const flags = ['--config', join(folder, 'holdfast.config.json')]
    const own = { PATH: process.env['PATH'], ...env }
    server = await startProcess(join(folder, 'data'), { flags, env: own })
  }
  const configure = (claude: object): Promise<void> =>
    writeFile(join(folder, 'holdfast.config.json'), JSON.stringify({ agents: { claude } }))
  const get = async (path: string): Promise<any> => (await fetch(`${server.url}${path}`)).text()
  const post = async (text: string): Promise<any> => {
    const response = await fetch(`${server.url}/v1/keys/fresh/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: text }),
    })
    return { status: response.status, ...((await response.json()) as object) }
  }
  const events = async (session: string): Promise<any[]> =>
    JSON.parse(await get(`/v1/sessions/${session}/events`)).events
  const activities = async (session: string): Promise<string[]> =>
    (await events(session)).flatMap(({ type, kind }) => (type === 'turn.activity' ? [kind] : []))
  /** The one process of Claude Code there is. */
  const killClaude = (): void => {
    const pids = running()
    expect(pids).toHaveLength(1)
    for (const pid of pids) process.kill(pid, 'SIGKILL')
  }
  /** Resolves when the last answer is in the transcript, a moment after Claude Code has told it. */
  const stored = async (log: readonly any[]): Promise<void> => {
    const answers = log.filter(({ role, partial }) => role === 'assistant' && partial !== true)
    const said = async (): Promise<unknown> => (await transcripts())[0]?.said
    await expect.poll(said, { timeout: 60_000 }).toContain(answers.at(-1)?.text)
  }
  /** One id, one transcript, one line of conversation, and a log that keeps the invariants. */
  const expectOneLine = async (session: string): Promise<ClaudeTranscript> => {
    const log = await events(session)
    const bound = log.filter(({ type }) => type === 'session.bound')
    expect(bound).toHaveLength(1)
    expect(brokenInLog(log as LoggedEvent[], true)).toEqual([])
    await stored(log)
    const [transcript, ...others] = await transcripts()
    expect(others).toEqual([])
    expect(transcript).toMatchObject({ roots: 1, forks: 0, lost: 0 })
    expect(transcript?.file).toContain(`${bound[0].backend}.jsonl`)
    return transcript as ClaudeTranscript
  }

  beforeEach(async () => {
    await configure({ preset: 'claude', command: CLAUDE })
    await start()
  })
  afterEach(async () => {
    await server.kill()
    await expect.poll(running, { timeout: 60_000 }).toEqual([])
  })

  it('answers two concurrent POSTs to a fresh session, and two more, in one line', async () => {
    const cold = await Promise.all([post('cold one'), post('cold two')])
    expect(cold.map(({ status, turn }) => [status, turn.state])).toEqual([
      [200, 'done'],
      [200, 'done'],
    ])
    const { session } = cold[0]
    for (const { turn } of cold) expect(turn.reply.text).toMatch(new RegExp(`: ${turn.input}$`))
    const messages = lines(await get(`/v1/sessions/${session}/transcript`))
    expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant'])
    expect(messages[1].text).toBe(`seen 1: ${messages[0].text}`)
    expect(messages[3].text).toBe(`seen 2: ${messages[2].text}`)
    expect((await expectOneLine(session)).said).toHaveLength(4)

    const warm = await Promise.all([post('warm one'), post('warm two')])
    // Which of the two came first is chance, through two nodes more than through one.
    const [third, fourth] = warm.toSorted((one, other) => one.turn.startedAt - other.turn.startedAt)
    expect(third.turn.reply.text).toBe(`seen 3: ${third.turn.input}`)
    expect(fourth.turn.reply.text).toBe(`seen 4: ${fourth.turn.input}`)
    expect((await expectOneLine(session)).said).toHaveLength(8)
    expect(await activities(session)).toContain('usage')
  })

  it('goes on in the same line after Claude Code was killed in the middle of an answer', async () => {
    model.hold(2)
    const dying = post('will be cut off')
    await model.asked(1)
    const { id } = JSON.parse(await get('/v1/sessions')).sessions[0]
    await expect
      .poll(() => get(`/v1/sessions/${id}/events`), { timeout: 60_000 })
      .toContain('session.bound')
    killClaude()
    const cut = await dying
    expect(cut.turn).toMatchObject({ state: 'failed', error: { code: 'runner_failed' } })
    expect(cut.turn.error.message).toContain('SIGKILL')
    expect(await activities(cut.session)).toContain('diagnosis')
    model.letGo()
    expect((await post('next')).turn).toMatchObject({ state: 'done' })
    expect((await post('and next')).turn.reply.text).toMatch(/^seen \d: and next$/)
    await expectOneLine(cut.session)
  })

  aside('resumes when a first turn died after Claude Code had taken the id', async () => {
    model.hold(0)
    const dying = post('first')
    await model.asked(1)
    // It asks the model first, and writes to its file a moment later.
    const said = async (): Promise<unknown> => (await transcripts())[0]?.said
    await expect.poll(said, { timeout: 60_000 }).toEqual(['first'])
    killClaude()
    const { session, turn } = await dying
    expect(turn).toMatchObject({ state: 'failed', reply: null })
    model.letGo()
    expect((await post('second')).turn).toMatchObject({ state: 'done' })
    expect(await activities(session)).toContain('backend_retried')
    await expectOneLine(session)
  })

  aside('begins with the same id when a first turn died before Claude Code knew it', async () => {
    await server.stop()
    const launcher = join(folder, 'launcher.sh')
    const marker = join(folder, 'was-here')
    await writeFile(
      launcher,
      `#!/bin/sh\nif [ ! -e ${marker} ]; then : > ${marker}; kill -9 $$; fi\nexec ${CLAUDE} "$@"\n`,
    )
    await chmod(launcher, 0o755)
    await configure({ preset: 'claude', command: launcher })
    await start()
    const first = await post('first')
    expect(first.turn.state).toBe('failed')
    expect(await transcripts()).toEqual([])
    expect((await post('second')).turn.reply.text).toBe('seen 1: second')
    await expectOneLine(first.session)
  })

  aside('says in the log that Claude Code has lost the session, and begins it anew', async () => {
    await server.stop()
    await configure({ preset: 'claude', command: CLAUDE, idleMs: 100 })
    await start()
    const { session } = await post('first')
    await expect.poll(running, { timeout: 60_000 }).toEqual([])
    const [transcript] = await transcripts()
    await rm(transcript?.file ?? '')
    expect((await post('second')).turn.reply.text).toBe('seen 1: second')
    expect(await activities(session)).toContain('context_lost')
    expect((await post('third')).turn.reply.text).toBe('seen 2: third')
    await expectOneLine(session)
  })

  it('is interrupted by kill -9 of the server, leaves no child behind, and goes on', async () => {
    const { session } = await post('before')
    await stored(await events(session))
    model.hold(2)
    const lost = post('during').catch(() => null)
    await model.asked(2)
    await server.kill()
    await lost
    await expect.poll(running, { timeout: 60_000 }).toEqual([])
    model.letGo()
    await start()
    const after = await post('after')
    expect(after.turn).toMatchObject({ state: 'done' })
    const log = await events(after.session)
    expect(log.filter(({ type }) => type === 'turn.interrupted')).toHaveLength(1)
    await expectOneLine(after.session)
  })

  aside(
    'withdraws an open ask when the server is killed, and asks again when told to',
    async () => {
      await post('before')
      const write = { file_path: join(folder, 'made.txt'), content: 'made' }
      const text = `tool Write ${JSON.stringify(write)}`
      const open = async (): Promise<any> => {
        const { sessions } = JSON.parse(await get('/v1/sessions'))
        return JSON.parse(await get(`/v1/sessions/${sessions[0].id}/asks`)).asks[0]
      }
      const lost = post(text).catch(() => null)
      await expect.poll(open, { timeout: 60_000 }).toBeDefined()
      await server.kill()
      await lost
      await expect.poll(running, { timeout: 60_000 }).toEqual([])
      await start()
      expect(await open()).toBeUndefined()
      const again = post(text)
      await expect.poll(open, { timeout: 60_000 }).toMatchObject({
        detail: { tool: 'Write', paths: [write.file_path] },
      })
      const { id } = await open()
      const { sessions } = JSON.parse(await get('/v1/sessions'))
      const answered = await fetch(`${server.url}/v1/sessions/${sessions[0].id}/asks/${id}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ answer: 'allow' }),
      })
      expect(answered.status).toBe(200)
      const { session, turn } = await again
      expect(turn.state).toBe('done')
      expect(await readFile(write.file_path, 'utf8')).toBe('made')
      const log = await events(session)
      const outcomes = log.flatMap(({ type, outcome }) => (type === 'ask.settled' ? [outcome] : []))
      expect(outcomes).toEqual(['withdrawn', 'answered'])
      await stored(log)
      const [transcript] = await transcripts()
      // Resumed, Claude Code leaves out a tool call without a result. Nothing that was said is lost.
      expect((await verifyFile(transcript?.file ?? '')).problems).toEqual([])
    },
  )
})
