/** `acpx`, a client of the Agent Client Protocol that nobody here wrote, on `holdfast acp`. */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { builtinAgents } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/gate.ts'
import { allIn } from '../support/processes.ts'
import { CLI } from '../support/repository.ts'
import { serve, type TestServer } from '../support/server.ts'

const run = promisify(execFile)
let home: string
let server: TestServer

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'holdfast-acpx-'))
  server = await serve({ agents: builtinAgents })
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
})
