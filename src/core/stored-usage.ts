/**
 * A figure of a principal that the store counts: its open sessions, or its stored bytes.
 *
 * It is measured when it is needed and old: after 5 s, or after 1 s if a request would be refused
 * by it, and a measurement that takes long is repeated less often. In between this node adds what
 * it does itself. So on one node the figure is exact; on several, it lacks what the others did
 * since the last measurement.
 */
import type { Clock } from './clock.ts'
import type { Store, StoredQuota } from './store.ts'

type StoredUsageContext = {
  readonly store: Pick<Store, 'usage'>
  readonly clock: Pick<Clock, 'monotonic'>
}

/** How old a figure may be that lets a request pass, and one that refuses it. */
const PASS_MS = 5_000
const REFUSE_MS = 1_000
/** At most this part of the time is spent on measuring. */
const COST_PART = 1 / 20

export class StoredUsage {
  /** Null: it was not measured. */
  value: number | null = null
  readonly #principal: string
  readonly #quota: StoredQuota
  readonly #context: StoredUsageContext
  /** Sessions that are being created. */
  #creating = 0
  /** Called when none is. */
  #drained: (() => void)[] = []
  #measuring: Promise<void> | null = null
  #measuredAt = 0
  #costMs = 0
  /** How far the store is to count, and has counted. */
  #most = 0
  #countedTo = 0

  constructor(principal: string, quota: StoredQuota, context: StoredUsageContext) {
    this.#principal = principal
    this.#quota = quota
    this.#context = context
  }

  get isIdle(): boolean {
    return this.#creating === 0 && this.#measuring === null
  }

  /** Resolves when the figure is young enough to decide by; null: it is. */
  measuring(limit: number): Promise<void> | null {
    if (this.#isFresh(limit)) return null
    this.#most = Math.max(this.#most, limit + 1)
    this.#measuring ??= this.#measure().finally(() => (this.#measuring = null))
    return this.#measuring
  }

  #isFresh(limit: number): boolean {
    if (this.value === null || limit >= this.#countedTo) return false
    const mayMs = this.value + this.#creating >= limit ? REFUSE_MS : PASS_MS
    const ageMs = this.#context.clock.monotonic() - this.#measuredAt
    return ageMs < Math.max(mayMs, this.#costMs / COST_PART)
  }

  async #measure(): Promise<void> {
    const { clock, store } = this.#context
    // What is being created could be counted twice. Others that want to create wait for this.
    while (this.#creating > 0) await new Promise<void>((resolve) => this.#drained.push(resolve))
    const began = clock.monotonic()
    const most = this.#most
    const value = await store.usage(this.#principal, this.#quota, most)
    this.#measuredAt = clock.monotonic()
    this.#costMs = this.#measuredAt - began
    this.#countedTo = most
    this.value = value
  }

  /** Makes room for one more; false: there is none. `settle` must follow. */
  async take(limit: number): Promise<boolean> {
    for (let wait = this.measuring(limit); wait !== null; wait = this.measuring(limit)) await wait
    if ((this.value ?? 0) + this.#creating >= limit) return false
    this.#creating += 1
    return true
  }

  settle(taken: 0 | 1, isCreated: boolean): void {
    this.#creating -= taken
    if (isCreated) this.add(1)
    if (this.#creating === 0) for (const resolve of this.#drained.splice(0)) resolve()
  }

  /** This node has done so much itself since the measurement. */
  add(count: number): void {
    if (this.value === null) return
    // It is more than was counted.
    if (count < 0 && this.value >= this.#countedTo) this.value = null
    else this.value = Math.max(0, this.value + count)
  }

  /** It has changed in a way that only the store can tell. */
  forget(): void {
    this.value = null
  }
}
