/** The contract of `Runner`, tried on the runners that need no program but Node. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { acpRunner } from '../../src/runners/acp/index.ts'
import { functionRunner, type Agent } from '../../src/runners/function.ts'
import { processRunner } from '../../src/runners/process/index.ts'
import type { Runner } from '../../src/core/index.ts'
import { runnerConformance, type RunnerUnderTest } from '../../src/testing/index.ts'

const INPUTS = { answer: 'hello', hang: 'hang', fail: 'fail', ask: null } as const

/** What an agent does with each input. */
const agent: Agent = async function* ({ text }, { signal, ask }) {
  yield text
  if (text === 'fail') throw new Error('it fails')
  if (text === 'ask') {
    const detail = { tool: 'say', input: text }
    await ask({ kind: 'permission', question: 'May I?', options: ['allow', 'deny'], detail })
  }
  if (text !== 'hang') return
  await new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error))
  })
}
const asking = Object.assign(agent, { capabilities: { asks: true, fork: 'any' } as const })

function conforms(name: string, open: () => Promise<RunnerUnderTest>): void {
  describe(`the runner of ${name}`, () => {
    for (const { title, run } of runnerConformance(open)) it(title, run)
  })
}

async function inFolder(
  make: (folder: string) => Runner,
  inputs: RunnerUnderTest['inputs'] = INPUTS,
): Promise<RunnerUnderTest> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-runner-'))
  return {
    runner: make(folder),
    inputs,
    reopen: async () => make(folder),
    dispose: () => rm(folder, { recursive: true }),
  }
}

conforms('functions', async () => ({
  runner: functionRunner(asking),
  inputs: { ...INPUTS, ask: 'ask' },
}))

const PROGRAM = `
const text = process.argv[1]
process.stdout.write(text)
if (text === 'fail') process.exitCode = 1
if (text === 'hang') setInterval(() => {}, 1000)
`
conforms('programs', () =>
  inFolder((folder) =>
    processRunner({ command: process.execPath, args: ['-e', PROGRAM, '{text}'], folder }),
  ),
)

const acpAgent = fileURLToPath(new URL('../support/acp-agent.mjs', import.meta.url))
conforms('ACP agents', () =>
  inFolder(
    (folder) => {
      const env = { KEEP: folder, RESTORE: 'load' }
      return acpRunner({ command: process.execPath, args: [acpAgent], env, folder })
    },
    { ...INPUTS, fail: 'refuse', ask: 'ask' },
  ),
)

conforms('ACP agents that offer all', () =>
  inFolder(
    (folder) => {
      const env = { KEEP: folder, RESTORE: 'resume', OFFERS: 'all' }
      return acpRunner({ command: process.execPath, args: [acpAgent], env, folder })
    },
    { ...INPUTS, fail: 'refuse', ask: 'ask' },
  ),
)

describe('a runner', () => {
  const broken = (change: Partial<Runner>): (() => Promise<RunnerUnderTest>) => {
    return async () => ({
      runner: { ...functionRunner(asking), ...change },
      inputs: { ...INPUTS, ask: 'ask' },
    })
  }
  const tried = (open: () => Promise<RunnerUnderTest>, wanted: string): Promise<void> => {
    const found = runnerConformance(open).find(({ title }) => title === wanted)
    return found?.run() ?? Promise.reject(new Error(`there is no case: ${wanted}`))
  }

  it('that answers nothing is found', async () => {
    const silent: Partial<Runner> = {
      async *run() {
        yield { type: 'delta', text: '' }
        return undefined
      },
    }
    const trial = tried(broken(silent), 'ends a turn exactly once, with its answer')
    await expect(trial).rejects.toThrow()
  })

  it('that says it can be forked and cannot is found', async () => {
    const refusing = { fork: () => Promise.reject(new Error('it cannot')) }
    const open = broken(refusing)
    const title = 'begins a fork where it says that it can, and refuses clearly elsewhere'
    await expect(tried(open, title)).rejects.toThrow()
  })
})
