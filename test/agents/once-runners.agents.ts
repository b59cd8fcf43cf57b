/** The contract of `Runner`, tried on the programs that are started once per turn. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'vitest'
import { processRunner, type Runner } from 'holdfast'
import { runnerConformance, type RunnerUnderTest } from 'holdfast/testing'
import { PRESETS } from '../../src/config/presets.ts'
import { offline, programOf, type AgentName } from '../support/real-agents.ts'
import { StubModel } from '../support/stub-model.ts'

async function once(name: AgentName & ('claude' | 'codex')): Promise<RunnerUnderTest> {
  const folder = await mkdtemp(join(tmpdir(), `holdfast-${name}-once-`))
  const model = await StubModel.start()
  const env = { ...(await offline(name, join(folder, 'home'), model.url)), TMPDIR: folder }
  const { runner: _, ...preset } = PRESETS[`${name}-once`]
  const open = (): Runner =>
    processRunner({ ...preset, command: programOf(name), folder: join(folder, 'agents'), env })
  return {
    runner: open(),
    inputs: { answer: 'hello', hang: 'hang', fail: null, ask: null },
    reopen: async () => open(),
    dispose: async () => {
      await model.close()
      await rm(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

for (const name of ['claude', 'codex'] as const) {
  describe(`the runner of ${name}-once`, () => {
    for (const { title, run } of runnerConformance(() => once(name))) it(title, run)
  })
}
