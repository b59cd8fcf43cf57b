/** Agents of the kinds `acp` and `openai`, from the configuration to an answer. */
import { chmod, mkdir, mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { isRoot, sandboxed } from '../../test/support/isolation.ts'
import { startStubOpenAi } from '../../test/support/stub-openai.ts'
import { openHoldfast } from '../open.ts'
import { checkConfig, openAgents, runnersOf } from './index.ts'

const AGENT = fileURLToPath(new URL('../../test/support/acp-agent.mjs', import.meta.url))
const SHELL = { runner: 'process', command: '/bin/sh' }
const ACP = { runner: 'acp', command: '/bin/sh' }
let folder: string

beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-kinds-')))
  // An agent of another user has to pass through it.
  await chmod(folder, 0o711)
})
afterEach(() => rm(folder, { recursive: true, force: true }))

async function open(agents: Record<string, unknown>) {
  const config = { ...checkConfig({ agents }), file: null, base: folder }
  return openHoldfast({
    store: 'memory:',
    agents: runnersOf(
      await openAgents(config, {
        folder: join(folder, 'data', 'agents'),
        names: [],
        hidden: [join(folder, 'data')],
      }),
    ),
  })
}

it.each([
  [{ runner: 'acp' }, 'a.command is missing'],
  [{ runner: 'acp', command: 'x', perSession: 'yes' }, 'a.perSession must be true or false'],
  [{ runner: 'acp', command: 'x', onNobody: 'allow' }, 'a.onNobody must be one of wait, deny'],
  [{ runner: 'acp', command: 'x', folder: '/' }, 'a.folder is no field'],
  [{ runner: 'openai', model: 'm' }, 'a.baseUrl is missing'],
  [{ runner: 'openai', baseUrl: 'x', model: 'm', apiKey: 'sk' }, 'a.apiKey is no field'],
  [
    { runner: 'openai', baseUrl: 'x', model: 'm', parameters: [] },
    'a.parameters must be an object',
  ],
  [{ runner: 'openai', baseUrl: 'x', model: 'm' }, 'a.baseUrl must be an address'],
  [{ ...SHELL, network: false }, 'a.network needs "isolation"'],
  [{ ...SHELL, readOnly: ['/opt'] }, 'a.readOnly needs "isolation"'],
  [{ ...SHELL, ...sandboxed(), wrap: ['env'] }, 'a.wrap and "isolation" exclude each other'],
  [{ ...SHELL, wrap: [] }, 'a.wrap must be a list of texts'],
  [{ ...SHELL, wrap: ['no-such-wrapper'] }, 'a.wrap names no program: no-such-wrapper'],
  [{ ...SHELL, ...sandboxed(), isolation: 'jail' }, 'a.isolation must be one of bubblewrap'],
  [{ ...ACP, ...sandboxed(), perSession: false }, 'a.perSession must be true'],
  [{ ...ACP, wrap: ['env', 'H={home}'], perSession: false }, 'a.perSession must be true'],
  [{ ...SHELL, runAs: { uid: 'no-such-user' } }, 'a.runAs names no user no-such-user'],
  [{ ...SHELL, runAs: { uid: 1, gid: 'no-such-group' } }, 'a.runAs names no group no-such-group'],
  [{ ...SHELL, runAs: { uid: 'root' } }, 'a.runAs must not be root'],
  [{ ...SHELL, runAs: { gid: 1 } }, 'a.runAs.uid is missing'],
])('%j is refused: %s', async (agent, problem) => {
  await expect(open({ a: agent })).rejects.toThrow(`agents.${problem}`)
})

const onLinux = it.runIf(process.platform === 'linux')

describe('an isolated agent is refused', () => {
  onLinux('if it would see the data folder', async () => {
    await mkdir(join(folder, 'data'))
    for (const given of [{ readOnly: [folder] }, { cwd: folder }, { cwd: join(folder, 'data') }]) {
      const agent = { ...SHELL, ...sandboxed(), ...given }
      await expect(open({ a: agent })).rejects.toThrow(`agents.a.isolation would show ${folder}`)
    }
  })

  it.runIf(isRoot)('if it would run as root', async () => {
    const agent = { ...SHELL, isolation: 'bubblewrap' }
    await expect(open({ a: agent })).rejects.toThrow('agents.a.runAs must name another user')
  })

  it.runIf(isRoot)('if its user cannot reach its folder', async () => {
    await mkdir(join(folder, 'data'), { mode: 0o700 })
    const agent = { ...SHELL, runAs: { uid: 'nobody' } }
    const hint = `cannot reach its folder through ${folder}/data: chmod o+x ${folder}/data`
    await expect(open({ a: agent })).rejects.toThrow(hint)
  })
})

it('an ACP agent works in a folder of its own for each session', async () => {
  const holdfast = await open({ a: { runner: 'acp', command: process.execPath, args: [AGENT] } })
  const sessions = [await holdfast.resolve(), await holdfast.resolve()]
  const places = await Promise.all(
    sessions.map(async (session) => (await session.turn('where')).reply?.text.split(' ')[1]),
  )
  for (const place of places)
    expect(place).toMatch(new RegExp(`^${folder}/data/agents/[0-9a-f]{32}$`))
  expect(new Set(places).size).toBe(2)
  await holdfast.close()
})

it('a model answers', async () => {
  const model = await startStubOpenAi()
  const holdfast = await open({ a: { runner: 'openai', baseUrl: model.url, model: 'm' } })
  const session = await holdfast.resolve()
  expect((await session.turn('hello')).reply?.text).toBe('seen 1: hello')
  await holdfast.close()
  await model.close()
})
