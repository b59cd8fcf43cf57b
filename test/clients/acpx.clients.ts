/** `acpx`, a client of the Agent Client Protocol that nobody here wrote, on `holdfast acp`. */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { builtinAgents, type Agent, type Runner } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NO_CAPABILITIES } from '../../src/core/index.ts'
import { functionRunner } from '../../src/runners/function.ts'
import { until } from '../support/gate.ts'
import { allIn } from '../support/processes.ts'
import { CLI } from '../support/repository.ts'
import { serve, type TestServer } from '../support/server.ts'

const run = promisify(execFile)
let home: string
let server: TestServer

/** Never ends by itself. */
const waits: Agent = async function* (_, { signal }) {
  yield 'waiting'
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
}
const moded: Runner = {
  ...functionRunner(async (_, { settings }) => JSON.stringify(settings)),
  capabilities: {
    ...NO_CAPABILITIES,
    ...{ settings: ['mode', 'model'], modes: ['calm', 'wild'], models: ['small', 'large'] },
  },
}

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'holdfast-acpx-'))
  server = await serve({ agents: { ...builtinAgents, waits, moded } })
})
afterAll(async () => {
  // What keeps its sessions open.
  for (const pid of allIn(home)) process.kill(pid)
  await until(() => allIn(home).length === 0)
  await server.close()
  rmSync(home, { recursive: true })
})

/** What it prints, as the flags of `holdfast acp` and its own say. */
async function acpx(flags: string, args: readonly string[]): Promise<string> {
  const program = join(process.env['ACP_CLIENTS'] ?? '', 'node_modules', '.bin', 'acpx')
  const agent = `${process.execPath} ${CLI} acp --url ${server.url} ${flags}`
  const env = { ...process.env, HOME: home }
  const all = ['--ttl', '30', '--agent', agent, ...args]
  // It fails if it was denied something.
  const { stdout } = await run(program, all, { env, cwd: home }).catch(
    (error: { readonly stdout: string }) => error,
  )
  return stdout
}

describe('acpx', () => {
  it('prompts the session of a key, which other doors have too', async () => {
    expect(await acpx('--key k --agent echo', ['exec', 'from acpx'])).toContain('from acpx')
    const answer = await server.post('/v1/keys/k/turns', { input: 'from HTTP' })
    expect(answer.body.turn.reply.text).toBe('from HTTP')
    expect(await (await server.holdfast.find('k'))?.state()).toMatchObject({ turns: 2 })
  })

  it.each([
    ['--approve-all', /^may I$/m],
    ['--deny-all', /I may not: denied/],
  ])('answers what it is asked with %s', async (flag, said) => {
    expect(await acpx('--agent ask', [flag, 'exec', 'may I'])).toMatch(said)
  })

  it('goes on in a session of its own, over processes', async () => {
    const id = (await acpx('--agent echo', ['sessions', 'new'])).trim()
    expect(await acpx('--agent echo', ['prompt', 'first'])).toContain('first')
    const second = await acpx('--agent echo', ['prompt', 'second'])
    expect(second).toContain('second')
    expect(second).not.toContain('first')
    expect(await server.holdfast.session(id).state()).toMatchObject({ turns: 2 })
  })

  it('lists, shows, ensures and closes its sessions, and the one on the server stays open', async () => {
    const flags = '--agent echo --key listed'
    const id = (await acpx(flags, ['sessions', 'ensure', '--name', 'mine'])).trim().split(/\s/)[0]!
    expect(await acpx(flags, ['sessions', 'ensure', '--name', 'mine'])).toContain(id)
    expect(await acpx(flags, ['sessions', 'list'])).toContain(id)
    await acpx(flags, ['prompt', '-s', 'mine', 'remember me'])
    expect(await acpx(flags, ['sessions', 'show', 'mine'])).toContain(id)
    expect(await acpx(flags, ['sessions', 'history', 'mine'])).toContain('remember me')
    expect(await acpx(flags, ['status', '-s', 'mine'])).toContain(id)
    expect(await acpx(flags, ['sessions', 'close', 'mine'])).toContain(id)
    const { body } = await server.get(`/v1/sessions/${id}`)
    expect(body).toMatchObject({ key: 'listed', state: 'open', turns: 1 })
  })

  it('queues a prompt, and cancels the one that runs', async () => {
    const flags = '--agent waits --key long'
    await acpx(flags, ['sessions', 'new'])
    const running = acpx(flags, ['prompt', 'one'])
    const state = async () => (await server.holdfast.find('long'))?.state()
    await until(async () => (await state())?.running !== null)
    const queued = await acpx(flags, ['prompt', '--no-wait', 'two'])
    expect(queued).toMatch(/queued/i)
    await acpx(flags, ['cancel'])
    expect(await running).toContain('waiting')
    await until(async () => (await state())?.turns === 2)
    await acpx(flags, ['cancel'])
    await until(async () => (await state())?.running === null)
  })

  it('sets the mode and config options', async () => {
    const flags = '--agent moded --key modes'
    await acpx(flags, ['sessions', 'new'])
    await acpx(flags, ['set-mode', 'wild'])
    await acpx(flags, ['set', 'model', 'large'])
    const { settings } = (await (await server.holdfast.find('modes'))?.state()) ?? {}
    expect(settings).toEqual({ mode: 'wild', model: 'large' })
    expect(await acpx(flags, ['prompt', 'x'])).toContain('"mode":"wild"')
  })

  it('prints the protocol’s messages as JSON', async () => {
    const printed = await acpx('--agent echo', ['--format', 'json', 'exec', 'as JSON'])
    const messages = printed
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object)
    expect(JSON.stringify(messages)).toContain('as JSON')
  })
})
