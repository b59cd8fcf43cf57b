/** The commands for people, from outside: real processes against a real server. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent, type Holdfast } from 'holdfast'
import {
  CommandLine,
  hasTerminal,
  killCommands,
  TerminalLine,
  type CommandOptions,
} from '../support/command-line.ts'
import { CuttingProxy } from '../support/cutting-proxy.ts'
import { until } from '../support/gate.ts'
import { Puppet } from '../support/puppet.ts'
import { serve, type TestServer } from '../support/server.ts'

let folder = ''
let holdfast: Holdfast
let server: TestServer
let puppet = new Puppet()

/** Two messages in one turn, and no line break of its own. */
const thinker: Agent = async function* ({ text }) {
  yield 'let me '
  yield { type: 'message', text: 'let me think' }
  yield text
}

/** Does not hear that it is to stop. */
const deaf: Agent = async function* () {
  yield 'what? '
  await new Promise(() => undefined)
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-people-'))
  const played: Agent = (turn, context) => puppet.agent(turn, context)
  const agents = { ...builtinAgents, thinker, deaf, played }
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

const at = (url = server.url): readonly string[] => ['--url', url]

async function run(args: readonly string[], options: CommandOptions = {}) {
  const command = new CommandLine(args, options)
  const code = await command.exited
  return { code, stdout: command.stdout, stderr: command.stderr }
}

async function idOf(key: string): Promise<string> {
  const [row] = (await holdfast.list({ key })).sessions
  return row?.id ?? ''
}

describe('send', () => {
  it('prints the answer, and nothing else on stdout', async () => {
    expect(await run(['send', 'plain', 'hello', ...at()])).toEqual({
      code: 0,
      stdout: 'hello\n',
      stderr: '',
    })
  })

  it('reads the text from stdin, and puts each message on its own line', async () => {
    const words = ['send', 'piped', '--agent', 'thinker', ...at()]
    const { stdout } = await run(words, { input: 'from a pipe\n' })
    expect(stdout).toBe('let me think\nfrom a pipe\n')
  })

  it('streams the answer as it comes, of its own turn only', async () => {
    await (await holdfast.resolve({ key: 'streamed', agent: 'played' })).close()
    const session = await holdfast.resolve({ key: 'streamed', agent: 'played' })
    const other = session.turn('before')
    const first = await puppet.turn('before')
    const command = new CommandLine(['send', 'streamed', 'mine', ...at()])
    await until(async () => (await session.state()).attachments.length === 1)
    first.end('not yours')
    await other
    const strings = await puppet.turn('mine')
    strings.say('one ')
    await command.said('one ')
    strings.say('two')
    strings.end()
    expect([await command.exited, command.stdout]).toEqual([0, 'one two\n'])
  })

  it('tells programs the events of the turn', async () => {
    const { stdout } = await run(['send', 'events', 'hi', '--json', ...at()])
    const types = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).type)
    expect(types).toEqual(['turn.started', 'message.added', 'turn.done'])
  })

  it('gives the answer it was told to give', async () => {
    const words = ['send', 'told', 'the door', '--agent', 'ask', '--answer', 'allow', ...at()]
    expect((await run(words)).stdout).toBe('the door\n')
  })

  it('says how to answer where there is nobody to ask', async () => {
    const words = ['send', 'nobody', 'the door', '--agent', 'ask', ...at()]
    const command = new CommandLine(words)
    await command.said(`answer with: holdfast answer nobody/`)
    const [, shown = ''] = /answer with: holdfast (.+)\n/.exec(command.stderr) ?? []
    expect(shown).toMatch(/^answer nobody\/a\d+ allow --url http:/)
    const answered = await run(shown.replace(' allow ', ' deny ').split(' '))
    expect(answered.code).toBe(0)
    expect([await command.exited, command.stdout]).toEqual([0, 'I may not: denied\n'])
  })

  it('cancels the turn on Ctrl-C', async () => {
    const words = ['send', 'stopped', 'a b c', '--agent', 'played', ...at()]
    const command = new CommandLine(words)
    const strings = await puppet.turn('a b c')
    strings.say('a ')
    await command.said('a ')
    command.child.kill('SIGINT')
    expect(await command.exited).toBe(130)
    expect(command.stderr).toContain('cancelling')
    expect((await holdfast.session(await idOf('stopped')).finished('t3')).state).toBe('cancelled')
  })

  it('leaves on a second Ctrl-C, whatever the agent does', async () => {
    const command = new CommandLine(['send', 'left', 'x', '--agent', 'deaf', ...at()])
    await command.said('what?')
    command.child.kill('SIGINT')
    await command.said('cancelling')
    command.child.kill('SIGINT')
    expect(await command.exited).toBe(130)
    await holdfast.session(await idOf('left')).close()
  })

  it('says why a turn failed or was refused', async () => {
    const busy = await holdfast.resolve({ key: 'busy', agent: 'deaf' })
    const turn = busy.turn('for ever')
    await turn.admission
    const refused = await run(['send', 'busy', 'x', '--busy', 'reject', ...at()])
    expect([refused.code, refused.stdout]).toEqual([1, ''])
    expect(refused.stderr).toMatch(
      /^holdfast: session .* is busy: place 1 in its queue \(session_busy\)\n$/,
    )
    const mismatch = await run(['send', 'busy', 'x', '--agent', 'echo', ...at()])
    expect([mismatch.code, mismatch.stderr]).toEqual([1, expect.stringContaining('agent deaf')])
    await busy.close()
  })

  it.runIf(hasTerminal)('asks at the prompt, until the answer is one', async () => {
    const line = new TerminalLine(['send', 'prompted', 'the door', '--agent', 'ask', ...at()])
    await line.said('2) deny')
    line.type('perhaps\r')
    await line.said('please answer')
    line.type('1\r')
    expect(await line.exited).toBe(0)
    expect(line.stdout).toMatch(/the door\r?\n$/)
  })

  it.runIf(hasTerminal)('stops asking when somebody else has answered', async () => {
    const line = new TerminalLine(['send', 'elsewhere', 'the door', '--agent', 'ask', ...at()])
    await line.said('2) deny')
    const session = holdfast.session(await idOf('elsewhere'))
    const [ask] = await session.asks()
    await session.answer(ask!.id, 'deny')
    expect(await line.exited).toBe(0)
    expect(line.stdout).toContain('(no longer asked)')
    expect(line.stdout).toContain('I may not: denied')
  })

  it.runIf(hasTerminal)('cancels from the prompt too', async () => {
    const line = new TerminalLine(['send', 'no answer', 'the door', '--agent', 'ask', ...at()])
    await line.said('2) deny')
    line.type('\u0003')
    expect(await line.exited).toBe(130)
    expect((await holdfast.session(await idOf('no answer')).finished('t3')).state).toBe('cancelled')
  })
})

describe('sessions', () => {
  it('are listed for people and for programs', async () => {
    const session = await holdfast.resolve({ key: 'listed\u001b[2J', labels: { shown: 'yes' } })
    const table = await run(['sessions', '--label', 'shown:yes', ...at()])
    const [head, row] = table.stdout.split('\n')
    expect(head).toMatch(/^ID +KEY +AGENT +STATE +STATUS +EVENTS +CHANGED$/)
    expect(row).toMatch(new RegExp(`^${session.id} +listed\uFFFD\\[2J +echo +open +idle +1 +2`))
    await session.close()
    const closed = ['--label', 'shown:yes', '--state', 'closed', '--json', ...at()]
    expect(JSON.parse((await run(['sessions', ...closed])).stdout)).toMatchObject({
      id: session.id,
      state: 'closed',
    })
    const none = await run(['sessions', '--key', 'no such key', ...at()])
    expect(none.stdout).toBe('no sessions\n')
  })

  it('are closed by id or key', async () => {
    const { id } = await holdfast.resolve({ key: 'to close' })
    const { stdout } = await run(['close', 'to close', ...at()])
    expect(stdout).toBe(`holdfast: session ${id} is closed\n`)
    expect((await holdfast.session(id).state()).closed).not.toBeNull()
    const erased = await run(['close', id, '--erase', '--json', ...at()])
    expect(JSON.parse(erased.stdout)).toEqual({ id, state: 'closed', erased: true, left: [] })
    const again = await run(['close', 'never there', ...at()])
    expect([again.code, again.stderr]).toEqual([
      1,
      'holdfast: there is no session with the id or key never there (session_unknown)\n',
    ])
  })
})

describe('queue', () => {
  it('lists what runs and waits, and takes a request back before anything of it has run', async () => {
    const session = await holdfast.resolve({ key: 'a queue', agent: 'played' })
    const show = (...more: string[]) => run(['queue', 'a queue', ...more, ...at()])
    const first = session.turn('runs')
    const strings = await puppet.turn('runs')
    const second = new CommandLine(['send', 'a queue', 'never', ...at()])
    await until(async () => (await session.overview()).queue.length === 1)
    const { id: queued } = await session.submit('later')
    const table = (await show()).stdout.trimEnd().split('\n')
    const cells = table.map((line) => line.split(/ {2,}/))
    const request = cells[2]?.[1] ?? ''
    expect(cells).toEqual([
      ['PLACE', 'ID', 'STATE', 'BUSY', 'SINCE', 'BY'],
      ['-', 't2', 'running', '-', '-', '-'],
      ['1', expect.stringMatching(/^r_/), 'waiting', 'queue', expect.any(String), 'local'],
      ['2', queued, 'queued', 'queue', expect.any(String), 'local'],
    ])
    expect(await show('--cancel', request)).toEqual({
      code: 0,
      stdout: `holdfast: request ${request} is cancelled; nothing of it has run\n`,
      stderr: '',
    })
    expect([await second.exited, second.stderr]).toEqual([
      1,
      'holdfast: the request was cancelled while it waited (cancelled)\n',
    ])
    const [row] = (await show('--json')).stdout.split('\n')
    expect(JSON.parse(row!)).toMatchObject({ turn: queued, state: 'queued', position: 1 })
    expect((await show('--cancel', queued)).stdout).toBe(`holdfast: turn ${queued} is cancelled\n`)
    strings.end('done')
    await first
    for await (const { text } of session.messages()) expect(text).not.toBe('never')
  })
})

describe('tail', () => {
  it('follows a session to its end, over a lost connection too', async () => {
    const proxy = new CuttingProxy(server.port)
    const url = await proxy.listen()
    const session = await holdfast.resolve({ key: 'followed' })
    await session.turn('one')
    const command = new CommandLine(['tail', 'followed', '--after', '1', ...at(url)])
    await command.said('t2 turn.done')
    proxy.cut()
    await session.turn('two\nlines')
    await command.said('t5 turn.done')
    await session.close()
    expect(await command.exited).toBe(0)
    const lines = command.stdout.trimEnd().split('\n')
    expect(lines.map((line) => Number(line.trim().split(' ')[0]))).toEqual([2, 3, 4, 5, 6, 7, 8])
    expect(command.stdout).toContain('t5 turn.started  "two\\nlines"')
    await proxy.close()
  })

  it('gives programs the events as they are in the log', async () => {
    const session = await holdfast.resolve({ key: 'followed by a program', agent: 'thinker' })
    await session.turn('x')
    await session.close()
    const { stdout } = await run(['tail', session.id, '--json', ...at()])
    const exported = await run(['export', session.id, ...at()])
    expect(stdout).toBe(exported.stdout)
    expect(stdout.trimEnd().split('\n').at(-1)).toContain('"session.closed"')
  })
})

describe('export and verify', () => {
  it('write a log, and prove it, wherever it is', async () => {
    const session = await holdfast.resolve({ key: 'proved' })
    for (const text of ['one', 'two']) await session.turn(text)
    const log = join(folder, 'log.jsonl')
    expect((await run(['export', 'proved', '--out', log, ...at()])).stderr).toContain('7 lines')
    const transcript = join(folder, 'transcript.jsonl')
    const words = ['export', 'proved', '--transcript', '--out', transcript, ...at()]
    expect((await run(words)).stderr).toContain('4 lines')
    const targets = [
      ['proved', ...at()],
      [log],
      [transcript],
      ['proved', '--store', `sqlite:${join(folder, 'holdfast.db')}`],
    ]
    const verdicts = await Promise.all(targets.map((target) => run(['verify', ...target])))
    const good = expect.stringMatching(/^ok .* 2 turns\n1 checked, 0 bad\n$/)
    expect(verdicts.map(({ code, stdout }) => [code, stdout])).toEqual(targets.map(() => [0, good]))
    const again = await run(['export', 'proved', '--out', log, ...at()])
    expect([again.code, again.stderr]).toEqual([1, `holdfast: cannot write ${log}: it exists\n`])
  })

  it('prove every session, internal ones in the store too, and what is not over is no fault', async () => {
    const running = await holdfast.resolve({ key: 'running', agent: 'deaf' })
    await running.turn('x').admission
    await holdfast.turn({ internal: true }, 'unseen')
    const live = await run(['verify', '--json', ...at()])
    const inStore = await run(['verify', '--json', '--data', folder])
    expect([live.code, inStore.code]).toEqual([0, 0])
    const [one, other] = [live, inStore].map(({ stdout }) => stdout.trimEnd().split('\n'))
    expect(other!.length).toBeGreaterThan(one!.length)
    const found = one!.map((line) => JSON.parse(line)).find(({ key }) => key === 'running')
    expect(found).toMatchObject({ problems: [], pending: ['t2'] })
    const strict = await run(['verify', 'running', '--settled', ...at()])
    expect([strict.code, strict.stdout]).toEqual([1, expect.stringContaining('t2 is not over')])
    await running.close()
  })

  it('tell what is wrong with a log, line by line', async () => {
    const session = await holdfast.resolve({ key: 'broken' })
    await session.turn('one')
    const { stdout } = await run(['export', 'broken', ...at()])
    const file = join(folder, 'broken.jsonl')
    const lines = stdout.trimEnd().split('\n')
    writeFileSync(file, [...lines.filter((_, index) => index !== 2), '{"torn'].join('\n'))
    const verdict = await run(['verify', file])
    expect(verdict.code).toBe(1)
    expect(verdict.stdout).toContain('BAD')
    expect(verdict.stdout).toContain('event 4 (turn.done) follows event 2')
    expect(verdict.stdout).toContain('line 4 is no JSON object')
  })

  it('find the fork in a Claude Code transcript', async () => {
    const line = (uuid: string, parentUuid: string | null, type: string) =>
      JSON.stringify({ uuid, parentUuid, type, sessionId: 's', message: { content: uuid } })
    const lines = [
      JSON.stringify({ type: 'queue-operation', operation: 'enqueue' }),
      line('a', null, 'user'),
      line('b', 'a', 'assistant'),
      line('c', 'b', 'user'),
      line('d', 'b', 'user'),
      line('e', 'd', 'assistant'),
    ]
    const file = join(folder, 'claude.jsonl')
    writeFileSync(file, `${lines.join('\n')}\n`)
    const verdict = await run(['verify', file])
    expect([verdict.code, verdict.stdout]).toEqual([
      1,
      expect.stringContaining('fork: the prompt in line 4 is not remembered at the end'),
    ])
    writeFileSync(file, `${lines.filter((_, index) => index !== 3).join('\n')}\n`)
    expect((await run(['verify', file])).code).toBe(0)
  })
})

describe('a server with tokens', () => {
  it('is shown the token of a file or of the environment, and nothing prints it', async () => {
    const token = 'hf_secret'
    const tokens = {
      scopesOf: (shown: string) => (shown === token ? (['watch', 'talk'] as const) : null),
      close: () => undefined,
    }
    const guarded = await serve({ tokens })
    const url = at(guarded.url)
    const file = join(folder, 'token')
    writeFileSync(file, `${token}\n`)
    expect((await run(['send', 'k', 'x', '--token-file', file, ...url])).stdout).toBe('x\n')
    const env = { HOLDFAST_TOKEN: token, HOLDFAST_URL: guarded.url }
    expect((await run(['sessions'], { env })).stdout).toContain(' k ')
    const refused = await run(['sessions', ...url])
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('--token-file')])
    const forbidden = await run(['close', 'k', '--token-file', file, ...url])
    expect([forbidden.code, forbidden.stderr]).toEqual([1, expect.stringContaining('manage')])
    expect(`${refused.stderr}${forbidden.stderr}`).not.toContain(token)
    await guarded.close()
  })
})

it('tells in one line what is wrong with a command line, or with the world', async () => {
  const wrong: readonly (readonly [readonly string[], number, string])[] = [
    [['send'], 2, 'a KEY and a "TEXT"'],
    [['send', 'k', 'x', '--busy', 'wait'], 2, 'queue, reject, interrupt, collect'],
    [['sessions', '--state', 'ajar'], 2, 'open or closed'],
    [['tail', 'k', '--after', 'x'], 2, 'number of an event'],
    [['close'], 2, 'one ID or KEY'],
    [['queue', 'a', 'b'], 2, 'one ID or KEY'],
    [['export', 'a', 'b'], 2, 'one ID or KEY'],
    [['verify', '--url', 'ftp://x'], 2, 'http:// or https://'],
    [['sesions'], 2, 'do you mean sessions?'],
    [['sessions', '--url', 'http://127.0.0.1:1'], 1, 'is holdfast serve running?'],
    [['verify', 'x', '--store', 'sqlite:/no/such/file'], 1, 'there is no file'],
  ]
  const results = await Promise.all(wrong.map(([args]) => run(args)))
  for (const [index, { code, stdout, stderr }] of results.entries()) {
    const [, expected, hint] = wrong[index]!
    expect([code, stdout]).toEqual([expected, ''])
    expect(stderr).toMatch(/^holdfast: .*\n$/)
    expect(stderr).toContain(hint)
  }
})

it('tells about every command', async () => {
  const names = ['send', 'sessions', 'tail', 'queue', 'close', 'export', 'verify']
  const [overview, ...each] = await Promise.all(
    [['--help'], ...names.map((name) => [name, '--help'])].map((args) => run(args)),
  )
  for (const [index, name] of names.entries()) {
    expect(overview!.stdout).toContain(`holdfast ${name} `)
    expect(each[index]!.stdout).toMatch(/--url URL +where the server is/)
  }
})
