/** The contract of `Runner`, tried on the long-lived Claude Code itself. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'vitest'
import { claudeRunner, type Runner } from 'holdfast'
import { runnerConformance, type RunnerUnderTest } from 'holdfast/testing'
import { offline, programOf } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

async function claude(): Promise<RunnerUnderTest> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-claude-'))
  const model = await StubModel.start()
  // It leaves a folder where temporary files are.
  const env = { ...(await offline('claude', join(folder, 'home'), model.url)), TMPDIR: folder }
  const open = (): Runner =>
    claudeRunner({ command: programOf('claude'), folder: join(folder, 'agents'), env })
  return {
    runner: open(),
    inputs: { answer: 'hello', hang: 'hang', fail: null, ask: 'run rmdir nothing' },
    reopen: async () => open(),
    dispose: async () => {
      await model.close()
      await rm(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

describe('the runner of Claude Code', () => {
  for (const { title, run } of runnerConformance(claude)) it(title, run)
})
