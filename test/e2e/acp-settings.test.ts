/** The ACP runner with an agent that has modes, models, forms, steering and forks. */
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import type { SessionHandle } from 'holdfast'
import { openBench, type AcpBench, type BenchOptions } from '../support/acp-bench.ts'
import { until } from '../support/gate.ts'

let bench: AcpBench | null = null

async function open(options: BenchOptions = {}): Promise<AcpBench> {
  const env = { OFFERS: 'all', RESTORE: 'resume', ...options.env }
  bench = await openBench({ ...options, env })
  return bench
}

/** What the agent has been opened and set to. */
async function settingsIn(session: SessionHandle, settings?: object): Promise<any> {
  const turn = await session.turn('settings', settings === undefined ? {} : { settings })
  if (turn.error !== null) throw new Error(turn.error.message)
  return JSON.parse(turn.reply!.text)
}

async function firstAsk(session: SessionHandle) {
  await until(async () => (await session.asks()).length > 0)
  const [ask] = await session.asks()
  return ask!
}

afterEach(async () => {
  const last = bench
  bench = null
  await last?.close()
})

describe('the settings of a session with an ACP agent', () => {
  it('are its mode and model, in a turn of their own or until they change', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a', settings: { mode: 'plan' } })
    expect(await settingsIn(session)).toMatchObject({ mode: 'plan', model: 'small' })
    const own = { mode: 'ask', model: 'large' }
    expect(await settingsIn(session, own)).toMatchObject(own)
    expect(await settingsIn(session)).toMatchObject({ mode: 'plan', model: 'small' })
    expect(bench!.pids).toHaveLength(1)
  })

  it('are refused if the agent or the operator does not offer them', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a' })
    // Before it has run, what it offers is not known: the turn says it.
    const { error } = await session.turn('settings', { settings: { mode: 'other' } })
    expect(error?.message).toBe('settings.mode must be one of ask, plan')
    for (const mode of ['other', 'bypassPermissions']) {
      await expect(session.configure({ mode })).rejects.toMatchObject({ code: 'invalid_field' })
    }
  })

  it('are recorded when the agent leaves its mode by itself', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a', settings: { mode: 'plan' } })
    await session.turn('leave ask')
    expect((await session.state()).settings).toMatchObject({ mode: 'ask' })
    expect(await settingsIn(session)).toMatchObject({ mode: 'ask' })
  })

  it('open it again with other folders, servers and instructions, in its context', async () => {
    const { holdfast } = await open({
      mcpServers: { files: { command: 'serve-files' }, web: { command: 'serve-web' } },
    })
    const session = await holdfast.resolve({ key: 'a' })
    const { mcpServers } = await settingsIn(session)
    expect(mcpServers.map(({ name }: { name: string }) => name)).toEqual(['files', 'web'])
    await session.configure({ mcpServers: ['web'], instructions: 'be brief' })
    expect(await settingsIn(session)).toMatchObject({
      mcpServers: [{ name: 'web', command: 'serve-web', args: [], env: [] }],
      systemPrompt: { mode: 'append', content: [{ type: 'text', text: 'be brief' }] },
    })
    expect((await session.turn('hello')).reply?.text).toBe('3 hello')
    expect(bench!.pids).toHaveLength(2)
  })

  it('name folders that the operator allows, and no link that leads out of them', async () => {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-folders-')))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const allowed = join(folder, 'allowed')
    mkdirSync(join(allowed, 'in'), { recursive: true })
    mkdirSync(join(folder, 'other'))
    symlinkSync(join(folder, 'other'), join(allowed, 'out'))
    const { holdfast } = await open({ folders: [allowed] })
    const cwd = join(allowed, 'in')
    const session = await holdfast.resolve({ key: 'a', settings: { cwd, directories: [allowed] } })
    const opened = { cwd, additionalDirectories: [allowed] }
    expect(await settingsIn(session)).toMatchObject(opened)
    const outside = join(folder, 'other')
    await expect(session.configure({ cwd: outside })).rejects.toMatchObject({
      code: 'invalid_field',
    })
    await session.configure({ cwd: join(allowed, 'out') })
    expect((await session.turn('settings')).error?.code).toBe('invalid_field')
  })
})

describe('an ACP agent', () => {
  it('tells its slash commands once, though it did so before the first turn', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a' })
    await session.turn('hello')
    await session.turn('again')
    const commands = [{ name: 'web', description: 'search the web' }]
    expect(await bench!.activities(session, 'commands')).toEqual([{ commands }])
    expect((await session.state()).commands).toEqual(commands)
  })

  it('asks with what earlier updates of the tool call have told', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a' })
    const turn = session.turn('grow')
    const { id, detail } = await firstAsk(session)
    expect(detail).toMatchObject({
      ...{ tool: 'Write', kind: 'edit', paths: ['/w/a'], input: { file_path: '/w/a' } },
      diff: [{ path: '/w/a', before: null, after: 'x' }],
    })
    await session.answer(id, 'yes')
    await turn
  })

  it('is allowed again what a person has always allowed, also after a restart, and nothing else', async () => {
    const { holdfast } = await open({ isKept: true })
    const session = await holdfast.resolve({ key: 'a' })
    const turn = session.turn('always make it')
    await session.answer((await firstAsk(session)).id, 'always')
    await turn
    const grants = [{ label: 'make it', data: { request: expect.any(String) } }]
    expect((await session.state()).grants).toEqual(grants)
    await bench!.restart()
    const again = await bench!.session('a')
    expect((await again.state()).grants).toEqual(grants)
    expect((await again.turn('always make it')).reply?.text).toContain('"optionId":"always"')
    expect(await bench!.activities(again, 'permission_allowed')).toEqual([[{ tool: 'make it' }]])
    const other = again.turn('always make more')
    expect(await firstAsk(again)).toMatchObject({ question: 'make more' })
    await again.close()
    expect((await other).state).toBe('cancelled')
    expect((await again.state()).grants).toEqual([])
  })

  it('is told in words that no person answers, and so is the log', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'moon', settings: { onNobody: 'deny' } })
    const { reply } = await session.turn('always make it')
    expect(reply?.text).toContain('holdfast chat moon')
    expect(await bench!.activities(session, 'permission_denied')).toEqual([
      [{ tool: 'make it', reason: expect.stringContaining('No person is there to answer') }],
    ])
  })

  it('deletes its session when ours is erased, also if it has to be started for that', async () => {
    const { holdfast, folder } = await open({ isKept: true })
    const kept = async (session: SessionHandle): Promise<string> => {
      await session.turn('hello')
      const file = join(folder, `${(await session.state()).backend}.json`)
      expect(existsSync(file)).toBe(true)
      return file
    }
    const one = await holdfast.resolve({ key: 'one' })
    const two = await holdfast.resolve({ key: 'two' })
    const files = [await kept(one), await kept(two)] as const
    expect(await one.erase()).toEqual({ left: [] })
    expect(files.map((file) => existsSync(file))).toEqual([false, true])
    await bench!.restart()
    expect(await (await bench!.session('two')).erase()).toEqual({ left: [] })
    expect(existsSync(files[1])).toBe(false)
    await until(async () => bench!.living.length === 0)
  })

  it('that cannot delete its sessions is not asked to, and the erasure says what is left', async () => {
    const { holdfast } = await open({ env: { OFFERS: '' } })
    const session = await holdfast.resolve({ key: 'a' })
    await session.turn('hello')
    const { pids } = bench!
    expect(await session.erase()).toEqual({ left: ['what its agent keeps of the conversation'] })
    expect(bench!.pids).toEqual(pids)
  })

  it('asks a form as questions', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a' })
    const turn = session.turn('form')
    const ask = await firstAsk(session)
    expect(ask).toMatchObject({ kind: 'question', options: [{ id: 'r', label: 'Red' }] })
    await session.answer(ask.id, 'r')
    const { reply } = await turn
    expect(JSON.parse(reply!.text)).toEqual({ action: 'accept', content: { colour: 'r' } })
  })

  it('takes a message into the running turn', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a' })
    const turn = session.turn('steered')
    for await (const part of turn) if (part.includes('waiting')) break
    const steering = session.turn('and this', { busy: 'steer' })
    expect((await turn).reply?.text).toBe('waiting and this')
    expect((await steering).reply?.text).toBe('waiting and this')
  })

  it('queues a message that its agent does not take into the turn', async () => {
    const { holdfast } = await open({ env: { OFFERS: '' } })
    const session = await holdfast.resolve({ key: 'a' })
    const turn = session.turn('hang')
    for await (const part of turn) if (part.includes('hanging')) break
    const queued = session.turn('next', { busy: 'steer' })
    const { running } = await session.state()
    await until(async () => (await session.state()).queued.length === 1)
    await session.cancelTurn(running!.id)
    expect((await queued).reply?.text).toBe('2 next')
  })

  it('is forked, unless it keeps a fork only once a turn has run in it', async () => {
    const { holdfast } = await open()
    const session = await holdfast.resolve({ key: 'a' })
    await session.turn('one')
    const fork = await holdfast.fork(session.id)
    expect((await fork.turn('two')).reply?.text).toBe('2 two')
    await bench?.close()
    const unkept = await open({ env: { OFFERS: 'unkept forks' } })
    const other = await unkept.holdfast.resolve({ key: 'a' })
    await other.turn('one')
    const refused = { code: 'capability_missing', message: expect.stringContaining('keeps a fork') }
    await expect(unkept.holdfast.fork(other.id)).rejects.toMatchObject(refused)
    expect((await other.turn('two')).reply?.text).toBe('2 two')
  })
})
