/** I5: what a node does when it cannot prove its lease any more, moment by moment. */
import { describe, expect, it } from 'vitest'
import { Holdfast, type Clock } from '../../src/core/index.ts'
import { systemDigest, systemEntropy } from '../../src/platform/clock.ts'
import { functionRunner, type Agent } from '../../src/runners/function.ts'
import { MemoryStore } from '../../src/stores/memory.ts'
import { gate } from '../support/gate.ts'

const LEASE_MS = 1_000

/** Time that the test moves: with all that is due, or, as for a frozen process, without. */
class HandClock implements Clock {
  #now = 0
  #timers: { readonly at: number; readonly run: () => void }[] = []

  now(): number {
    return this.#now
  }

  /** To look at it takes a moment, as in real life: what follows is never at the very same time. */
  monotonic(): number {
    this.#now += 0.001
    return this.#now
  }

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run }
    this.#timers.push(timer)
    if (ms === 0) setImmediate(() => this.go(0))
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer)
    }
  }

  freeze(ms: number): void {
    this.#now += ms
  }

  go(ms: number): void {
    const end = this.#now + ms
    for (;;) {
      const [next] = this.#timers.toSorted((one, other) => one.at - other.at)
      if (next === undefined || next.at > end) break
      this.#now = Math.max(this.#now, next.at)
      this.#timers = this.#timers.filter((timer) => timer !== next)
      next.run()
    }
    this.#now = Math.max(this.#now, end)
  }
}

async function open(agent: Agent = async ({ text }) => text) {
  const clock = new HandClock()
  const store = new MemoryStore({ clock })
  const holdfast = new Holdfast({
    clock,
    store,
    entropy: systemEntropy,
    digest: systemDigest,
    node: 'a',
    runners: { agent: functionRunner(agent) },
    limits: { leaseMs: LEASE_MS },
  })
  await holdfast.authority.start()
  const cutOff = (): void => {
    store.beat = () => Promise.reject(new Error('the way to the store is lost'))
  }
  return { clock, cutOff, holdfast, session: await holdfast.resolve({ key: 'k' }) }
}

describe('a node whose lease is in doubt', () => {
  it('shows nobody what it remembers, even before any timer has told it', async () => {
    const { clock, holdfast, session } = await open()
    expect((await session.state()).key).toBe('k')
    clock.freeze(LEASE_MS)
    await expect(session.state()).rejects.toMatchObject({ code: 'lease_lost' })
    expect(holdfast.authority.heldCount).toBe(0)
  })

  it('lets go of everything while a fifth of the lease is left', async () => {
    const { clock, cutOff, holdfast } = await open()
    clock.go(LEASE_MS * 0.2 + 1)
    await new Promise((resolve) => setImmediate(resolve))
    cutOff()
    clock.go(LEASE_MS * 0.8 - 2)
    expect(holdfast.authority.heldCount).toBe(1)
    clock.go(4)
    expect(holdfast.authority.heldCount).toBe(0)
  })

  it('has stopped its agent by then', async () => {
    const begun = gate<AbortSignal>()
    const { clock, cutOff, session } = await open(async (_, { signal }) => {
      begun.open(signal)
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      return 'stopped'
    })
    const turn = session.turn('work')
    const signal = await begun.opened
    cutOff()
    clock.go(LEASE_MS * 0.8 + 3)
    expect(signal.aborted).toBe(true)
    await expect(turn).rejects.toMatchObject({ code: 'lease_lost' })
  })
})
