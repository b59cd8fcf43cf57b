/**
 * A node's lease: the proof that it may act as the owner of its sessions (I5). It is renewed well
 * before it ends; when that fails, the node releases all sessions before another can claim them.
 */
import type { Clock } from './clock.ts'
import type { Counters } from './figures.ts'
import type { Diagnose } from './diagnostics.ts'
import { HoldfastError, messageOf } from './errors.ts'
import { LIMIT_MAX, type Limits } from './limits.ts'
import type { Store } from './store.ts'

export type LeaseHolder = {
  readonly node: string
  readonly store: Store
  readonly clock: Clock
  readonly limits: Limits
  readonly counters: Counters
  readonly diagnose: Diagnose
  /** How many sessions are held under it. */
  readonly heldCount: number
}

export class Lease {
  readonly #holder: LeaseHolder
  readonly #lost: (error: HoldfastError) => void
  /**
   * On the monotonic clock, counted from before the beat was sent: never later than the store
   * thinks.
   */
  #heldUntil = 0
  #beatenAt = 0
  #cancelTimer: () => void = () => undefined
  #cancelEnd: () => void = () => undefined
  #stopped = false
  /** It was reported as taken, and not as lost since. */
  #isTaken = false
  /** All sessions were released, and none can be held since. */
  #isLetGo = false

  constructor(holder: LeaseHolder, lost: (error: HoldfastError) => void) {
    this.#holder = holder
    this.#lost = lost
  }

  get held(): boolean {
    // A beat may still be under way when the lease is given up: its answer changes nothing.
    return !this.#stopped && this.#holder.clock.monotonic() < this.#heldUntil
  }

  /** Whether it ends by itself at all. */
  get ends(): boolean {
    return this.#holder.limits.leaseMs < LIMIT_MAX
  }

  /** Since the last beat that the store answered was sent. */
  get ageMs(): number {
    return this.#holder.clock.monotonic() - this.#beatenAt
  }

  /** How long this node may still speak, unless it beats again; 0 if it may not. */
  get leftMs(): number {
    return this.held ? this.#heldUntil - this.#holder.clock.monotonic() : 0
  }

  /** Lets go of everything and throws if the lease cannot be proved. */
  assertHeld(): void {
    if (this.held) return
    throw this.#lose()
  }

  async start(): Promise<void> {
    await this.#beat()
    this.#beatLater()
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancelTimer()
    this.#cancelEnd()
    const { store, node } = this.#holder
    // If the store cannot be reached, the lease ends by itself.
    await store
      .beat(node, 0)
      .catch((error: unknown) => this.#tellFailure('the lease could not be given back', error))
  }

  async #beat(): Promise<void> {
    const { store, node, clock, limits } = this.#holder
    const sentAt = clock.monotonic()
    const isLapsed = (await store.beat(node, limits.leaseMs)) === 'lapsed'
    if (isLapsed) this.#lapse()
    this.#beatenAt = sentAt
    // A fifth of the lease is left for runners to stop.
    this.#heldUntil = Math.max(this.#heldUntil, sentAt + limits.leaseMs * 0.8)
    this.#watchEnd()
    if (!this.held) return
    this.#isLetGo = false
    this.#tellTaken()
  }

  /** Lets go of everything, once, although each request and each sweep may find it out anew. */
  #lose(): HoldfastError {
    const { node, diagnose, heldCount: sessions } = this.#holder
    const error = new HoldfastError('lease_lost', 'this node has lost its lease')
    if (this.#isTaken && !this.#stopped) {
      this.#isTaken = false
      diagnose('lease_lost', 'this node cannot prove its lease', { node, sessions })
    }
    if (!this.#isLetGo) {
      this.#isLetGo = true
      this.#lost(error)
    }
    return error
  }

  #tellTaken(): void {
    if (this.#isTaken || !this.ends) return
    this.#isTaken = true
    const { node, diagnose, limits } = this.#holder
    diagnose('lease_taken', 'this node has a lease', { node, leaseMs: limits.leaseMs })
  }

  #tellFailure(message: string, error: unknown): void {
    const { node, diagnose } = this.#holder
    const leftMs = Math.round(this.leftMs)
    diagnose('lease_not_renewed', message, { node, leftMs, error: messageOf(error) })
  }

  /**
   * The store's clock has jumped, or this machine has slept, and nothing here could tell: what is
   * held may have been another's meanwhile.
   */
  #lapse(): void {
    if (this.held) this.#holder.counters.leasesLost += 1
    this.#lose()
  }

  /** In time, whatever became of the beats. A timer of a busy process may well be early. */
  #watchEnd(): void {
    const { clock, limits, counters } = this.#holder
    this.#cancelEnd()
    if (!this.ends || this.#stopped) return
    if (this.held) {
      const leftMs = this.#heldUntil - clock.monotonic() + 1
      const dueMs = Math.max(leftMs, limits.leaseMs / 100)
      this.#cancelEnd = clock.after(dueMs, () => this.#watchEnd())
    } else {
      // Also when a process that stood still gets the answer to an old beat before its timer.
      counters.leasesLost += 1
      this.#lose()
    }
  }

  #beatLater(): void {
    const { clock, limits } = this.#holder
    if (!this.ends || this.#stopped) return
    this.#cancelTimer = clock.after(limits.leaseMs / 5, () => {
      this.#beatLater()
      // A beat that fails is tried again by the next one, as long as the lease lasts.
      this.#beat().catch((error: unknown) =>
        this.#tellFailure('the lease could not be renewed', error),
      )
    })
  }
}
