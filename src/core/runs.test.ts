import { setImmediate as eventLoopTurn } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { Holdfast } from './holdfast.ts'
import type { RunnerOutput } from './runner.ts'
import type { Reply } from './state.ts'

type Step = RunnerOutput | { readonly type: 'return'; readonly reply: Reply }

/** A turn of an agent that says what it is given, on a store that appends when it is let. */
async function running() {
  const steps: Step[] = []
  let more = (): void => undefined
  async function* run(): AsyncGenerator<RunnerOutput, Reply | undefined> {
    for (;;) {
      const step = steps.shift()
      if (step === undefined) await new Promise<void>((resolve) => (more = resolve))
      else if (step.type === 'return') return step.reply
      else yield step
    }
  }
  let ids = 0
  let letAppend = Promise.resolve()
  const store = new MemoryStore()
  const append = store.append.bind(store)
  store.append = async (...appended) => {
    await letAppend
    return append(...appended)
  }
  const hold = new Holdfast({
    store,
    runners: { agent: { run } },
    clock: {
      now: () => 1_000,
      monotonic: () => 1_000,
      after: (ms, run) => {
        const timer = setTimeout(run, ms).unref()
        return () => clearTimeout(timer)
      },
    },
    entropy: { id: () => `id${(ids += 1)}` },
    digest: String,
    node: 'a',
  })
  await hold.authority.start()
  const session = await hold.resolve()
  await session.submit('hi')
  const say = async (step: Step): Promise<void> => {
    steps.push(step)
    more()
    await eventLoopTurn()
  }
  /** All that is asked for meanwhile is decided together, in order. */
  const inOneBatch = async (work: () => Promise<unknown>): Promise<void> => {
    let release = (): void => undefined
    letAppend = new Promise((resolve) => (release = resolve))
    const appending = session.createLink({ scopes: ['watch'] })
    await eventLoopTurn()
    await work()
    release()
    await appending
    await eventLoopTurn()
  }
  const said = async (): Promise<string[]> => {
    const texts: string[] = []
    for await (const { role, text } of session.messages()) if (role !== 'user') texts.push(text)
    return texts
  }
  return { hold, session, say, inOneBatch, said }
}

const DELTA = { type: 'delta', text: 'half' } as const
const MESSAGE = { type: 'message', text: 'half a sentence' } as const

it('keeps what was said before a message if the session is closed before it', async () => {
  const { session, say, inOneBatch, said } = await running()
  await say(DELTA)
  let closed: Promise<unknown> | undefined
  await inOneBatch(async () => {
    closed = session.close()
    await eventLoopTurn()
    await say(MESSAGE)
  })
  await closed
  expect(await said()).toEqual(['half'])
})

it('keeps it if the server stops before that message', async () => {
  const { hold, say, inOneBatch, said } = await running()
  await say(DELTA)
  let stopped: Promise<void> | undefined
  await inOneBatch(async () => {
    stopped = hold.authority.stop()
    await eventLoopTurn()
    await say(MESSAGE)
  })
  await stopped
  expect(await said()).toEqual(['half'])
})

it('records it once if the session is closed right after that message', async () => {
  const { session, say, inOneBatch, said } = await running()
  await say(DELTA)
  let closed: Promise<unknown> | undefined
  await inOneBatch(async () => {
    await say(MESSAGE)
    closed = session.close()
    await eventLoopTurn()
  })
  await closed
  expect(await said()).toEqual(['half a sentence'])
})

it.each([
  ['message', { type: 'message', text: 'all', data: 1n }],
  ['return value', { type: 'return', reply: { text: 'all', data: 1n } }],
] as const)('keeps it if that %s cannot be written as JSON', async (_name, step) => {
  const { session, say, said } = await running()
  await say(DELTA)
  await say(step)
  expect(await session.finished('t2')).toMatchObject({ state: 'failed' })
  expect(await said()).toEqual(['half'])
})
