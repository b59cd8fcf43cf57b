/** Agents in bubblewrap, from the configuration to an answer. */
import { chmod, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openHoldfast } from '../../src/open.ts'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { checkConfig, openAgents, runnersOf } from '../../src/config/index.ts'
import { sandboxed } from '../support/isolation.ts'

const AGENT = fileURLToPath(new URL('../support/acp-agent.mjs', import.meta.url))
/** The agent imports packages of it. */
const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url))
let folder: string

beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-sandbox-')))
  // An agent of another user has to pass through it.
  await chmod(folder, 0o711)
})
afterEach(() => rm(folder, { recursive: true, force: true }))

async function open(agents: Record<string, unknown>) {
  const config = { ...checkConfig({ agents }), file: null, base: folder }
  const places = { folder: join(folder, 'data', 'agents'), hidden: [join(folder, 'data')] }
  return openHoldfast({
    store: 'memory:',
    agents: runnersOf(await openAgents(config, { ...places, names: [] })),
  })
}

describe.runIf(process.platform === 'linux')('an agent in bubblewrap', () => {
  it('is refused if it would not see its program', async () => {
    const command = join(folder, 'agent')
    await writeFile(command, '#!/bin/sh\n', { mode: 0o755 })
    const agent = { runner: 'process', command }
    const refused = `agents.a.isolation does not let it use ${command}: name its folder`
    await expect(open({ a: { ...agent, ...sandboxed() } })).rejects.toThrow(refused)
    await (await open({ a: { ...agent, ...sandboxed('agent') } })).close()
  })

  it('is refused if bubblewrap cannot be used', async () => {
    const path = process.env['PATH']
    process.env['PATH'] = folder
    try {
      const agent = { runner: 'process', command: '/bin/sh', ...sandboxed() }
      const refused = 'bwrap is not installed'
      // Without a PATH the user is looked for in vain.
      const user = process.getuid?.() === 0 ? { runAs: { uid: 65_534, gid: 65_534 } } : {}
      await expect(open({ a: { ...agent, ...user } })).rejects.toThrow(refused)
    } finally {
      process.env['PATH'] = path
    }
  })

  it('has a shell, an ACP agent and a wrapper of its own at its session', async () => {
    const wrap = ['bwrap', '--bind', '/', '/', '--setenv', 'WORK', '{cwd}', '--chdir', '{home}']
    const script = ['-c', 'cat >/dev/null; echo "$WORK $PWD"']
    const shell = { runner: 'process', command: '/bin/sh', args: script }
    const holdfast = await open({
      acp: { runner: 'acp', command: process.execPath, args: [AGENT], ...sandboxed(REPOSITORY) },
      wrapped: { ...shell, wrap: [...wrap, '--'] },
    })
    const places = `${folder}/data/agents/[0-9a-f]{32}`
    const session = await holdfast.resolve({ agent: 'acp' })
    expect((await session.turn('where')).reply?.text).toMatch(new RegExp(`${places}$`))
    const wrapped = await holdfast.resolve({ agent: 'wrapped' })
    const { reply } = await wrapped.turn('where')
    expect(reply?.text.trim()).toMatch(new RegExp(`^(${places}) \\1\\.home$`))
    await holdfast.close()
  })
})
