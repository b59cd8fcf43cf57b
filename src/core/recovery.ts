/**
 * The sweeper: sessions that a dead node left with work to do are picked up, idle
 * ones past their time are closed, and what retention does not keep is erased.
 */
import type { Clock } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { asHoldfastError, HoldfastError, messageOf } from './errors.ts'
import type { LiveSession } from './live.ts'
import { RetentionSweep, type RetainingNode } from './retention-sweep.ts'
import type { ListQuery, SessionRow } from './store.ts'

/** The authority, as the sweeper sees it. */
export interface SweptNode extends RetainingNode {
  /** Null where a lease never ends. */
  readonly lease: { readonly leftMs: number } | null
  open(id: string): Promise<LiveSession>
  heldSession(id: string): object | null
  /** Lets go of idle sessions beyond the bound. */
  trim(): void
}

/** How soon a session that was lost with work in it is tried again: doubled while that fails. */
const PICK_UP_MS = 250
const PICK_UP_MS_MAX = 1_000
/** How many sessions are picked up at the same time. */
const PICK_UPS = 16
/** Sessions of one kind that one sweep works on; the next sweep goes on behind them. */
const SWEPT_MAX = 5_000

/** Where the next sweep goes on with sessions of one kind; null: at the newest. */
type Round = { cursor: string | null }

export class Sweeper {
  readonly #node: SweptNode
  /** Sessions that this node lost with work in them, and owes another try. */
  readonly #owed = new Set<string>()
  readonly #clockWatch: ClockWatch
  readonly #expired: Round = { cursor: null }
  readonly #retention: RetentionSweep
  #cancelSweep: () => void = () => undefined
  #cancelPickUp: (() => void) | null = null
  #pickUpMs = PICK_UP_MS
  #stopped = false

  constructor(node: SweptNode) {
    this.#node = node
    this.#clockWatch = new ClockWatch(node.clock, node.diagnose)
    this.#retention = new RetentionSweep(node)
  }

  async start(): Promise<void> {
    await this.#pickUpPending()
    this.#sweepLater()
  }

  stop(): void {
    this.#stopped = true
    this.#retention.stop()
    this.#cancelSweep()
    this.#cancelPickUp?.()
  }

  /** Tries a session again soon: its queue must go on without a request. */
  pickUp(id: string): void {
    this.#owed.add(id)
    if (this.#cancelPickUp !== null || this.#stopped) return
    this.#cancelPickUp = this.#node.clock.after(this.#pickUpMs, () => {
      this.#cancelPickUp = null
      void this.#pickUpOwed()
    })
  }

  async #pickUpOwed(): Promise<void> {
    const owed = [...this.#owed]
    this.#owed.clear()
    const isDone = await this.#openAll(owed)
    this.#pickUpMs = isDone ? PICK_UP_MS : Math.min(2 * this.#pickUpMs, PICK_UP_MS_MAX)
  }

  #sweepLater(): void {
    if (this.#stopped) return
    this.#cancelSweep = this.#node.clock.after(this.#node.limits.sweepMs, () => {
      // A sweep that fails is tried again by the next one.
      void this.#sweep()
        .catch((error: unknown) =>
          this.#node.diagnose('sweep_failed', 'a sweep failed', {
            reason: 'list',
            error: messageOf(error),
          }),
        )
        .finally(() => this.#sweepLater())
    })
  }

  async #sweep(): Promise<void> {
    const { clock } = this.#node
    this.#clockWatch.look()
    this.#node.trim()
    await this.#pickUpPending()
    const at = clock.now()
    await this.#each(this.#expired, { expiredAt: at }, async ({ id }) => {
      // None can be opened without a lease: a later sweep finds it again.
      if (this.#isWithoutLease) return
      const live = await this.#node.open(id)
      await live.post({ type: 'expire' })
    })
    await this.#retention.sweep()
  }

  /** Then no session can be opened. */
  get #isWithoutLease(): boolean {
    return this.#node.lease?.leftMs === 0
  }

  /**
   * What dead nodes left, and what this node owns without holding it, because the answer to a claim
   * was lost.
   */
  async #pickUpPending(): Promise<void> {
    const { node, store, limits } = this.#node
    let cursor: string | null = ''
    while (cursor !== null) {
      const query: ListQuery = { pendingFor: node, limit: limits.listMax }
      const page = await store.list(cursor === '' ? query : { ...query, cursor })
      const ids = page.sessions.map(({ id }) => id)
      await this.#openAll(ids.filter((id) => this.#node.heldSession(id) === null))
      cursor = page.nextCursor
    }
  }

  /** False: some could not be opened, and have to be tried again. */
  async #openAll(ids: readonly string[]): Promise<boolean> {
    const waiting = [...ids]
    let isDone = true
    const work = async (): Promise<void> => {
      for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
        isDone = (await this.#tryOpen(id)) && isDone
      }
    }
    await Promise.all(Array.from({ length: PICK_UPS }, work))
    return isDone
  }

  /**
   * One that cannot be opened now is tried again, unless it is closed or another node's.
   */
  async #tryOpen(id: string): Promise<boolean> {
    if (this.#isWithoutLease) {
      this.pickUp(id)
      return false
    }
    try {
      await this.#node.open(id)
    } catch (error) {
      if (this.#stopped || !mayPass(error)) {
        this.#tellUnlessElsewhere('open', id, error)
        return true
      }
      this.#tellUnlessElsewhere('open', id, error)
      this.pickUp(id)
      return false
    }
    return true
  }

  /**
   * Works through all sessions of a kind, page by page, over as many sweeps as it takes. One that
   * fails is reported, keeps no other one waiting, and is tried again in the next round.
   */
  async #each(
    round: Round,
    filter: Pick<ListQuery, 'expiredAt'>,
    work: (row: SessionRow) => Promise<unknown>,
  ): Promise<void> {
    const { store, limits } = this.#node
    for (let left = SWEPT_MAX; left > 0 && !this.#stopped;) {
      const query: ListQuery = { ...filter, limit: Math.min(limits.listMax, left) }
      const { cursor } = round
      const page = await store.list(cursor === null ? query : { ...query, cursor })
      for (const row of page.sessions) {
        await work(row).catch((error: unknown) =>
          this.#tellUnlessElsewhere('expire', row.id, error),
        )
      }
      round.cursor = page.nextCursor
      left = page.nextCursor === null ? 0 : left - page.sessions.length
    }
  }

  /**
   * One that is closed or another node's needs nothing of this one; one that cannot be read was
   * reported when it was met, and so was the loss of the lease.
   */
  #tellUnlessElsewhere(step: string, session: string, error: unknown): void {
    const { code } = asHoldfastError(error)
    const isTold = ['session_closed', 'not_owner', 'session_unreadable', 'lease_lost']
    if (!isTold.includes(code)) this.#tell(step, session, error)
  }

  #tell(step: string, session: string, error: unknown): void {
    const facts = { reason: step, session, error: messageOf(error) }
    this.#node.diagnose('sweep_failed', 'a session could not be seen to', facts)
  }
}

/** Whether opening a session again may succeed here. What a store throws itself may pass too. */
function mayPass(error: unknown): boolean {
  return !(error instanceof HoldfastError) || (error.retry && error.code !== 'not_owner')
}

/** Between two looks a clock that is only being corrected does not differ by so much. */
const JUMP_MS = 2_000

/**
 * Notices when the clock jumps. Timers and leases do not mind, since they follow the monotonic
 * clock; but what is stored with a time (expiry, retention, links) comes due early or late.
 */
export class ClockWatch {
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>
  readonly #diagnose: Diagnose
  #offset: number

  constructor(clock: Pick<Clock, 'now' | 'monotonic'>, diagnose: Diagnose) {
    this.#clock = clock
    this.#diagnose = diagnose
    this.#offset = clock.now() - clock.monotonic()
  }

  look(): void {
    const offset = this.#clock.now() - this.#clock.monotonic()
    const ms = Math.round(offset - this.#offset)
    this.#offset = offset
    if (Math.abs(ms) < JUMP_MS) return
    const way = ms > 0 ? 'forward' : 'back'
    this.#diagnose('clock_jumped', `the clock was set ${way}, or this machine slept`, { ms })
  }
}
