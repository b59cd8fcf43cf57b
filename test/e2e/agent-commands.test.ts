/** Commands about agents and their conversations, and what they print of hostile texts. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  builtinAgents,
  HoldfastError,
  processRunner,
  type Agent,
  type Holdfast,
  type Runner,
  type SessionHandle,
} from 'holdfast'
import {
  CommandLine,
  hasTerminal,
  killCommands,
  TerminalLine,
  type CommandOptions,
} from '../support/command-line.ts'
import { functionRunner } from '../../src/runners/function.ts'
import { until } from '../support/gate.ts'
import { Puppet } from '../support/puppet.ts'
import { serve, type TestServer } from '../support/server.ts'

let folder = ''
let server: TestServer
let holdfast: Holdfast
let puppet = new Puppet()

/** What would clear the screen, set its title, reorder and hide text; some of it in two parts. */
const EVIL = 'a\u001B[2Jb\u009B31mc\u202Ed\u2066e\u200Bf\u{E0041}g\u2028h\u0007i\u009D0;x\u0007\r'
const HOSTILE = /[^\P{Cc}\r\n\t]|[\u202A-\u202E\u2066-\u2069\u200B\u2028\u{E0041}]/u

const evil: Agent = async function* (_turn, { ask }) {
  yield 'x\u001B'
  yield '[2Jy'
  yield { type: 'activity', kind: 'tool', data: { id: 'z', title: EVIL, status: 'done' } }
  const option = { id: EVIL, label: EVIL }
  const detail = { command: EVIL, diff: [{ path: EVIL, before: null, after: EVIL }] }
  await ask({ kind: 'permission', question: EVIL, options: [option], detail })
  yield EVIL
  throw new HoldfastError('internal', EVIL)
}

const EARLIER = { role: 'user', text: 'earlier', at: 1 } as const

const forkable: Runner = {
  ...functionRunner(
    Object.assign(async () => 'yes', { capabilities: { fork: 'any', modes: ['plan'] } as const }),
  ),
  adopt: async (backend) => {
    if (backend !== 'known') throw new HoldfastError('invalid_field', `there is no ${backend}`)
    return { messages: [EARLIER] }
  },
}

const MODELS = Array.from({ length: 20 }, (_, index) => `model-${index}`)

const placed: Agent = Object.assign(
  async function* () {
    yield { type: 'activity', kind: 'position', data: {} } as const
    yield 'yes'
  },
  { capabilities: { settings: ['cwd'] as const, models: MODELS } },
)

/** Its own program has written two messages, it says. */
const continued: Runner = {
  ...functionRunner(placed),
  adopt: async (_backend, { cwd }) => ({ messages: [{ ...EARLIER, text: `in ${cwd}` }] }),
  terminal: () => ({ command: ['continued'], cwd: '/' }),
  writtenOutside: async (_session, last) => (last.position === null ? null : [EARLIER, EARLIER]),
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-agents-'))
  const line = JSON.stringify({ type: 'result', subtype: 'success', result: 'done' })
  const args = ['-e', `console.log(${JSON.stringify(line)})`, '{sessionUuid}']
  const claude = processRunner({ command: process.execPath, args, output: 'claude', folder })
  const played: Agent = (turn, context) => puppet.agent(turn, context)
  const agents = { ...builtinAgents, evil, forkable, continued, claude, played }
  server = await serve({ store: `sqlite:${join(folder, 'holdfast.db')}`, agents })
  holdfast = server.holdfast
})

afterEach(() => {
  killCommands()
  puppet = new Puppet()
})

afterAll(async () => {
  await server.close()
  rmSync(folder, { recursive: true })
})

/** Without its scheme. */
const at = (): readonly string[] => ['--url', server.url.replace('http://', '')]

async function run(args: readonly string[], options: CommandOptions = {}) {
  const command = new CommandLine([...args, ...at()], options)
  const code = await command.exited
  return { code, stdout: command.stdout, stderr: command.stderr }
}

/** The first request that waits, by its id. */
async function waitingIn(session: SessionHandle): Promise<string> {
  let id = ''
  await until(async () => {
    const [row] = (await session.overview()).queue
    id = row?.state === 'waiting' ? row.request : ''
    return id !== ''
  })
  return id
}

describe('commands about agents', () => {
  it('list the agents and what each can do', async () => {
    const { stdout } = await run(['agents'])
    expect(stdout).toMatch(
      /^AGENT +CAN +SETTINGS +MODES +MODELS\necho \(default\) +- +instructions/,
    )
    expect(stdout).toMatch(/\nask +asks +instructions/)
    expect(stdout).toMatch(/\nforkable +fork:any +instructions +plan/)
    expect(stdout).toContain(' model-0,model-1,model-2,model-3,model-4,… (+15)\n')
    const rows = (await run(['agents', '--json'])).stdout.trimEnd().split('\n')
    expect(rows.map((row) => JSON.parse(row).name)).toContain('evil')
  })

  it('cancel the running turn, or the one that is named', async () => {
    const session = await holdfast.resolve({ key: 'stop', agent: 'played' })
    const [first, second] = [session.turn('one'), session.turn('two')]
    await puppet.turn('one')
    const id = await waitingIn(session)
    expect((await run(['cancel', 'stop', id])).stdout).toContain(id)
    await expect(second).rejects.toThrow('cancelled')
    expect((await run(['cancel', 'stop'])).stdout).toContain('is cancelled')
    expect((await first).state).toBe('cancelled')
    const none = await run(['cancel', 'stop'])
    expect([none.code, none.stderr]).toEqual([1, 'holdfast: no turn is running\n'])
  })

  it('fork a session at a turn, or say that its agent cannot', async () => {
    const session = await holdfast.resolve({ key: 'trunk', agent: 'forkable' })
    const { id } = await session.turn('x')
    const words = ['fork', 'trunk', '--turn', id, '--key', 'branch', '--json']
    const forked = JSON.parse((await run(words)).stdout)
    expect(forked).toMatchObject({ key: 'branch', origin: { session: session.id, turn: id } })
    expect((await run(words.slice(0, -1))).stdout).toContain('was forked before')
    await (await holdfast.resolve({ key: 'stump' })).turn('x')
    expect((await run(['fork', 'stump', '--key', 'b'])).stderr).toContain('cannot be forked')
    expect((await run(['fork', 'trunk'])).stderr).toContain('--key KEY is required')
  })

  it('adopt a conversation that was begun elsewhere', async () => {
    const { stdout } = await run(['adopt', 'forkable', 'known', '--key', 'mine'])
    expect(stdout).toMatch(/^holdfast: session \S+ of mine continues known\n$/)
    const unknown = await run(['adopt', 'forkable', 'nothing', '--key', 'other'])
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      'holdfast: there is no nothing (invalid_field)\n',
    ])
  })

  it("print the command that continues a session in the agent's program", async () => {
    const session = await holdfast.resolve({ key: 'to open', agent: 'claude' })
    const early = await run(['open', 'to open'])
    expect([early.code, early.stderr]).toEqual([1, expect.stringContaining('no conversation')])
    await session.turn('x')
    const { backend } = await session.state()
    const { stdout, stderr } = await run(['open', 'to open'])
    expect(stderr).toBe('')
    const [, cwd = ''] = /^cd (\S+) && \S+ --resume (\S+)\n$/.exec(stdout) ?? []
    expect(cwd).toMatch(new RegExp(`^${folder}/`))
    expect(stdout).toContain(` --resume ${backend}\n`)
    expect(JSON.parse((await run(['open', session.id, '--json'])).stdout)).toEqual({
      command: [process.execPath, '--resume', backend],
      cwd,
      host: hostname(),
      writtenOutside: null,
    })
    await (await holdfast.resolve({ key: 'echoes' })).turn('x')
    expect((await run(['open', 'echoes'])).code).toBe(1)
  })
})

describe('a session that was continued in the own program of its agent', () => {
  it('is found by verify, and told by open', async () => {
    const adopted = await run(['adopt', 'continued', 'x', '--key', 'elsewhere', '--cwd', '/srv'])
    expect(adopted.code).toBe(0)
    const session = await holdfast.resolve({ key: 'elsewhere' })
    const { stdout } = await run(['export', 'elsewhere', '--transcript'])
    expect(JSON.parse(stdout)).toMatchObject({ role: 'user', text: 'in /srv' })
    expect((await run(['verify', 'elsewhere'])).code).toBe(0)
    await session.turn('x')
    const { code, stdout: found } = await run(['verify', 'elsewhere'])
    expect([code, found]).toEqual([1, expect.stringContaining('     2 messages of the agent')])
    const opened = await run(['open', 'elsewhere'])
    expect(opened.stdout).toBe('cd / && continued\n')
    expect(opened.stderr).toContain('2 messages were written there since the last turn')
    // What becomes of the conversation after that is no matter of the session.
    await session.close()
    expect((await run(['verify', session.id])).code).toBe(0)
  })
})

describe('verify', () => {
  it('checks many files and sessions at once, with a line for each', async () => {
    const { id } = await holdfast.resolve({ key: 'checked' })
    await holdfast.session(id).turn('x')
    const files = ['one', 'two'].map((name) => join(folder, `${name}.jsonl`))
    const { stdout: log } = await run(['export', id])
    for (const file of files) writeFileSync(file, log)
    const bad = join(folder, 'bad.jsonl')
    writeFileSync(bad, log.split('\n').slice(1).join('\n'))
    const good = await run(['verify', ...files, 'checked'])
    expect([good.code, good.stdout]).toEqual([
      0,
      expect.stringMatching(/^ok .*one.*\nok .*two.*\nok .*\n3 checked, 0 bad\n$/),
    ])
    const missing = join(folder, 'missing.jsonl')
    const mixed = await run(['verify', files[0]!, bad, missing, files[1]!])
    expect(mixed.code).toBe(1)
    expect(mixed.stdout).toMatch(
      /^ok (.|\n)*\nBAD (.|\n)*bad(.|\n)*\nBAD (.|\n)*missing(.|\n)*\nok /,
    )
    expect(mixed.stdout).toContain('4 checked, 2 bad\n')
    const stored = await run(['verify', 'checked', 'nowhere', '--data', folder])
    expect([stored.code, stored.stderr]).toEqual([1, expect.stringContaining('nowhere')])
  })
})

describe('send', () => {
  it('says that it waits for an answer to an ask of the turn before', async () => {
    const session = await holdfast.resolve({ key: 'waits', agent: 'ask' })
    const before = session.turn('before')
    const command = new CommandLine(['send', 'waits', 'after', '--answer', '1', ...at()])
    await command.said(String.raw`waiting for an answer to "May I say \"before\"?"`)
    const [ask] = await session.asks()
    await session.answer(ask!.id, { option: 'deny', message: 'no' })
    expect((await before).reply?.text).toBe('I may not: no')
    expect([await command.exited, command.stdout]).toEqual([0, 'after\n'])
  })

  it('has settings of its own turn, which the agent has to support', async () => {
    const { code, stderr } = await run(['send', 'modes', 'x', '--mode', 'plan'])
    expect([code, stderr]).toEqual([1, expect.stringContaining('mode')])
    expect((await run(['send', 'modes', 'x', '--instructions', 'be brief'])).code).toBe(0)
  })
})

describe.runIf(hasTerminal)('texts of a hostile agent, key and client', () => {
  /** But the sequences that this program's own prompts and colours consist of. */
  const withoutPrompts = (output: string): string =>
    output.replaceAll(new RegExp(String.raw`\u001B\[(\d*[GA]|0J|3[12]m|0m)`, 'g'), '')

  /** What a terminal got. */
  async function shown(args: readonly string[], typed: readonly string[] = []): Promise<string> {
    const line = new TerminalLine([...args, ...at()])
    for (const text of typed) {
      await line.said('1) ')
      line.type(text)
    }
    await line.exited
    return withoutPrompts(line.stdout)
  }

  it('reach the terminal of no command as sequences, reordered or hidden', async () => {
    const key = `k${EVIL.trimEnd()}`
    const session = await holdfast.resolve({ key, agent: 'evil' })
    const byId = session.id
    const sent = await shown(['send', key, EVIL], ['1\r'])
    expect(sent).toContain('x\uFFFD[2Jy')
    const queued = session.turn(EVIL)
    const waiting = session.turn(EVIL)
    await waitingIn(session)
    const outputs = new Map<string, string>([['send', sent]])
    for (const args of [
      ['sessions'],
      ['sessions', '--json'],
      ['asks'],
      ['asks', '--json'],
      ['answer', byId, 'none'],
      ['queue', byId],
      ['queue', byId, '--json'],
      ['export', byId],
      ['export', byId, '--transcript'],
      ['verify', byId],
      ['cancel', byId, EVIL],
      ['fork', byId, '--key', EVIL],
      ['adopt', EVIL, EVIL, '--key', EVIL],
      ['open', byId],
      ['agents'],
      ['close', EVIL],
      ['send', key, 'x', '--busy', 'reject'],
    ]) {
      outputs.set(args.join(' '), await shown(args))
    }
    await session.close()
    await Promise.allSettled([queued, waiting])
    outputs.set('tail', await shown(['tail', byId, '--deltas']))
    outputs.set('tail --json', await shown(['tail', byId, '--deltas', '--json']))
    const talk = new TerminalLine(['chat', `${key}2`, '--agent', 'evil', ...at()])
    talk.type('go\r')
    await talk.said('1) ')
    talk.type('1\r')
    await talk.said('the turn failed')
    talk.type('\u0004')
    await talk.exited
    outputs.set('chat', withoutPrompts(talk.stdout))
    for (const [name, output] of outputs) {
      expect(output, name).not.toBe('')
      expect([name, HOSTILE.exec(output)?.[0]]).toEqual([name, undefined])
    }
  })
})
