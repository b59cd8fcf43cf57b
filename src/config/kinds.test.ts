/** Agents of the kinds `acp` and `openai`, from the configuration to an answer. */
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { startStubOpenAi } from '../../test/support/stub-openai.ts'
import { openHoldfast } from '../open.ts'
import { checkConfig, openAgents } from './index.ts'

const AGENT = fileURLToPath(new URL('../../test/support/acp-agent.mjs', import.meta.url))
let folder: string

beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-kinds-')))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

async function open(agents: Record<string, unknown>) {
  const config = { ...checkConfig({ agents }), file: null, base: folder }
  return openHoldfast({
    store: 'memory:',
    agents: await openAgents(config, { folder: join(folder, 'agents'), names: [] }),
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
])('%j is refused: %s', async (agent, problem) => {
  await expect(open({ a: agent })).rejects.toThrow(`agents.${problem}`)
})

it('an ACP agent works in a folder of its own for each session', async () => {
  const holdfast = await open({ a: { runner: 'acp', command: process.execPath, args: [AGENT] } })
  const sessions = [await holdfast.resolve(), await holdfast.resolve()]
  const places = await Promise.all(
    sessions.map(async (session) => (await session.turn('where')).reply?.text.split(' ')[1]),
  )
  for (const place of places) expect(place).toMatch(new RegExp(`^${folder}/agents/[0-9a-f]{32}$`))
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
