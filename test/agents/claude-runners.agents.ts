/** The contract of `Runner`, tried on Claude Code itself: long-lived, and by its ACP adapter. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'vitest'
import { acpRunner, claudeRunner, type Runner } from 'holdfast'
import { runnerConformance, type RunnerUnderTest } from 'holdfast/testing'
import { ADAPTER, offline, programOf } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

type Options = {
  readonly command: string
  readonly env: Readonly<Record<string, string>>
  readonly folder: string
}

const RUNNERS = [
  ['claude', (options: Options): Runner => claudeRunner(options)],
  [ADAPTER, (options: Options): Runner => acpRunner(options)],
] as const

/** What the adapter does not do: it says that it has forks, and keeps one only once a prompt has run in it. */
const UNLIKE_ADAPTER = 'begins a fork where it says that it can, and refuses clearly elsewhere'

describe.each(RUNNERS)('the runner of %s', (name, runnerOf) => {
  const claude = async (): Promise<RunnerUnderTest> => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-claude-'))
    const model = await StubModel.start()
    const env = await offline(name, join(folder, 'home'), model.url)
    const options = { command: programOf(name), folder: join(folder, 'agents'), env }
    return {
      runner: runnerOf(options),
      inputs: { answer: 'hello', hang: 'hang', fail: null, ask: 'run rmdir nothing' },
      reopen: async () => runnerOf(options),
      // The adapter writes them to `.claude/settings.local.json` of its folder.
      ...(name === ADAPTER ? { keepsGrants: true } : {}),
      dispose: async () => {
        await model.close()
        await rm(folder, { recursive: true, force: true, maxRetries: 5 })
      },
    }
  }
  for (const { title, run } of runnerConformance(claude)) {
    it.skipIf(name === ADAPTER && title === UNLIKE_ADAPTER)(title, run)
  }
})
