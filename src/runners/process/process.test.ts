/** Programs of all sorts as agents: what they are given, how they are bounded, and how they end. */
import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { until } from '../../../test/support/gate.ts'
import { isAlive } from '../../../test/support/processes.ts'
import type { Holdfast, Limits, SessionHandle, Store } from '../../core/index.ts'
import { openHoldfast } from '../../open.ts'
import { MemoryStore } from '../../stores/memory.ts'
import { folderName } from '../../platform/processes.ts'
import { ProcessRunner, type ProcessOptions } from './index.ts'

let folder: string
let holdfast: Holdfast

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-process-'))
})
afterEach(async () => {
  await holdfast.close()
  await rm(folder, { recursive: true, force: true })
})

/** A session of an agent that is this script of Node, or another program. */
async function sessionOf(
  script: string,
  options: Partial<ProcessOptions> = {},
  limits: Partial<Limits> = {},
  store: Store | string = 'memory:',
): Promise<SessionHandle> {
  const { args = [] } = options
  const agent = new ProcessRunner({
    command: process.execPath,
    folder,
    ...options,
    args: ['-e', script, '--', ...args],
  })
  holdfast = await openHoldfast({ store, agents: { agent }, limits })
  return holdfast.resolve()
}

async function activitiesOf(session: SessionHandle): Promise<any[]> {
  const { events } = await session.read(0, 500)
  return events.map(({ body }) => JSON.parse(body)).filter(({ type }) => type === 'turn.activity')
}

const ECHO = `process.stdin.pipe(process.stdout)`
const GIVEN = `process.stdout.write(JSON.stringify(process.argv.slice(1)))`

describe('a program', () => {
  it('is given the text by its input, and its output is the answer', async () => {
    const session = await sessionOf(ECHO)
    const text = 'a "quoted" $HOME; `text`\n é 👩‍🚀'
    expect((await session.turn(text)).reply?.text).toBe(text)
  })

  it('is given the text as one argument, whatever is in it', async () => {
    const session = await sessionOf(GIVEN, { args: ['x={text}', '{text}', 'a b'] })
    const text = `'; rm -rf * {sessionUuid} {text}`
    const turn = await session.turn(text)
    expect(JSON.parse(turn.reply?.text ?? '')).toEqual([`x=${text}`, text, 'a b'])
  })

  it('is given other arguments once it has answered', async () => {
    const session = await sessionOf(GIVEN, { firstArgs: ['--new'], laterArgs: ['--continue'] })
    expect((await session.turn('one')).reply?.text).toBe('["--new"]')
    expect((await session.turn('two')).reply?.text).toBe('["--continue"]')
  })

  it('is not given a text that it would take for a flag', async () => {
    const agent = new ProcessRunner({ command: 'echo', args: ['{text}'], folder })
    holdfast = await openHoldfast({ store: 'memory:', agents: { agent } })
    const session = await holdfast.resolve()
    const { state, error } = await session.turn('--help')
    expect([state, error?.message]).toEqual(['failed', expect.stringContaining('as a flag')])
    expect((await session.turn('help')).reply?.text).toBe('help')
  })

  it('works in a folder of its session, which no id can name', async () => {
    await sessionOf(`process.stdout.write(process.cwd())`)
    const [odd, other] = [await holdfast.resolve({ id: '..~' }), await holdfast.resolve()]
    const first = (await odd.turn('where')).reply?.text ?? ''
    expect(first).toMatch(new RegExp(`^${folder}/[0-9a-f]{32}$`))
    expect((await odd.turn('where')).reply?.text).toBe(first)
    expect((await other.turn('where')).reply?.text).not.toBe(first)
  })

  it('is given of our environment only what is allowed', async () => {
    process.env['HOLDFAST_TEST_SECRET'] = 'secret'
    process.env['HOLDFAST_TEST_OPEN'] = 'open'
    const session = await sessionOf(`process.stdout.write(JSON.stringify(process.env))`, {
      envAllow: ['HOLDFAST_TEST_OPEN'],
      env: { OWN: 'value' },
    })
    const env = JSON.parse((await session.turn('go')).reply?.text ?? '')
    expect(env).toMatchObject({ OWN: 'value', HOLDFAST_TEST_OPEN: 'open' })
    expect(env).not.toHaveProperty('HOLDFAST_TEST_SECRET')
  })
})

describe('a program that fails', () => {
  it('leaves its exit code and its last words, without what it was trusted with', async () => {
    const script = `console.error('the key is ' + process.env.API_KEY); process.exit(3)`
    const session = await sessionOf(script, { env: { API_KEY: 'sk-123456789' } })
    expect(await session.turn('go')).toMatchObject({
      state: 'failed',
      error: { message: 'exited with code 3: the key is [API_KEY]' },
    })
    const [diagnosis] = await activitiesOf(session)
    expect(diagnosis).toMatchObject({
      kind: 'diagnosis',
      data: { code: 3, signal: null, stderr: 'the key is [API_KEY]' },
    })
  })

  it('by not being there says so', async () => {
    const agent = new ProcessRunner({ command: '/no/such/program', folder })
    holdfast = await openHoldfast({ store: 'memory:', agents: { agent } })
    const turn = await (await holdfast.resolve()).turn('go')
    expect(turn.error?.message).toContain('could not be started')
  })

  it.each([
    ['time', { turnMs: 100 }, `setInterval(() => {}, 1000)`, 'ran longer than 100 ms'],
    [
      'output',
      { outputBytesMax: 10_000 },
      `setInterval(() => console.log('x'.repeat(1000)), 1)`,
      'printed more than 10000 bytes',
    ],
    [
      'memory',
      { memoryBytesMax: 150_000_000 },
      `const kept = []; setInterval(() => kept.push(Buffer.alloc(20_000_000, 1)), 20)`,
      'used more than 150000000 bytes of memory',
    ],
  ])('its bound on %s is stopped', async (_bound, bounds, script, problem) => {
    const session = await sessionOf(script, bounds)
    const { state, error } = await session.turn('go')
    expect([state, error?.message]).toEqual(['failed', expect.stringContaining(problem)])
  })
})

describe('a program that is stopped', () => {
  const deaf = (report: string): string => `
    process.on('SIGTERM', () => {})
    require('fs').writeFileSync(${JSON.stringify(report)}, String(process.pid))
    console.log('up'); setInterval(() => {}, 1000)`

  it('is killed if it does not listen, before the next turn begins', async () => {
    const report = join(folder, 'pid')
    const session = await sessionOf(deaf(report), { killGraceMs: 50 }, { cancelGraceMs: 10 })
    const turn = session.turn('go')
    for await (const part of turn) if (part.startsWith('up')) break
    const pid = Number(await readFile(report, 'utf8'))
    const { turn: id } = await turn.admission
    const next = session.turn('next')
    expect((await session.cancelTurn(id)).state).toBe('cancelled')
    for await (const part of next) if (part.startsWith('up')) break
    expect(isAlive(pid)).toBe(false)
    await session.close()
    const second = Number(await readFile(report, 'utf8'))
    await expect.poll(() => isAlive(second)).toBe(false)
  })

  it('is killed at once when the lease is lost: another node does not wait', async () => {
    const report = join(folder, 'pid')
    const store = new MemoryStore()
    const options = { killGraceMs: 3_600_000 }
    const session = await sessionOf(deaf(report), options, { leaseMs: 500 }, store)
    const turn = session.turn('go')
    for await (const part of turn) if (part.startsWith('up')) break
    const pid = Number(await readFile(report, 'utf8'))
    store.beat = () => Promise.reject(new Error('the store does not answer'))
    await expect(turn).rejects.toMatchObject({ code: 'lease_lost' })
    await expect.poll(() => isAlive(pid)).toBe(false)
  })

  it('is gone when Holdfast is closed, and so is what it set free', async () => {
    const report = join(folder, 'pid')
    const script = `
      const { pid } = require('child_process').spawn(process.execPath,
        ['-e', 'setInterval(() => {}, 1000)'], { detached: true, stdio: 'ignore' })
      require('fs').writeFileSync(${JSON.stringify(report)}, String(pid))
      console.log('up'); setInterval(() => {}, 1000)`
    const session = await sessionOf(script)
    for await (const part of session.turn('go')) if (part.startsWith('up')) break
    const pid = Number(await readFile(report, 'utf8'))
    expect(isAlive(pid)).toBe(true)
    await holdfast.close()
    await expect.poll(() => isAlive(pid)).toBe(process.platform !== 'linux')
  })
})

describe('what an earlier server left running', () => {
  it.runIf(process.platform === 'linux')('is gone before the first turn begins', async () => {
    const mark = { HOLDFAST_CHILD: `${folderName(folder)}:an-earlier-server` }
    const sleeper = ['-e', 'setInterval(() => {}, 1000)']
    const spawned = [mark, { HOLDFAST_CHILD: 'elsewhere:an-earlier-server' }].map((env) =>
      spawn(process.execPath, sleeper, { detached: true, stdio: 'ignore', env }),
    )
    const [left, other] = spawned.map(({ pid }) => pid ?? 0)
    const session = await sessionOf(ECHO)
    expect((await session.turn('go')).reply?.text).toBe('go')
    await expect.poll(() => isAlive(left ?? 0)).toBe(false)
    expect(isAlive(other ?? 0)).toBe(true)
    for (const child of spawned) child.kill('SIGKILL')
  })
})

describe('a backend session', () => {
  /** Speaks like Claude Code; knows the sessions that there is a file of. */
  const claude = `
    const { existsSync, writeFileSync } = require('fs')
    const [how, id, other] = process.argv.slice(1)
    const say = (line) => console.log(JSON.stringify(line))
    const file = ${JSON.stringify('{folder}')} + '/' + id
    if (how === 'first' && existsSync(file)) {
      console.error('Error: Session ID ' + id + ' is already in use.'); process.exit(1)
    }
    if (how === 'later' && !existsSync(file)) {
      const errors = ['No conversation found with session ID: ' + id]
      say({ type: 'result', is_error: true, num_turns: 0, errors }); process.exit(1)
    }
    const message = (type, block, parent) =>
      say({ type, parent_tool_use_id: parent ?? null, message: { content: [block] } })
    writeFileSync(file, '')
    say({ type: 'system', subtype: 'init', session_id: other ?? id })
    message('assistant', { type: 'tool_use', id: 'u1', name: 'Read', input: {} })
    message('user', { type: 'tool_result', tool_use_id: 'u1', content: 'x' })
    message('assistant', { type: 'text', text: 'aside' }, 'u1')
    message('assistant', { type: 'text', text: how })
    say({ type: 'result', is_error: false, result: how, usage: { input_tokens: 1 } })`
  const claudeSession = (options: Partial<ProcessOptions> = {}): Promise<SessionHandle> =>
    sessionOf(claude.replace('{folder}', folder), {
      output: 'claude',
      firstArgs: ['first', '{sessionUuid}'],
      laterArgs: ['later', '{sessionUuid}'],
      ...options,
    })
  const kinds = async (session: SessionHandle): Promise<string[]> =>
    (await activitiesOf(session)).map(({ kind }) => kind)

  it('has an id before its first turn, and keeps it', async () => {
    const session = await claudeSession()
    expect((await session.turn('one')).reply?.text).toBe('first')
    expect((await session.turn('two')).reply?.text).toBe('later')
    expect(await kinds(session)).toEqual([
      ...['tool', 'tool', 'usage'],
      ...['tool', 'tool', 'usage'],
    ])
    const texts = []
    for await (const { text } of session.messages()) texts.push(text)
    expect(texts).toEqual(['one', 'first', 'two', 'later'])
  })

  it('that is lost is told, and begun anew with the same id', async () => {
    const session = await claudeSession()
    await session.turn('one')
    const { backend } = await session.state()
    await rm(join(folder, backend ?? ''))
    expect((await session.turn('two')).reply?.text).toBe('first')
    expect((await activitiesOf(session))[3]).toMatchObject({
      kind: 'context_lost',
      data: { backend },
    })
    expect((await session.turn('three')).reply?.text).toBe('later')
    expect((await session.state()).backend).toBe(backend)
  })

  it('may not become another', async () => {
    const session = await claudeSession({
      firstArgs: ['first', '{sessionUuid}', 'another'],
    })
    const { state, error } = await session.turn('one')
    expect([state, error?.message]).toEqual(['failed', expect.stringContaining('another session')])
  })

  it('whose id the program chooses is recorded by the first turn', async () => {
    const script = `
      const id = process.argv[1] ?? 'thread-1'
      const say = (line) => console.log(JSON.stringify(line))
      if (process.argv[1] && require('fs').existsSync('lost')) {
        console.error('Error: no rollout found for thread id ' + id); process.exit(1)
      }
      const completed = (item) => say({ type: 'item.completed', item })
      say({ type: 'thread.started', thread_id: id })
      say({ type: 'turn.started' })
      say({ type: 'item.started', item: { id: 'i', type: 'command_execution', command: 'ls' } })
      completed({ id: 'i', type: 'command_execution', exit_code: 0 })
      completed({ type: 'agent_message', text: String(process.argv.length) })
      say({ type: 'turn.completed', usage: { input_tokens: 1 } })`
    const session = await sessionOf(script, { output: 'codex', laterArgs: ['{sessionUuid}'] })
    expect((await session.turn('one')).reply?.text).toBe('1')
    expect((await session.state()).backend).toBe('thread-1')
    expect((await session.turn('two')).reply?.text).toBe('2')
    expect(await kinds(session)).toEqual([
      ...['tool', 'tool', 'usage'],
      ...['tool', 'tool', 'usage'],
    ])
    await writeFile(join(folder, folderName(session.id), 'lost'), '')
    expect(await session.turn('three')).toMatchObject({
      state: 'failed',
      error: { code: 'backend_lost' },
    })
  })

  it('that was not stored when its first turn was cancelled is none', async () => {
    const script = `
      const say = (line) => console.log(JSON.stringify(line))
      say({ type: 'thread.started', thread_id: process.argv[2] ?? 'thread-' + process.pid })
      const completed = (item) => say({ type: 'item.completed', item })
      if (process.argv[1] === 'one') {
        completed({ type: 'error', message: 'slow' }); setInterval(() => {}, 1000)
      } else {
        say({ type: 'turn.started' })
        completed({ type: 'agent_message', text: process.argv.slice(1).join() })
      }`
    const session = await sessionOf(script, {
      ...{ output: 'codex', args: ['{text}'], laterArgs: ['{sessionUuid}'] },
    })
    const turn = session.turn('one')
    await until(async () => (await activitiesOf(session)).length > 0)
    await session.cancelTurn(String((await session.state()).running?.id))
    expect((await turn).state).toBe('cancelled')
    expect((await session.state()).backend).toBe(null)
    expect((await session.turn('two')).reply?.text).toBe('two')
    const { backend } = await session.state()
    expect((await session.turn('three')).reply?.text).toBe(`three,${backend}`)
  })
})
