/**
 * What principals with budgets use in a day.
 *
 * 1. The store adds up what all nodes report, so that a restart forgets nothing. A node reports
 *    what its turns have used once a second, and when one of them ends or tells of tokens: with one
 *    write for all principals, and one at a time.
 * 2. A turn is admitted by what the store knew less than a second ago, and by what this node has
 *    not reported yet. So a budget is exceeded by what all nodes use within two seconds, and by
 *    what agents tell only at the end of their turns.
 * 3. A crash loses what was not reported: at most a second, and tokens that no agent had told of. A
 *    report whose outcome is unknown is repeated, and may count twice.
 */
import { BUDGETS, checkBudgetOptions, type Budget } from './budgets.ts'
import type { BudgetName, BudgetOptions, Spending } from './budgets.ts'
import type { Clock, Digest } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { HoldfastError, messageOf } from './errors.ts'
import type { Usage } from './state.ts'
import type { Store } from './store.ts'

const DAY_MS = 86_400_000
/** Between two reports while turns run, and how old the figures of other nodes may be. */
const REPORT_MS = 1_000
/** Principals whose use is remembered: beyond it, those that use nothing now are forgotten. */
const PRINCIPALS_MAX = 10_000

type SpendingContext = {
  readonly store: Pick<Store, 'spend' | 'cluster'>
  readonly clock: Clock
  readonly digest: Digest
  readonly diagnose: Diagnose
  readonly counters: { budgetRefusals: number; budgetEnds: number }
  readonly endTurn: (session: string, turn: string, error: HoldfastError) => void
}

/** A turn that runs, while it is counted. */
type RunningTurn = { readonly session: string; readonly turn: string; since: number }
type Amounts = { readonly [Name in BudgetName]: number }

const NOTHING: Amounts = { tokensPerDay: 0, costUsdPerDay: 0, runningMsPerDay: 0 }

/** What one principal uses today. */
export class DaySpending {
  readonly principal: string
  readonly #day: Day
  readonly #turns = new Map<string, RunningTurn>()
  /** As the store knew it at the last report; null: not read today. */
  #stored: Amounts | null = null
  #readAt = Number.NEGATIVE_INFINITY
  /** What is being reported, and what came since. */
  #reporting = NOTHING
  #unstored = NOTHING
  day: number
  limits: Budget = {}
  wasReached = false

  constructor(principal: string, day: Day) {
    this.principal = principal
    this.#day = day
    this.day = day.now()
  }

  get isIdle(): boolean {
    return this.#turns.size === 0 && this.#unstored === NOTHING && this.#reporting === NOTHING
  }

  get turns(): Iterable<RunningTurn> {
    return this.#turns.values()
  }

  /** Whether the figures are young enough to admit a turn by. */
  isFresh(isAlone: boolean): boolean {
    this.#turnDay()
    if (this.#stored === null) return false
    return isAlone || this.#day.clock.monotonic() - this.#readAt < REPORT_MS
  }

  start(session: string, turn: string): void {
    this.#turnDay()
    const since = this.#day.clock.monotonic()
    this.#turns.set(`${session} ${turn}`, { session, turn, since })
  }

  end(session: string, turn: string): void {
    this.#addTime()
    this.#turns.delete(`${session} ${turn}`)
  }

  use({ inputTokens, outputTokens, costUsd }: Usage): void {
    this.#turnDay()
    this.#add({ tokensPerDay: inputTokens + outputTokens, costUsdPerDay: costUsd })
  }

  get used(): Amounts {
    this.#addTime()
    return sumOf(sumOf(this.#stored ?? NOTHING, this.#reporting), this.#unstored)
  }

  /** The first budget that is used up; null: none is. */
  get exceeded(): { readonly budget: BudgetName; readonly limit: number; used: number } | null {
    const { used, limits } = this
    for (const budget of Object.keys(BUDGETS) as BudgetName[]) {
      const limit = limits[budget]
      if (limit !== undefined && used[budget] >= limit) return { budget, limit, used: used[budget] }
    }
    return null
  }

  /** What is to be reported now. */
  take(): { readonly day: number; readonly amounts: Amounts } {
    this.#addTime()
    this.#reporting = this.#unstored
    this.#unstored = NOTHING
    return { day: this.day, amounts: this.#reporting }
  }

  /** `total` is what the store knows of the day now; null: it could not be reported. */
  settle({ day, amounts }: ReturnType<DaySpending['take']>, total: Amounts | null): void {
    this.#reporting = NOTHING
    if (total === null && amounts !== NOTHING) {
      if (day === this.day) this.#add(amounts)
      else this.#day.left(this.principal, day, amounts)
    }
    if (total === null || day !== this.day) return
    this.#stored = total
    this.#readAt = this.#day.clock.monotonic()
  }

  #add(more: Partial<Amounts>): void {
    this.#unstored = sumOf(this.#unstored, { ...NOTHING, ...more })
  }

  #addTime(): void {
    this.#turnDay()
    const now = this.#day.clock.monotonic()
    for (const turn of this.#turns.values()) {
      if (now > turn.since) this.#add({ runningMsPerDay: now - turn.since })
      turn.since = now
    }
  }

  /** What was not reported of the day before still is, as that day's. */
  #turnDay(): void {
    const day = this.#day.now()
    if (day === this.day) return
    if (this.#unstored !== NOTHING) this.#day.left(this.principal, this.day, this.#unstored)
    this.day = day
    this.#stored = null
    this.#reporting = NOTHING
    this.#unstored = NOTHING
    this.wasReached = false
  }
}

/** The day that it is, and where what is left of the one before goes. */
type Day = {
  readonly clock: Clock
  now(): number
  left(principal: string, day: number, amounts: Amounts): void
}

function sumOf(one: Amounts, other: Amounts): Amounts {
  return {
    tokensPerDay: one.tokensPerDay + other.tokensPerDay,
    costUsdPerDay: one.costUsdPerDay + other.costUsdPerDay,
    runningMsPerDay: one.runningMsPerDay + other.runningMsPerDay,
  }
}

/** Of all principals, on this node. */
export class DaySpendings {
  readonly #context: SpendingContext
  readonly #day: Day
  #options: BudgetOptions = {}
  readonly #principals = new Map<string, DaySpending>()
  readonly #due = new Set<DaySpending>()
  /** Of days before. */
  #left: Spending[] = []
  #writing: Promise<void> = Promise.resolve()
  #next: Promise<void> | null = null
  #cancelTimer: (() => void) | null = null
  #isStopped = false

  constructor(context: SpendingContext, options: BudgetOptions) {
    const { clock, digest } = context
    this.#context = context
    this.#day = {
      clock,
      now: () => Math.floor(clock.now() / DAY_MS),
      left: (principal, day, amounts) =>
        void this.#left.push({ principal: digest(`budget ${principal}`), day, ...amounts }),
    }
    this.configure(options)
  }

  configure(options: BudgetOptions): void {
    checkBudgetOptions(options)
    this.#options = options
    for (const spending of this.#principals.values()) {
      spending.limits = this.#budgetOf(spending.principal) ?? {}
      spending.wasReached = false
    }
  }

  #budgetOf(principal: string): Budget | null {
    const { default: byDefault, principals = {} } = this.#options
    const own = Object.hasOwn(principals, principal) ? principals[principal] : undefined
    return own === undefined ? (byDefault ?? null) : { ...byDefault, ...own }
  }

  /** Null: the principal has no budget, or the store keeps none. */
  of(principal: string): DaySpending | null {
    const known = this.#principals.get(principal)
    const limits = known === undefined ? this.#budgetOf(principal) : known.limits
    if (limits === null || Object.keys(limits).length === 0) return null
    if (this.#context.store.spend === undefined) return null
    if (known !== undefined) return known
    const spending = new DaySpending(principal, this.#day)
    spending.limits = limits
    this.#forgetIdle()
    this.#principals.set(principal, spending)
    return spending
  }

  /** Resolves when it is known what the principal has used; null: it is. */
  measuring(spending: DaySpending): Promise<void> | null {
    const isAlone = this.#context.store.cluster === undefined
    return spending.isFresh(isAlone) ? null : this.#report(spending)
  }

  /** Throws if a budget is used up. `isHidden`: the caller is not told how much that is. */
  assertLeft(spending: DaySpending, isHidden: boolean): void {
    const { exceeded } = spending
    if (exceeded === null) return
    this.#context.counters.budgetRefusals += 1
    throw this.#reached(spending, exceeded, isHidden)
  }

  start(spending: DaySpending, session: string, turn: string): void {
    spending.start(session, turn)
    this.#tickLater()
  }

  end(spending: DaySpending, session: string, turn: string): void {
    spending.end(session, turn)
    this.#reportSoon(spending)
  }

  use(spending: DaySpending, usage: Usage): void {
    spending.use(usage)
    this.#reportSoon(spending)
    this.#endExceeded(spending)
  }

  /** What a principal has used today, of what, and when the next day begins. */
  async view(principal: string) {
    const spending = this.of(principal)
    if (spending === null) return []
    await this.measuring(spending)
    const { limits, used, day } = spending
    return (Object.keys(BUDGETS) as BudgetName[]).flatMap((budget) => {
      const limit = limits[budget]
      const resetsAt = (day + 1) * DAY_MS
      return limit === undefined ? [] : [{ budget, limit, used: used[budget], resetsAt }]
    })
  }

  /** Reports what is left. The store must still be open. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#cancelTimer?.()
    for (const spending of this.#principals.values()) if (!spending.isIdle) this.#due.add(spending)
    // One that fails is reported there.
    if (this.#due.size > 0 || this.#left.length > 0) await this.#write().catch(() => undefined)
    await this.#writing
  }

  #reached(
    spending: DaySpending,
    { budget, limit, used }: NonNullable<DaySpending['exceeded']>,
    isHidden: boolean,
  ): HoldfastError {
    const { clock, diagnose } = this.#context
    const { principal, day } = spending
    if (!spending.wasReached) {
      spending.wasReached = true
      const facts = { reason: budget, principal, limit, used, resetsAt: (day + 1) * DAY_MS }
      diagnose('budget_reached', 'a principal has used up a budget of this day', facts)
    }
    const retryAfterMs = Math.max(1, Math.ceil((day + 1) * DAY_MS - clock.now()))
    const details = isHidden ? { budget, retryAfterMs } : { budget, limit, used, retryAfterMs }
    const amounts = isHidden ? '' : `: ${used} of ${limit}`
    return new HoldfastError(
      'budget_exceeded',
      `the budget ${budget} is used up${amounts}`,
      details,
    )
  }

  #endExceeded(spending: DaySpending): void {
    if (this.#options.onExceeded !== 'end') return
    const { exceeded } = spending
    if (exceeded === null) return
    const error = this.#reached(spending, exceeded, true)
    for (const { session, turn } of spending.turns) {
      this.#context.endTurn(session, turn, error)
    }
  }

  /** While turns run, or something is not reported. */
  #tickLater(): void {
    if (this.#isStopped) return
    this.#cancelTimer ??= this.#context.clock.after(REPORT_MS, () => {
      this.#cancelTimer = null
      const busy = [...this.#principals.values()].filter(({ isIdle }) => !isIdle)
      for (const spending of busy) this.#reportSoon(spending)
      if (busy.length > 0 || this.#left.length === 0) return
      // One that fails is reported there, and repeated.
      this.#writeNext().catch(() => undefined)
      this.#tickLater()
    })
  }

  /** A report that fails is repeated with the next. */
  #reportSoon(spending: DaySpending): void {
    this.#report(spending).then(
      () => this.#endExceeded(spending),
      // It was reported there.
      () => undefined,
    )
    this.#tickLater()
  }

  #report(spending: DaySpending): Promise<void> {
    this.#due.add(spending)
    return this.#writeNext()
  }

  #writeNext(): Promise<void> {
    this.#next ??= this.#writing.then(() => this.#write())
    return this.#next
  }

  #write(): Promise<void> {
    this.#next = null
    const due = [...this.#due]
    this.#due.clear()
    const writing = this.#store(due)
    this.#writing = writing.catch((error: unknown) => {
      const facts = { error: messageOf(error) }
      this.#context.diagnose('budgets_not_stored', 'what principals use is reported later', facts)
    })
    return writing
  }

  async #store(due: readonly DaySpending[]): Promise<void> {
    const { store, digest } = this.#context
    const taken = due.map((spending) => ({ spending, part: spending.take() }))
    const rows = taken.map(({ spending: { principal }, part: { day, amounts } }) => {
      return { principal: digest(`budget ${principal}`), day, ...amounts }
    })
    const left = this.#left
    this.#left = []
    try {
      const totals = (await store.spend?.([...left, ...rows])) ?? []
      for (const [index, { spending, part }] of taken.entries()) {
        spending.settle(part, totals[left.length + index] ?? NOTHING)
      }
    } catch (error) {
      this.#left.push(...left)
      for (const { spending, part } of taken) spending.settle(part, null)
      throw error
    }
  }

  #forgetIdle(): void {
    if (this.#principals.size < PRINCIPALS_MAX) return
    for (const [principal, spending] of this.#principals) {
      if (spending.isIdle && !this.#due.has(spending))
        return void this.#principals.delete(principal)
    }
  }
}
