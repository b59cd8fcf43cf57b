/** What agents leave on the disk, and what is removed with their sessions. */
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { isRoot } from '../../test/support/isolation.ts'
import type { Diagnostic, Holdfast, Limits, Runner } from '../core/index.ts'
import { openHoldfast } from '../open.ts'
import { Workplace } from '../platform/child.ts'
import { folderName } from '../platform/processes.ts'
import { functionRunner } from './function.ts'
import { ProcessRunner, type ProcessOptions } from './process/index.ts'

let root: string
let folder: string
let holdfast: Holdfast
let diagnostics: Diagnostic[]

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-erasing-'))
  folder = join(root, 'agents')
  diagnostics = []
})
afterEach(async () => {
  await holdfast.close()
  await rm(root, { recursive: true, force: true })
})

async function open(agent: Runner, limits: Partial<Limits> = {}): Promise<void> {
  const onDiagnostic = (diagnostic: Diagnostic): void => void diagnostics.push(diagnostic)
  holdfast = await openHoldfast({ store: 'memory:', agents: { agent }, limits, onDiagnostic })
}

const program = (script: string, options: Partial<ProcessOptions> = {}): Runner =>
  new ProcessRunner({
    command: process.execPath,
    folder,
    ...options,
    args: ['-e', script, '--', ...(options.args ?? [])],
  })

const WRITES = `require('fs').writeFileSync('work.txt', 'work'); console.log('done')`

/** Keeps its conversations as Claude Code does. */
const CLAUDE = `
  const fs = require('fs'), path = require('path')
  const id = process.argv.at(-1), root = process.env.CLAUDE_CONFIG_DIR
  const write = (name) => {
    fs.mkdirSync(path.dirname(path.join(root, name)), { recursive: true })
    fs.writeFileSync(path.join(root, name), 'secret')
  }
  write('projects/-work/' + id + '.jsonl')
  write('projects/-work/' + id + '/subagents/a.jsonl')
  write('todos/' + id + '-agent-1.json')
  console.log(JSON.stringify({ type: 'result', result: 'done', num_turns: 1 }))`

const claudeIn = (config: string, options: Partial<ProcessOptions> = {}): Runner =>
  program(CLAUDE, {
    output: 'claude',
    args: ['{sessionUuid}'],
    env: { CLAUDE_CONFIG_DIR: config },
    ...options,
  })

/** Keeps its conversations as Codex does; `delete` is the program's own. */
function codexIn(home: string, canDelete: boolean): Runner {
  const id = '01a1ef99-b609-7912-949a-daf047f6108b'
  const script = `#!${process.execPath}
    const fs = require('fs')
    const day = process.env.CODEX_HOME + '/sessions/2026/11/18'
    const file = day + '/rollout-2026-11-18T16-59-50-${id}.jsonl'
    if (process.argv[2] === 'delete') {
      if (!${canDelete} || process.argv.slice(3).join(' ') !== '--force ${id}') process.exit(1)
      fs.rmSync(file)
      fs.rmSync(process.env.CODEX_HOME + '/index')
      process.exit(0)
    }
    fs.mkdirSync(day, { recursive: true })
    fs.writeFileSync(file, 'secret')
    fs.writeFileSync(process.env.CODEX_HOME + '/index', 'secret')
    console.log(JSON.stringify({ type: 'thread.started', thread_id: '${id}' }))
    console.log(JSON.stringify({ type: 'turn.started' }))
    const item = { type: 'agent_message', text: 'done' }
    console.log(JSON.stringify({ type: 'item.completed', item }))`
  const command = join(root, 'codex')
  const write = writeFile(command, script, { mode: 0o755 })
  const env = { CODEX_HOME: home }
  const runner = new ProcessRunner({ command, folder, output: 'codex', env })
  return {
    run: async function* (turn, context) {
      await write
      return yield* runner.run(turn, context)
    },
    erase: (session) => runner.erase(session),
    close: () => runner.close(),
  }
}

const filesIn = async (path: string): Promise<string[]> => {
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch(() => [])
  return entries.filter((entry) => !entry.isDirectory()).map(({ name }) => name)
}

const left = (): Diagnostic[] => diagnostics.filter(({ code }) => code === 'agent_files_left')

it('what a link in a home of its own leads to is not removed', async () => {
  const other = join(root, 'other-home')
  const script = `
    const fs = require('fs'), id = process.argv.at(-1)
    fs.mkdirSync('${other}/projects/-work', { recursive: true })
    fs.symlinkSync('${other}', process.env.HOME + '/.claude')
    fs.writeFileSync('${other}/projects/-work/' + id + '.jsonl', 'of another')
    console.log(JSON.stringify({ type: 'result', result: 'done', num_turns: 1 }))`
  const wrap = ['/usr/bin/env', 'OWN={home}']
  await open(program(script, { output: 'claude', args: ['{sessionUuid}'], wrap }))
  const session = await holdfast.resolve({})
  expect((await session.turn('x')).state).toBe('done')
  await session.erase()
  expect(await filesIn(other)).toHaveLength(1)
  expect(await filesIn(folder)).toEqual([])
})

it('the folder of an erased session is not made again, by a turn that is late', async () => {
  await open(program(WRITES))
  const workplace = new Workplace({ command: 'true', folder })
  const making = workplace.foldersOf('late')
  expect(await workplace.erase('late')).toEqual([])
  await making
  await expect(workplace.foldersOf('late')).rejects.toThrow('erased')
  expect(await readdir(folder)).toEqual([])
})

it('a folder in which forks work stays, and a path elsewhere is not marked', async () => {
  await open(program(WRITES))
  const workplace = new Workplace({ command: 'true', folder })
  const { cwd } = await workplace.foldersOf('source')
  await workplace.keep(cwd)
  await workplace.keep(join(root, 'elsewhere'))
  const what = 'its working folder, in which forks of it work'
  expect(await workplace.erase('source')).toEqual([{ what, path: cwd }])
  expect((await readdir(folder)).toSorted()).toEqual([basename(cwd), `${basename(cwd)}.forked`])
  expect(await readdir(root)).toEqual(['agents'])
})

describe('erasing a session', () => {
  it('removes its working folder, and that of no other session', async () => {
    await open(program(WRITES))
    const [erased, other] = [await holdfast.resolve(), await holdfast.resolve()]
    await erased.turn('go')
    await other.turn('go')
    await other.close()
    expect(await erased.erase()).toEqual({ left: [] })
    expect(await readdir(folder)).toEqual([folderName(other.id)])
    expect(left()).toEqual([])
  })

  it('stops the agent first, which makes no folder any more', async () => {
    await open(program(`${WRITES}; setInterval(() => {}, 1000)`))
    const session = await holdfast.resolve()
    const turn = Promise.resolve(session.turn('go')).catch(() => undefined)
    await expect.poll(() => filesIn(folder)).toEqual(['work.txt'])
    expect(await session.erase()).toEqual({ left: [] })
    await turn
    expect(await readdir(folder)).toEqual([])
  })

  it('does not touch the folder that the operator has configured', async () => {
    const cwd = join(root, 'project')
    await mkdir(cwd)
    await open(program(WRITES, { cwd }))
    const session = await holdfast.resolve()
    await session.turn('go')
    expect(await session.erase()).toEqual({ left: [] })
    expect(await readdir(cwd)).toEqual(['work.txt'])
  })

  it('removes what Claude Code keeps of its conversation, and of no other', async () => {
    const config = join(root, 'claude')
    await open(claudeIn(config))
    const [erased, other] = [await holdfast.resolve(), await holdfast.resolve()]
    await erased.turn('go')
    await other.turn('go')
    const { backend } = await other.state()
    expect(await filesIn(config)).toHaveLength(6)
    expect(await erased.erase()).toEqual({ left: [] })
    expect((await filesIn(config)).toSorted()).toEqual(
      [`${backend}.jsonl`, 'a.jsonl', `${backend}-agent-1.json`].toSorted(),
    )
  })

  it('lets Codex delete its conversation', async () => {
    const home = join(root, 'codex-home')
    await open(codexIn(home, true))
    const session = await holdfast.resolve()
    expect(await session.turn('go')).toMatchObject({ state: 'done' })
    expect(await session.erase()).toEqual({ left: [] })
    expect(await filesIn(home)).toEqual([])
  })

  it('removes the file if Codex does not delete it, and says what is left', async () => {
    const home = join(root, 'codex-home')
    await open(codexIn(home, false))
    const session = await holdfast.resolve()
    await session.turn('go')
    expect(await session.erase()).toEqual({ left: ["its agent's index of conversations"] })
    expect(await filesIn(home)).toEqual(['index'])
    expect(left()[0]?.facts).toMatchObject({ session: session.id, agent: 'agent', count: 1 })
  })

  it('follows no link', async () => {
    const config = join(root, 'claude')
    const outside = join(root, 'outside')
    await mkdir(outside)
    await writeFile(join(outside, 'precious'), 'precious')
    await open(claudeIn(config))
    const session = await holdfast.resolve()
    await session.turn('go')
    const { backend } = await session.state()
    const own = join(folder, folderName(session.id))
    await writeFile(join(outside, `${backend}.jsonl`), 'of others')
    await symlink(outside, join(own, 'link'))
    await symlink(outside, join(config, 'projects', 'link'))
    await symlink(outside, join(config, 'tasks'))
    await symlink(join(outside, 'precious'), join(config, 'projects', '-work', `${backend}.lock`))
    expect(await session.erase()).toEqual({ left: [] })
    expect((await readdir(outside)).toSorted()).toEqual([`${backend}.jsonl`, 'precious'].toSorted())
    expect(await readdir(join(config, 'projects', '-work'))).toEqual([])
  })

  it('removes a link in the place of its folder, not what that leads to', async () => {
    await open(program(WRITES))
    const session = await holdfast.resolve()
    await session.turn('go')
    const own = join(folder, folderName(session.id))
    await rename(own, join(root, 'moved'))
    await symlink(join(root, 'moved'), own)
    expect(await session.erase()).toEqual({ left: [] })
    expect(await readdir(folder)).toEqual([])
    expect(await readdir(join(root, 'moved'))).toEqual(['work.txt'])
  })

  it.runIf(isRoot)('removes the files of another user as that user', async () => {
    await chmod(root, 0o711)
    await open(program(WRITES, { runAs: { uid: 65_534, gid: 65_534 } }))
    const session = await holdfast.resolve()
    expect(await session.turn('go')).toMatchObject({ state: 'done' })
    const own = join(folder, folderName(session.id))
    await mkdir(join(own, 'of root'), { mode: 0o700 })
    await writeFile(join(own, 'of root', 'kept'), 'kept')
    expect(await session.erase()).toEqual({ left: ['its working folder'] })
    expect(await filesIn(folder)).toEqual(['kept'])
    expect(left()[0]?.facts).toMatchObject({ count: 1, path: own })
    const other = await holdfast.resolve()
    await other.turn('go')
    expect(await other.erase()).toEqual({ left: [] })
    expect(await readdir(folder)).toEqual([folderName(session.id)])
  })

  it('takes no id of a conversation for a path', async () => {
    const config = join(root, 'claude')
    await mkdir(join(config, 'projects', '-work'), { recursive: true })
    await writeFile(join(root, 'precious.jsonl'), 'precious')
    const runner = claudeIn(config)
    await open(runner)
    for (const backend of ['../../../precious', '', '.', '*']) {
      expect(await runner.erase?.({ id: 'x', backend, origin: null })).toEqual([])
    }
    expect(await readFile(join(root, 'precious.jsonl'), 'utf8')).toBe('precious')
  })

  it('leaves a conversation that was begun without Holdfast, and says so', async () => {
    const config = join(root, 'claude')
    const runner = claudeIn(config)
    await open(runner)
    const session = await holdfast.resolve()
    await session.turn('go')
    const { id, backend } = await session.state()
    const found = await runner.erase?.({ id, backend, origin: { backend } })
    expect(found).toEqual([{ what: 'the conversation that was begun without Holdfast' }])
    expect(await filesIn(config)).toHaveLength(3)
  })

  it('erases the log if the runner fails to remove the files, and says so', async () => {
    const runner = functionRunner(async () => 'done')
    await open({ ...runner, erase: () => Promise.reject(new Error('broken')) })
    const session = await holdfast.resolve()
    await session.turn('go')
    expect(await session.erase()).toEqual({ left: ['what its agent wrote'] })
    await expect(session.state()).rejects.toMatchObject({ code: 'session_erased' })
    expect(left()).toHaveLength(1)
  })
})

it('files go with the log when a closed session is erased after its time', async () => {
  await open(program(WRITES), { retainMs: 1, sweepMs: 20 })
  const session = await holdfast.resolve()
  await session.turn('go')
  expect(await filesIn(folder)).toEqual(['work.txt'])
  await session.close()
  await expect.poll(() => readdir(folder)).toEqual([])
})

it('files of an internal session go when it is closed; its log stays', async () => {
  await open(program(WRITES))
  const session = await holdfast.resolve({ internal: true })
  await session.turn('go')
  await session.close()
  await expect.poll(() => readdir(folder)).toEqual([])
  expect((await session.state()).closed).not.toBeNull()
})
