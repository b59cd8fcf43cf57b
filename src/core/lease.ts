/**
 * A node's lease: the proof that it may speak for the sessions it owns (I5). Renewed well before it
 * ends; when that fails, the node lets go of everything while nobody else can have taken over yet.
 */
import type { Clock } from './clock.ts'
import { HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import type { Store } from './store.ts'

export type LeaseHolder = {
  readonly node: string
  readonly store: Store
  readonly clock: Clock
  readonly limits: Limits
}

/** A timer may be so much too early. */
const TIMER_MS = 1

export class Lease {
  readonly #holder: LeaseHolder
  readonly #lost: (error: HoldfastError) => void
  /**
   * On the monotonic clock, counted from before the beat was sent: never later than the store
   * thinks.
   */
  #heldUntil = 0
  #cancelTimer: () => void = () => undefined
  #stopped = false

  constructor(holder: LeaseHolder, lost: (error: HoldfastError) => void) {
    this.#holder = holder
    this.#lost = lost
  }

  get held(): boolean {
    // A beat may still be under way when the lease is given up: its answer changes nothing.
    return !this.#stopped && this.#holder.clock.monotonic() < this.#heldUntil
  }

  /** Lets go of everything and throws if the lease cannot be proved. */
  assertHeld(): void {
    if (this.held) return
    const error = new HoldfastError('lease_lost', 'this node has lost its lease')
    this.#lost(error)
    throw error
  }

  async start(): Promise<void> {
    await this.#beat()
    this.#beatLater()
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancelTimer()
    const { store, node } = this.#holder
    // A store that cannot be told lets the lease run out by itself.
    await store.beat(node, 0).catch(() => undefined)
  }

  async #beat(): Promise<void> {
    const { store, node, clock, limits } = this.#holder
    const sentAt = clock.monotonic()
    await store.beat(node, limits.leaseMs)
    // A fifth of the lease is left for those who are told to stop.
    this.#heldUntil = Math.max(this.#heldUntil, sentAt + limits.leaseMs * 0.8)
  }

  #beatLater(): void {
    const { clock, limits } = this.#holder
    if (!Number.isFinite(limits.leaseMs) || this.#stopped) return
    // Not only with a beat: the lease itself may have ended by then.
    const leftMs = this.#heldUntil - clock.monotonic() + TIMER_MS
    const beatMs = limits.leaseMs / 5
    this.#cancelTimer = clock.after(leftMs > 0 ? Math.min(beatMs, leftMs) : beatMs, () => {
      this.#beatLater()
      if (!this.held) this.#lost(new HoldfastError('lease_lost', 'this node has lost its lease'))
      // A beat that fails is tried again by the next one, as long as the lease lasts.
      this.#beat().catch(() => undefined)
    })
  }
}
