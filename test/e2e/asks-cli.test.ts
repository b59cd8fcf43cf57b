/** `holdfast asks` and `holdfast answer`, as processes of their own against a server. */
import type { Agent } from 'holdfast'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { CommandLine, hasTerminal, killCommands, TerminalLine } from '../support/command-line.ts'
import { until } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'

const OPTIONS = [
  { id: 'allow', label: 'Allow' },
  { id: 'deny', label: 'Deny' },
]
/** Asks as its input says, as JSON, and answers with what came of it. */
const asker: Agent = async ({ text }, context) => {
  const question = { kind: 'permission', question: 'May I?', options: OPTIONS }
  return JSON.stringify(await context.ask({ ...question, ...JSON.parse(text) }))
}

let server: TestServer
beforeAll(async () => {
  server = await serve({ agents: { asker } })
})
afterEach(killCommands)
afterAll(() => server.close())

/** A turn that asks; resolves once it does, with its end. */
async function asking(key: string, question: object = {}) {
  const turn = server.holdfast.turn({ key }, JSON.stringify(question))
  const ended = turn.then(({ reply }) => JSON.parse(reply?.text ?? '') as { answer?: unknown })
  await until(async () => {
    const { asks } = await server.holdfast.listAsks()
    return asks.some(({ row }) => row.key === key)
  })
  return { ended }
}

async function run(...args: readonly string[]) {
  const command = new CommandLine([...args, '--url', server.url])
  const code = await command.exited
  return { code, out: command.stdout, err: command.stderr }
}

describe('holdfast asks', () => {
  it('shows what waits, with what it is about and nothing that controls the terminal', async () => {
    expect(await run('asks')).toMatchObject({ code: 0, out: 'nothing waits for an answer\n' })
    const diff = [{ path: 'notes.md', before: 'one\n', after: 'two\u001b[2J\n' }]
    const { ended } = await asking('shown', { question: 'Edit\u202E it?', detail: { diff } })
    const { code, out } = await run('asks')
    expect(code).toBe(0)
    expect(out.replace(/\d+ min \d+ s left/, 'TIME')).toBe(
      [
        'shown/a3  permission  asker  TIME',
        '? Edit\uFFFD it?',
        '  diff notes.md',
        '    @@ line 1 @@',
        '    -one',
        '    +two\uFFFD[2J',
        '  1) Allow (allow)',
        '  2) Deny (deny)',
        '',
      ].join('\n'),
    )
    const [ask] = (await run('asks', '--json', '--session', 'shown', '--kind', 'permission')).out
      .split('\n')
      .map((line) => JSON.parse(line || 'null'))
    expect(ask).toMatchObject({ id: 'a3', session: { key: 'shown' }, detail: { diff } })
    expect((await run('asks', '--kind', 'question')).out).toContain('nothing waits')
    expect(await run('answer', 'shown', 'allow')).toMatchObject({
      code: 0,
      out: 'holdfast: shown/a3 is answered\n',
    })
    expect(await ended).toMatchObject({ answer: 'allow' })
  })

  it('follows what is asked and settled, and counts if it says that it answers', async () => {
    const args = ['asks', '--follow', '--answers', 'permission', '--url', server.url]
    const following = new CommandLine(args)
    const denied = { onNobody: 'deny', timeoutMs: 60_000 }
    await until(async () => {
      const { reply } = await server.holdfast.turn(
        { key: 'waiting-for-follower' },
        JSON.stringify({ ...denied, timeoutMs: 1 }),
      )
      return reply?.text.includes('timed_out') === true
    })
    const { ended } = await asking('followed', denied)
    await following.said('followed/a3  permission')
    expect((await run('answer', 'followed/a3', '2')).code).toBe(0)
    await following.said('followed/a3  answered: "deny"')
    expect(await ended).toMatchObject({ answer: 'deny' })
  })
})

describe('holdfast grants', () => {
  it('lists what is always allowed, and takes some of it back by its id or label', async () => {
    const grants = ['ls', 'rm\u001b[2J', 'cp'].map((label) => ({ label, data: { label } }))
    const options = [{ id: 'always', label: 'Always', grants }]
    const { ended } = await asking('granting', { options })
    expect((await run('grants', 'granting')).out).toBe('nothing is always allowed\n')
    await run('answer', 'granting', 'always')
    await ended
    const rows = (await run('grants', 'granting')).out.trim().split('\n').slice(1)
    expect(rows.map((row) => row.split(/ +/)[1])).toEqual(['ls', 'rm\uFFFD[2J', 'cp'])
    const session = await server.holdfast.find('granting')
    const id = (await session!.grants())[1]!.id
    expect((await run('grants', 'granting', '--revoke', 'none')).code).toBe(1)
    expect(await run('grants', 'granting', '--revoke', id, '--revoke', 'ls')).toMatchObject({
      code: 0,
      out: 'holdfast: not allowed any more: rm\uFFFD[2J\nholdfast: not allowed any more: ls\n',
    })
    const [left, ...others] = (await run('grants', 'granting', '--json')).out.trim().split('\n')
    expect([JSON.parse(left!), others]).toMatchObject([{ label: 'cp' }, []])
  })
})

describe('holdfast answer', () => {
  it('gives a message with an option, several options, and words of its own', async () => {
    const accepts = ['message', 'several', 'text']
    const cases = [
      [['deny', '--message', 'not now'], { option: 'deny', message: 'not now' }],
      [
        ['allow', 'Deny'],
        ['allow', 'deny'],
      ],
      [['--text', 'in my words'], { text: 'in my words' }],
    ] as const
    for (const [args, expected] of cases) {
      const { ended } = await asking('forms', { accepts })
      expect(await run('answer', 'forms', ...args)).toMatchObject({ code: 0, err: '' })
      expect((await ended).answer).toEqual(expected)
    }
  })

  it('says what is wrong, and answers nothing', async () => {
    const { ended } = await asking('wrong')
    const cases = [
      [['wrong', 'perhaps'], 2, 'perhaps is not one of the options: allow, deny'],
      [['wrong'], 2, 'answer needs an OPTION: allow, deny'],
      [['wrong/a99', 'allow'], 1, 'nothing waits for an answer as wrong/a99'],
      [['none-such', 'allow'], 1, 'there is no session with the id or key none-such'],
      [['wrong', 'allow', '--text', 'x'], 2, '--text is instead of an OPTION'],
      [['wrong', 'deny', '--message', 'x'], 1, 'an answer to this ask has no message'],
    ] as const
    for (const [args, code, message] of cases) {
      const { err, ...told } = await run('answer', ...args)
      expect([args, told.code, err]).toEqual([args, code, expect.stringContaining(message)])
    }
    expect((await run('answer', 'a3', 'allow')).code).toBe(0)
    expect(await ended).toMatchObject({ answer: 'allow' })
  })

  it.runIf(hasTerminal)('prompts at a terminal if no option is given', async () => {
    const { ended } = await asking('prompted', { detail: { command: 'rm -r build' } })
    const terminal = new TerminalLine(['answer', 'prompted', '--url', server.url])
    await terminal.said('command  rm -r build')
    await terminal.said('> ')
    terminal.type('allow\n')
    expect(await terminal.exited).toBe(0)
    expect(await ended).toMatchObject({ answer: 'allow' })
  })
})
