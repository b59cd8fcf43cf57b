import { setImmediate as eventLoopTurn } from 'node:timers/promises'
import { expect, it, vi } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { Holdfast } from './holdfast.ts'
import type { RunnerOutput } from './runner.ts'
import type { Reply } from './state.ts'

type Step = RunnerOutput | { readonly type: 'return'; readonly reply: Reply }

/** A turn of an agent that says what it is given, on a store that appends when it is let. */
async function running() {
  const steps: Step[] = []
  let more = (): void => undefined
  let isAsked = false
  async function* run(): AsyncGenerator<RunnerOutput, Reply | undefined> {
    for (;;) {
      const step = steps.shift()
      isAsked = step === undefined
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
  /** Whether the agent has been asked for more than it was given. */
  const asked = (): boolean => isAsked
  return { hold, session, say, inOneBatch, said, asked }
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

it('does not wait for what is recorded before it lets its agent go on', async () => {
  const { session, say, inOneBatch } = await running()
  const work = { type: 'activity', kind: 'work', data: {} } as const
  await inOneBatch(async () => {
    await say(work)
    await say(MESSAGE)
    await say(work)
    await say({ type: 'return', reply: { text: 'all' } })
    expect((await session.getTurn('t2')).endedAt).toBeNull()
  })
  const { state } = await session.finished('t2')
  const { events } = await session.read(3, 100)
  const types = events.map(({ body }) => (JSON.parse(body) as { type: string }).type)
  expect(state).toBe('done')
  const told = ['turn.activity', 'message.added', 'turn.activity', 'message.added', 'turn.done']
  expect(types.slice(-5)).toEqual(told)
})

it('tells what is said after a message only when that is recorded', async () => {
  const { session, say, inOneBatch } = await running()
  const types: string[] = []
  const following = (async () => {
    for await (const { type } of session.events({ after: 3 })) {
      if (type === 'delta' || type === 'message.added') types.push(type)
    }
  })()
  await say(DELTA)
  await vi.waitFor(() => expect(types).toEqual(['delta']))
  await inOneBatch(async () => {
    await say(MESSAGE)
    await say({ type: 'delta', text: 'more' })
    expect(types).toEqual(['delta'])
  })
  await say({ type: 'return', reply: { text: 'more' } })
  await session.finished('t2')
  await session.close()
  await following
  expect(types.slice(0, 3)).toEqual(['delta', 'message.added', 'delta'])
})

it('makes its agent wait when too much is not recorded', async () => {
  const { say, inOneBatch, asked } = await running()
  const large = { type: 'message', text: 'x'.repeat(200_000) } as const
  await inOneBatch(async () => {
    await say(large)
    expect(asked()).toBe(true)
    await say(large)
    expect(asked()).toBe(false)
  })
  await vi.waitFor(() => expect(asked()).toBe(true))
})

it('keeps all that was said if the session is closed before two messages', async () => {
  const { session, say, inOneBatch, said } = await running()
  await say(DELTA)
  let closed: Promise<unknown> | undefined
  await inOneBatch(async () => {
    closed = session.close()
    await eventLoopTurn()
    await say(MESSAGE)
    await say({ type: 'message', text: 'another' })
  })
  await closed
  expect(await said()).toEqual(['half'])
})
