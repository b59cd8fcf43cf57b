/** The conversation at a terminal, from outside: real processes against a real server. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent, type Holdfast } from 'holdfast'
import { CommandLine, hasTerminal, killCommands, TerminalLine } from '../support/command-line.ts'
import { until } from '../support/gate.ts'
import { Puppet } from '../support/puppet.ts'
import { freePort, ServerProcess } from '../support/server-process.ts'
import { serve, type TestServer } from '../support/server.ts'

let server: TestServer
let holdfast: Holdfast
let puppet = new Puppet()

/** Uses a tool, then asks which ones. */
const worker: Agent = async function* (_turn, { ask }) {
  const call = { id: 'x', name: 'Bash', kind: 'execute', input: { command: 'npm test' } }
  yield { type: 'activity', kind: 'tool', data: { ...call, status: 'running' } }
  yield { type: 'activity', kind: 'tool', data: { id: 'x', status: 'done' } }
  const options = ['red', 'green', 'blue']
  const accepts = ['several', 'text'] as const
  const outcome = await ask({ kind: 'question', question: 'Which?', options, accepts })
  return JSON.stringify(outcome.outcome === 'answered' ? outcome.answer : outcome)
}

const named: Agent = async (_turn, { settings }) => String(settings.mode)
const moody: Agent = Object.assign(named, { capabilities: { settings: ['mode'] as const } })

beforeAll(async () => {
  const played: Agent = (turn, context) => puppet.agent(turn, context)
  server = await serve({ agents: { ...builtinAgents, worker, moody, played } })
  holdfast = server.holdfast
})

afterEach(() => {
  killCommands()
  puppet = new Puppet()
})

afterAll(() => server.close())

const at = (): readonly string[] => ['--url', server.url.replace('http://', '')]

async function piped(args: readonly string[], input: string) {
  const command = new CommandLine(['chat', ...args, ...at()], { input })
  const code = await command.exited
  return { code, stdout: command.stdout, stderr: command.stderr }
}

function typing(args: readonly string[]): TerminalLine {
  return new TerminalLine(['chat', ...args, ...at()])
}

describe('chat through pipes', () => {
  it('takes a message per line, and puts only answers on stdout', async () => {
    const { code, stdout, stderr } = await piped(['lines'], 'one\n\ntwo\n//three\n')
    expect([code, stdout]).toEqual([0, 'one\ntwo\n/three\n'])
    expect(stderr).toBe('(session lines, agent echo, new; /help lists the commands)\n')
  })

  it('takes the line after an ask as its answer, with words for the agent', async () => {
    const { code, stdout, stderr } = await piped(
      ['asked', '--agent', 'ask'],
      'the door\nno\ndeny: it is late\nthe door\n1\n',
    )
    expect([code, stdout]).toEqual([0, 'I may not: it is late\nthe door\n'])
    expect(stderr).toContain('  command  say "the door"\n')
    expect(stderr).toContain('  +the door\n  1) allow\n  2) deny\n')
    expect(stderr).toMatch(/\(\d+ min \d+ s left to answer\)\n\(please answer with one of/)
  })

  it.each([
    ['1, 3', '["red","blue"]'],
    ['green', '"green"'],
    ['none of them', '{"text":"none of them"}'],
  ])('reads the answer %s in the form that the ask accepts', async (typed, answer) => {
    const { stdout, stderr } = await piped([typed, '--agent', 'worker'], `go\n${typed}\n`)
    expect(stdout).toBe(`${answer}\n`)
    expect(stderr).toContain('· execute  Bash npm test  (running)\n')
    expect(stderr).toContain('· execute  Bash npm test  (done)\n')
  })

  it('changes the mode of the session, by a flag or a command', async () => {
    const lines = 'x\n/mode fast\n/mode\nx\n'
    const { stdout, stderr } = await piped(['moods', '--agent', 'moody', '--mode', 'plan'], lines)
    expect(stdout).toBe('plan\nfast\n')
    expect(stderr).toContain('(mode: fast)')
    const refused = await piped(['moods'], '/model big\n')
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain('model')
  })

  it('says what is wrong, and fails with its turns', async () => {
    const { code, stderr } = await piped(['wrong'], '/nonsense\n/help\n/quit\nnever sent\n')
    expect(code).toBe(0)
    expect(stderr).toContain('there is no /nonsense')
    expect(stderr).toContain('(/cancel ')
    const open = await piped(['unanswered', '--agent', 'ask'], 'x\n')
    expect([open.code, open.stderr]).toEqual([1, expect.stringContaining('stdin has ended')])
  })
})

describe.runIf(hasTerminal)('chat at a terminal', () => {
  it('streams the answer, and keeps what is typed meanwhile', async () => {
    const line = typing(['typed', '--agent', 'played'])
    await line.said('/help lists')
    line.type('begin\r')
    const strings = await puppet.turn('begin')
    strings.say('first ')
    await line.said('first ')
    line.type('half a mess')
    await line.said('half a mess')
    strings.say('and more\nsecond')
    await line.said('and more')
    strings.end()
    line.type('age\r')
    const next = await puppet.turn('half a message')
    next.end('understood')
    await line.said('understood')
    line.type('/quit\r')
    expect(await line.exited).toBe(0)
    expect(line.stdout).toContain('second')
  })

  it('shows an ask with its time, and takes the answer', async () => {
    const line = typing(['prompted', '--agent', 'ask'])
    line.type('the door\r')
    await line.said('+the door')
    await line.said('min 58 s left)> ')
    line.type('1\r')
    await line.said('\nthe door\r\n')
    line.type('\u0004')
    expect(await line.exited).toBe(0)
  })

  it('shows the end of what was said before, and that there is more', async () => {
    const session = await holdfast.resolve({ key: 'long', agent: 'worker' })
    for (const text of ['one', 'two', 'three']) {
      const turn = session.turn(text)
      await until(async () => (await session.asks()).length > 0)
      await session.answer((await session.asks())[0]!.id, 'red')
      await turn
    }
    const line = typing(['long', '--history', '2'])
    await line.said('/help lists')
    const shown = line.stdout.replaceAll('\r', '')
    expect(shown).toContain('(1 earlier turn: holdfast export long --transcript')
    const call = '· execute  Bash npm test  (done)\n'
    const turn = (text: string) => `| ${text}\n${call}? Which? "red"\n"red"\n`
    expect(shown).toContain(`${turn('two')}${turn('three')}`)
    expect(shown).not.toContain('| one')
    line.type('\u0004')
    expect(await line.exited).toBe(0)
  })

  it('puts the arguments of an ask there to be changed', async () => {
    const line = typing(['edited', '--agent', 'ask'])
    line.type('the door\r')
    await line.said('edit changes the arguments')
    line.type('edit\r')
    await line.said('allow {"text":"the door"}')
    line.type('\u007F\u007F\u007F\u007F\u007F\u007Fgate"}\r')
    await line.said('\nthe gate\r\n')
    line.type('\u0004')
    expect(await line.exited).toBe(0)
  })

  it('cancels the running turn on Ctrl-C, and leaves on the next', async () => {
    const line = typing(['stopped', '--agent', 'played'])
    line.type('begin\r')
    const strings = await puppet.turn('begin')
    strings.say('a ')
    await line.said('a ')
    line.type('\u0003')
    await line.said('the turn was cancelled')
    line.type('\u0003')
    expect(await line.exited).toBe(130)
  })

  it('cancels by a command, and shows what other clients say and answer', async () => {
    const line = typing(['shared', '--agent', 'ask'])
    await line.said('/help lists')
    const session = (await holdfast.find('shared'))!
    const turn = session.turn('from elsewhere')
    await line.said('| from elsewhere')
    await line.said('2) deny')
    const [ask] = await session.asks()
    await session.answer(ask!.id, 'deny')
    await turn
    await line.said('no longer asked: answered: "deny"')
    line.type('mine\r')
    await line.said('say "mine"')
    line.type('/cancel\r')
    await line.said('the turn was cancelled')
    line.type('\u0004')
    expect(await line.exited).toBe(0)
  })

  it('goes on after the server was killed during a turn and started again', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-chat-'))
    const port = await freePort()
    const first = await ServerProcess.start({ data: folder, port })
    const line = new TerminalLine(['chat', 'kept', '--agent', 'slow', '--url', `localhost:${port}`])
    line.type(`${'one word after another '.repeat(40)}\r`)
    await until(async () => {
      const { body } = await first.get('/v1/sessions?key=kept')
      return body.sessions[0]?.status === 'running'
    })
    await first.kill()
    line.type('still here')
    await line.said('the connection is lost')
    const second = await ServerProcess.start({ data: folder, port })
    await line.said('the turn was interrupted')
    line.type('\r')
    await until(async () => {
      const { body } = await second.get('/v1/sessions?key=kept')
      const { id } = body.sessions[0]
      const transcript = await second.get(`/v1/sessions/${id}/transcript`)
      return JSON.stringify(transcript.body ?? transcript).includes('still here')
    })
    line.type('/quit\r')
    expect(await line.exited).toBe(0)
    await second.stop()
    rmSync(folder, { recursive: true })
  })
})
