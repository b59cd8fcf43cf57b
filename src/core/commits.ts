/**
 * Group commit: appends of many sessions that are ready at the same time share one durable step.
 * There is no timer: whatever waits when the store is free goes together. A session has at most one
 * append under way, so the order within a session is its own.
 */
import type { ChangeFeed } from './changes.ts'
import type { Clock } from './clock.ts'
import type { CoreContext } from './context.ts'
import type { Counters } from './counters.ts'
import type { Diagnose } from './diagnostics.ts'
import { HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import type { Append, AppendOutcome, Store } from './store.ts'

export type CommitContext = Pick<
  CoreContext,
  'store' | 'clock' | 'limits' | 'counters' | 'diagnose'
> & { readonly changes: ChangeFeed }

type PendingAppend = {
  readonly append: Append
  readonly settle: (outcome: AppendOutcome) => void
  readonly fail: (error: unknown) => void
}

/** Fewer appends than these are not worth a commit of their own. */
const SHARE_MIN = 16

export class GroupCommit {
  readonly #store: Store
  readonly #limits: Limits
  readonly #counters: Counters
  readonly #changes: ChangeFeed
  /** I5: whether this node may still write; asked right before each commit, and after it. */
  readonly #mayWrite: () => boolean
  readonly #clock: Clock
  readonly #diagnose: Diagnose
  #waiting: PendingAppend[] = []
  #inFlight = 0
  #due = false

  constructor(
    { store, clock, limits, counters, changes, diagnose }: CommitContext,
    mayWrite: () => boolean,
  ) {
    this.#store = store
    this.#clock = clock
    this.#limits = limits
    this.#counters = counters
    this.#changes = changes
    this.#diagnose = diagnose
    this.#mayWrite = mayWrite
  }

  append(append: Append): Promise<AppendOutcome> {
    const promise = new Promise<AppendOutcome>((settle, fail) => {
      this.#waiting.push({ append, settle, fail })
    })
    this.#flushSoon()
    return promise
  }

  /** When all that is ready now has come this far. */
  #flushSoon(): void {
    if (this.#due || this.#inFlight >= this.#limits.commitsInFlightMax) return
    this.#due = true
    this.#clock.after(0, () => {
      this.#due = false
      this.#flush()
    })
  }

  #flush(): void {
    while (this.#waiting.length > 0 && this.#inFlight < this.#limits.commitsInFlightMax) {
      const batch = this.#waiting.splice(0, this.#share())
      this.#inFlight += 1
      void this.#commit(batch)
    }
  }

  /**
   * Many appends are divided among all commits that may be under way: in a single one, the store
   * would idle while this node works on the answer, and this node while the store works.
   */
  #share(): number {
    const { commitsInFlightMax, commitAppendsMax } = this.#limits
    const share = Math.ceil(this.#waiting.length / (commitsInFlightMax - this.#inFlight))
    return Math.min(Math.max(share, SHARE_MIN), commitAppendsMax)
  }

  async #commit(batch: readonly PendingAppend[]): Promise<void> {
    const began = this.#clock.monotonic()
    try {
      this.#assertMayWrite()
      const outcomes = await this.#store.append(batch.map(({ append }) => append))
      // A process that was frozen meanwhile must not act on this: another node may own the session.
      this.#assertMayWrite()
      this.#counters.commits += 1
      this.#counters.appends += batch.length
      this.#changes.committed()
      batch.forEach(({ settle }, index) => settle(outcomes[index] ?? 'stale'))
    } catch (error) {
      for (const { fail } of batch) fail(error)
    } finally {
      this.#tellSlow(this.#clock.monotonic() - began, batch.length)
      this.#inFlight -= 1
      if (this.#waiting.length > 0) this.#flushSoon()
    }
  }

  #tellSlow(ms: number, appends: number): void {
    if (ms < this.#limits.slowCommitMs) return
    this.#diagnose('commit_slow', 'a commit took long', { ms: Math.round(ms), appends })
  }

  #assertMayWrite(): void {
    if (!this.#mayWrite()) throw new HoldfastError('lease_lost', 'this node has lost its lease')
  }
}
