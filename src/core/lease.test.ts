import { expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import type { Clock } from './clock.ts'
import { Counters } from './figures.ts'
import type { Diagnose } from './diagnostics.ts'
import { Lease } from './lease.ts'
import { LIMITS } from './limits.ts'

/** Its timers are as early as those of a process that was busy when it set them. */
class HastyClock implements Clock {
  #now = 0
  readonly #timers = new Set<{ readonly at: number; readonly run: () => void }>()

  now = (): number => this.#now
  monotonic = (): number => this.#now

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + Math.max(1, ms - 50), run }
    this.#timers.add(timer)
    return () => this.#timers.delete(timer)
  }

  /** The process stands still: no timer is heard of. */
  skip(ms: number): void {
    this.#now += ms
  }

  async pass(ms: number): Promise<void> {
    for (const end = this.#now + ms; this.#now < end;) {
      this.#now += 1
      for (const timer of [...this.#timers].filter(({ at }) => at <= this.#now)) {
        this.#timers.delete(timer)
        timer.run()
      }
      await Promise.resolve()
    }
  }
}

/** A lease of a second, and when it was lost. */
async function leased() {
  const clock = new HastyClock()
  const store = new MemoryStore({ clock })
  const lost: number[] = []
  const told: string[] = []
  const diagnose: Diagnose = (code) => void told.push(code)
  const limits = { ...LIMITS, leaseMs: 1_000 }
  const holder = {
    node: 'a',
    store,
    clock,
    limits,
    counters: new Counters(),
    diagnose,
    heldCount: 0,
  }
  const lease = new Lease(holder, () => lost.push(clock.now()))
  await lease.start()
  return { clock, store, counters: holder.counters, lost, lease, told }
}

it('notices its end although the timer for that was early', async () => {
  const { clock, store, lost, lease, told } = await leased()
  const beat = store.beat.bind(store)
  store.beat = () => Promise.reject(new Error('the store does not answer'))
  await clock.pass(790)
  expect([lease.held, lost]).toEqual([true, []])
  await clock.pass(20)
  expect([lease.held, lost]).toEqual([false, [expect.any(Number)]])
  for (const _request of [1, 2, 3]) expect(() => lease.assertHeld()).toThrow('lost its lease')
  expect(lost).toHaveLength(1)
  store.beat = beat
  await clock.pass(250)
  expect(lease.held).toBe(true)
  // Told once each, however often it is found out.
  const news = told.filter((code, index) => code !== told[index - 1])
  expect(news).toEqual(['lease_taken', 'lease_not_renewed', 'lease_lost', 'lease_taken'])
  await lease.stop()
})

it('lets go of everything again when it is lost again', async () => {
  const { clock, store, lost, lease } = await leased()
  const beat = store.beat.bind(store)
  for (const losses of [1, 2]) {
    store.beat = () => Promise.reject(new Error('the store does not answer'))
    await clock.pass(1_000)
    expect(() => lease.assertHeld()).toThrow('lost its lease')
    expect(lost).toHaveLength(losses)
    store.beat = beat
    await clock.pass(250)
  }
  await lease.stop()
})

it('is lost when the store says that it had ended, although nothing here could tell', async () => {
  const { clock, store, counters, lost, lease } = await leased()
  await clock.pass(500)
  expect(lost).toEqual([])
  store.beat = () => Promise.resolve('lapsed' as const)
  await clock.pass(250)
  expect(lost.length).toBeGreaterThan(0)
  expect(counters.leasesLost).toBe(lost.length)
  expect(lease.held).toBe(true)
  await lease.stop()
})

it('is lost at once if a beat is answered when its time is over', async () => {
  const { clock, store, lost } = await leased()
  let answer = (): void => undefined
  const answered = new Promise<void>((resolve) => (answer = resolve))
  const beat = store.beat.bind(store)
  store.beat = async (...lease) => {
    const outcome = await beat(...lease)
    await answered
    return outcome
  }
  await clock.pass(250)
  clock.skip(5_000)
  const thawedAt = clock.now()
  answer()
  await new Promise((resolve) => setImmediate(resolve))
  expect(lost).toEqual([thawedAt])
})
