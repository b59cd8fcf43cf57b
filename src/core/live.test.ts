import { expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { Holdfast } from './holdfast.ts'
import type { Runner } from './runner.ts'
import type { KeyQuery } from './store.ts'

/** A Holdfast whose store looks for keys only when it is let, and which keeps no idle session. */
async function opened(runner: Runner) {
  let time = 1_000
  let ids = 0
  const store = new MemoryStore()
  const findKeys = store.findKeys.bind(store)
  let answer = (): void => undefined
  const look = new Promise<void>((resolve) => (answer = resolve))
  store.findKeys = async (session: string, query: KeyQuery) => {
    await look
    return findKeys(session, query)
  }
  const hold = new Holdfast({
    store,
    runners: { agent: runner },
    clock: {
      now: () => time,
      monotonic: () => time,
      after: (ms, run) => {
        const timer = setTimeout(run, ms)
        return () => clearTimeout(timer)
      },
    },
    entropy: { id: () => `id${(ids += 1)}` },
    digest: (text: string) => text,
    node: 'a',
    limits: { idleSessionsMax: 0 },
  })
  await hold.authority.start()
  const trimLater = (): void => {
    time += 1_000
    hold.authority.trim()
  }
  return { hold, trimLater, answer }
}

it('is not let go while a request waits for a look for its key', async () => {
  const { hold, trimLater, answer } = await opened({
    async *run() {
      yield { type: 'delta', text: 'here' }
      return undefined
    },
  })
  const session = await hold.resolve()
  trimLater()
  expect(hold.authority.heldCount).toBe(0)
  const asked = session.submit('hi', { idempotencyKey: 'k' })
  await expect.poll(() => hold.authority.heldCount).toBe(1)
  await new Promise((resolve) => setTimeout(resolve, 5))
  trimLater()
  answer()
  expect(await asked).toMatchObject({ id: 't2' })
  await hold.authority.stop()
})
