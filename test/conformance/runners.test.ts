/** The contract of `Runner`, tried on the runners that need no program but Node. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { acpRunner } from '../../src/runners/acp/index.ts'
import { functionRunner, type Agent } from '../../src/runners/function.ts'
import { openaiRunner } from '../../src/runners/openai/index.ts'
import { processRunner } from '../../src/runners/process/index.ts'
import type { Runner } from '../../src/core/index.ts'
import { runnerConformance, type RunnerUnderTest } from '../../src/testing/index.ts'
import { startStubOpenAi } from '../support/stub-openai.ts'

const INPUTS = { answer: 'hello', hang: 'hang', fail: 'fail', ask: null } as const

/** What an agent does with each input. */
const agent: Agent = async function* ({ text }, { signal, ask, session }) {
  yield text
  if (text === 'fail') throw new Error('it fails')
  if (text === 'ask') {
    const detail = { tool: 'say', input: text }
    const grant = { label: 'to say it', data: 'say' }
    if (session.grants.some(({ data }) => data === grant.data)) return
    const always = { id: 'always', label: 'Always', grants: [grant] }
    await ask({
      kind: 'permission',
      question: 'May I?',
      options: ['allow', 'deny', always],
      detail,
    })
  }
  if (text !== 'hang') return
  await new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error))
  })
}
const asking = Object.assign(agent, {
  capabilities: { asks: true, files: true, fork: 'any', images: true, load: true } as const,
})

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
  reopen: async () => functionRunner(asking),
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
conforms('models behind an API', async () => {
  const model = await startStubOpenAi()
  model.answer = ({ users }) => {
    const [text = ''] = users.slice(-1)
    if (text === 'fail') return (response) => response.writeHead(400).end('{}')
    if (text !== 'hang') return { text }
    return async (response) => {
      const choices = [{ delta: { content: 'hanging' } }]
      response.write(`data: ${JSON.stringify({ choices })}\n\n`)
      await once(response, 'close')
    }
  }
  const open = (): Runner =>
    openaiRunner({ baseUrl: model.url, model: 'stub', images: true, models: ['other'] })
  return {
    runner: open(),
    inputs: INPUTS,
    reopen: async () => open(),
    dispose: () => model.close(),
  }
})

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
    { ...INPUTS, fail: 'refuse', ask: 'always' },
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

  it('that says it takes images and fails with them is found', async () => {
    const plain = functionRunner(asking)
    const blind: Partial<Runner> = {
      run(turn, context) {
        if (turn.parts !== undefined) throw new Error('what is this?')
        return plain.run(turn, context)
      },
    }
    const title = 'gives its agent images and files, or refuses them before anything has happened'
    await expect(tried(broken(blind), title)).rejects.toThrow('the image was not taken')
  })

  it('that forgets what was allowed is found', async () => {
    const forgetful: Partial<Runner> = {
      run: (turn, context) =>
        functionRunner(asking).run(turn, {
          ...context,
          session: { ...context.session, grants: [] },
        }),
    }
    const title =
      'asks no more for what a person has allowed for the session until that is taken back'
    await expect(tried(broken(forgetful), title)).rejects.toThrow('it asked again')
  })

  it('that says it can be forked and cannot is found', async () => {
    const refusing = { fork: () => Promise.reject(new Error('it cannot')) }
    const open = broken(refusing)
    const title = 'begins a fork where it says that it can, and refuses clearly elsewhere'
    await expect(tried(open, title)).rejects.toThrow()
  })
})
