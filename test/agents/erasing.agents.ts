/** What real agents keep of a conversation is removed with an erased session. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import {
  claudeRunner,
  codexRunner,
  openHoldfast,
  processRunner,
  type ProcessOptions,
  type Runner,
} from 'holdfast'
import { offline, programOf } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

let folder: string
let model: StubModel

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-erasing-'))
  model = await StubModel.start()
})
afterEach(async () => {
  await model.close()
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
})

/** The files that have this text, or a name with it. Databases keep deleted rows as free space. */
async function filesWith(text: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile() && !entry.name.includes('.sqlite'))
  const found = await Promise.all(
    files.map(async (entry) => {
      const path = join(entry.parentPath, entry.name)
      return path.includes(text) || (await readFile(path, 'utf8')).includes(text) ? [path] : []
    }),
  )
  return found.flat()
}

const PROGRAMS: Readonly<Record<'claude' | 'codex', Omit<ProcessOptions, 'command' | 'folder'>>> = {
  claude: {
    output: 'claude',
    args: ['-p', '--output-format', 'stream-json', '--verbose', '--session-id', '{sessionUuid}'],
  },
  codex: { output: 'codex', args: ['exec', '--json', '--skip-git-repo-check', '-'] },
}

type Started = {
  readonly command: string
  readonly env: Record<string, string>
  readonly folder: string
}

it.each<['claude' | 'codex', string, (options: Started) => Runner]>([
  ['claude', 'a process for each turn', (all) => processRunner({ ...PROGRAMS.claude, ...all })],
  ['claude', 'one process', (all) => claudeRunner(all)],
  ['codex', 'a process for each turn', (all) => processRunner({ ...PROGRAMS.codex, ...all })],
  ['codex', 'its app server', (all) => codexRunner({ ...all, args: ['app-server'] })],
])('%s with %s keeps nothing', async (name, _, runnerOf) => {
  const env = await offline(name, join(folder, 'home'), model.url)
  const agent = runnerOf({ command: programOf(name), env, folder: join(folder, 'agents') })
  const hold = await openHoldfast({ store: 'memory:', agents: { agent } })
  const session = await hold.resolve()
  const turn = await session.turn('a very secret word')
  expect(turn).toMatchObject({ state: 'done' })
  const { backend } = await session.state()
  expect((await filesWith(backend ?? '')).length).toBeGreaterThan(0)
  expect(await session.erase()).toEqual({ left: [] })
  expect(await filesWith(backend ?? '')).toEqual([])
  expect(await filesWith('very secret word')).toEqual([])
  expect(await readdir(join(folder, 'agents'))).toEqual([])
  await hold.close()
})
