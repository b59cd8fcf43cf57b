/**
 * What principals use of their quotas. The configuration limits principals and groups by their
 * ids; what a caller was granted may have limits of its own, which replace these for its principal.
 *
 * 1. A refusal has no effect (I11): every quota is checked before any is used.
 * 2. Turns, sockets and browser sessions count for the principal that acts. Each node counts its
 *    own, and adds what the others have told it (`shared-counts.ts`). Open sessions and stored
 *    bytes count for the principal or group that the session belongs to; the store counts them
 *    (`stored-usage.ts`).
 * 3. A caller without limits costs no allocation and no promise.
 */
import { DEFAULT_PRINCIPAL, type Access } from './access.ts'
import type { Clock, Digest } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { HoldfastError } from './errors.ts'
import type { BudgetOptions } from './budgets.ts'
import { checkQuotaOptions, type QuotaName, type QuotaOptions, type Quotas } from './quotas.ts'
import { DaySpendings, type DaySpending } from './spending.ts'
import { UsedRate, type CountSource, type SharedCounts } from './shared-counts.ts'
import type { Principal, Session, Usage as Used } from './state.ts'
import type { Store } from './store.ts'
import { StoredUsage } from './stored-usage.ts'

/** Principals whose use is remembered: beyond it, those that use nothing now are forgotten. */
const PRINCIPALS_MAX = 10_000
/** How many of the longest known are looked at when one more is remembered. */
const FORGET_LOOKS = 8
const MINUTE_MS = 60_000
/** When to try again where nothing says when there will be room. */
const RETRY_MS = 1_000

/** What a node has of which this is a part. */
type UsageContext = {
  readonly store: Pick<Store, 'usage' | 'spend' | 'cluster'>
  readonly clock: Clock
  readonly digest: Digest
  readonly counts: SharedCounts
  readonly usage: Usage
  readonly counters: { quotaRefusals: number; budgetRefusals: number; budgetEnds: number }
  readonly endTurn: (session: string, turn: string, error: HoldfastError) => void
  readonly diagnose: Diagnose
  readonly heldSession: (id: string) => Session | null
}

/** What each node counts for itself. */
const NODE_QUOTAS = ['runningTurns', 'queuedTurns', 'browserSessions', 'sockets'] as const
type NodeQuota = (typeof NODE_QUOTAS)[number]

/** What a principal uses on this node. */
export class PrincipalUsage {
  runningTurns = 0
  queuedTurns = 0
  browserSessions = 0
  sockets = 0
  readonly openSessions: StoredUsage
  readonly storedBytes: StoredUsage
  readonly #principal: string
  readonly #context: UsageContext
  /** Turns that were asked for. */
  readonly #turns = new UsedRate()
  /** The limit that they were last counted for. */
  #turnsPerMinute = 0
  /** The names of its counts among the nodes. */
  readonly #names: Partial<Record<QuotaName, string>> = {}
  /** What was made of it for callers, by what they were granted. */
  allowances = new WeakMap<Access, Allowance>()

  constructor(principal: string, context: UsageContext) {
    this.#principal = principal
    this.#context = context
    this.openSessions = new StoredUsage(principal, 'openSessions', context)
    this.storedBytes = new StoredUsage(principal, 'storedBytes', context)
  }

  /** Nothing would be forgotten with it but turns of the last minute, and what the store knows. */
  get isIdle(): boolean {
    return NODE_QUOTAS.every((quota) => this[quota] === 0) && this.openSessions.isIdle
  }

  /** On all nodes together. */
  total(quota: NodeQuota): number {
    return this[quota] + this.#others(quota)
  }

  /** Turns of all nodes together that were asked for and are not given back yet. */
  turnsUsed(perMinute: number, now: number): number {
    const others = this.#others('turnsPerMinute')
    return this.#turns.usedAt(now, perMinute / MINUTE_MS, others) + others
  }

  takeTurn(perMinute: number, now: number): void {
    const others = this.#others('turnsPerMinute')
    this.#turns.set(this.#turns.usedAt(now, perMinute / MINUTE_MS, others) + 1, now)
    this.#turnsPerMinute = perMinute
  }

  /** For other nodes. */
  *counts(now: number): Iterable<readonly [string, number]> {
    for (const quota of NODE_QUOTAS) if (this[quota] > 0) yield [this.#nameOf(quota), this[quota]]
    const perMs = this.#turnsPerMinute / MINUTE_MS
    if (perMs === 0) return
    const used = this.#turns.usedAt(now, perMs, this.#others('turnsPerMinute'))
    this.#turns.set(used, now)
    yield [this.#nameOf('turnsPerMinute'), used]
  }

  #others(quota: QuotaName): number {
    const { counts } = this.#context
    return counts.isShared ? counts.others(this.#nameOf(quota)) : 0
  }

  #nameOf(quota: QuotaName): string {
    return (this.#names[quota] ??= this.#context.digest(`${quota} ${this.#principal}`))
  }
}

/** A turn while it waits or runs. */
export class CountedTurn {
  readonly #usage: PrincipalUsage
  #counted: 'queuedTurns' | 'runningTurns' | null
  readonly #budget: TurnBudget | null
  /** Ends the counting of its time. */
  #endTime: (() => void) | null = null

  constructor(
    usage: PrincipalUsage,
    counted: 'queuedTurns' | 'runningTurns',
    budget: TurnBudget | null,
  ) {
    this.#usage = usage
    this.#counted = counted
    this.#budget = budget
    usage[counted] += 1
  }

  start(session: string, turn: string): void {
    if (this.#budget !== null) {
      const { spendings, spending } = this.#budget
      spendings.start(spending, session, turn)
      this.#endTime = () => spendings.end(spending, session, turn)
    }
    if (this.#counted !== 'queuedTurns') return
    this.#uncount()
    this.#counted = 'runningTurns'
    this.#usage.runningTurns += 1
  }

  /** Its agent has told what it used. */
  use(used: Used): void {
    this.#budget?.spendings.use(this.#budget.spending, used)
  }

  end(): void {
    this.#endTime?.()
    this.#endTime = null
    this.#uncount()
  }

  #uncount(): void {
    if (this.#counted !== null) this.#usage[this.#counted] -= 1
    this.#counted = null
  }
}

/** The budget that a turn counts for. */
type TurnBudget = { readonly spendings: DaySpendings; readonly spending: DaySpending }

/** The turns of a session that run and are counted. */
export class CountedTurns {
  readonly #turns: { readonly turn: string; readonly counted: CountedTurn }[] = []

  start(session: string, turn: string, counted: CountedTurn): void {
    counted.start(session, turn)
    this.#turns.push({ turn, counted })
  }

  use(turn: string, used: Used): void {
    this.#turns.find((one) => one.turn === turn)?.counted.use(used)
  }

  /** The turn is over; null: all are, as far as this node knows. */
  end(turn: string | null): void {
    for (let index = this.#turns.length - 1; index >= 0; index -= 1) {
      const one = this.#turns[index]
      if (turn !== null && one?.turn !== turn) continue
      this.#turns.splice(index, 1)
      one?.counted.end()
    }
  }
}

/** What principals with limits use, on this node. */
export class Usage implements CountSource {
  readonly #context: UsageContext
  #default: Quotas | null = null
  #configured: ReadonlyMap<string, Quotas> = new Map()
  /** In the order in which they were first seen. */
  readonly #principals = new Map<string, PrincipalUsage>()
  /** Some principal has a limit of stored bytes: appends are counted. */
  #countsBytes = false
  readonly spendings: DaySpendings

  constructor(context: UsageContext, options: QuotaOptions = {}, budgets: BudgetOptions = {}) {
    this.#context = context
    this.spendings = new DaySpendings(context, budgets)
    this.configure(options, budgets)
  }

  /** From now on these limits count. What is used already stays. */
  configure(options: QuotaOptions, budgets: BudgetOptions): void {
    checkQuotaOptions(options)
    this.spendings.configure(budgets)
    const { default: byDefault = null, principals = {} } = options
    this.#default = byDefault
    this.#configured = new Map(
      Object.entries(principals).map(([id, quotas]) => [id, { ...byDefault, ...quotas }]),
    )
    for (const usage of this.#principals.values()) usage.allowances = new WeakMap()
    if (byDefault !== null || this.#configured.size > 0) this.#context.counts.add(this)
  }

  *counts(): Iterable<readonly [string, number]> {
    const now = this.#context.clock.monotonic()
    for (const usage of this.#principals.values()) yield* usage.counts(now)
  }

  /** How many principals are remembered. */
  get size(): number {
    return this.#principals.size
  }

  /** The limits of the principal that acts; null: it has none. */
  ofCaller(access: Access | null): Allowance | null {
    if (access === null) return null
    // A guest acts for the session that it was let into.
    const guest = access.session === undefined ? undefined : this.#ownerOf(access.session)
    return this.#of(access, guest ?? access.principal)
  }

  /** The limits of the principal or group that a session belongs to, or will. */
  ofOwner(access: Access | null, principal: string): Allowance | null {
    return access === null ? null : this.#of(access, principal)
  }

  /** Counts a turn that was in the log when its session was loaded; null: it has no limits. */
  countRecorded(by: Principal | null, { principal: owner }: Session): CountedTurn | null {
    const principal = by === null ? null : principalOfTurn(by, owner)
    if (principal === null) return null
    const budget = this.budgetOf(principal)
    const isLimited = this.#default !== null || this.#configured.has(principal) || budget !== null
    const usage = isLimited ? this.#usageOf(principal) : this.#principals.get(principal)
    return usage === undefined ? null : new CountedTurn(usage, 'queuedTurns', budget)
  }

  budgetOf(principal: string): TurnBudget | null {
    const { spendings } = this
    const spending = spendings.of(principal)
    return spending === null ? null : { spendings, spending }
  }

  #ownerOf(session: string): string | undefined {
    return this.#context.heldSession(session)?.principal
  }

  #of(access: Access, principal: string): Allowance | null {
    return this.#principals.get(principal)?.allowances.get(access) ?? this.#allow(access, principal)
  }

  #allow(access: Access, principal: string): Allowance | null {
    const configured = this.#configured.get(principal) ?? this.#default
    const granted = principal === access.principal ? access.quotas : undefined
    const quotas = granted === undefined ? configured : { ...configured, ...granted }
    const hasBudget = this.spendings.of(principal) !== null
    if (quotas === null && !hasBudget) return null
    this.#countsBytes ||= quotas?.storedBytes !== undefined
    const { scopes, groups } = access
    const isAnothers = ![access.principal, ...groups].includes(principal)
    const isHidden = isAnothers && !scopes.includes('admin')
    const usage = this.#usageOf(principal)
    const whose = { principal, quotas: quotas ?? {}, isHidden }
    const allowance = new Allowance(whose, usage, this.#context)
    usage.allowances.set(access, allowance)
    return allowance
  }

  #usageOf(principal: string): PrincipalUsage {
    const known = this.#principals.get(principal)
    if (known !== undefined) return known
    const usage = new PrincipalUsage(principal, this.#context)
    this.#principals.set(principal, usage)
    this.#context.counts.add(this)
    this.#forgetIdle()
    return usage
  }

  #forgetIdle(): void {
    let looks = FORGET_LOOKS
    for (const [principal, usage] of this.#principals) {
      if (this.#principals.size <= PRINCIPALS_MAX || looks === 0) return
      looks -= 1
      this.#principals.delete(principal)
      if (!usage.isIdle) this.#principals.set(principal, usage)
    }
  }

  /** Throws if its sessions are counted, which internal ones are not. */
  assertMayHide(access: Access | null): void {
    if (access === null || this.ofOwner(access, access.principal)?.has('openSessions') !== true)
      return
    const message = 'with the quota openSessions sessions cannot be internal: those are not counted'
    throw new HoldfastError('forbidden', message)
  }

  /** Throws if there is no room for one more session; takes none. */
  async assertSession(access: Access | null, principal: string): Promise<void> {
    const settle = await this.ofOwner(access, principal)?.takeSession(async () => false)
    settle?.(false)
  }

  /** Measures what a turn in this session needs to know; null: nothing has to be waited for. */
  measuring(access: Access | null, { principal }: Session): Promise<void> | null {
    const owner = this.ofOwner(access, principal)?.measuring() ?? null
    const caller = this.ofCaller(access)?.measuringBudget() ?? null
    return owner === null || caller === null ? (owner ?? caller) : owner.then(() => caller)
  }

  /** An event of this session is durable. */
  appended({ principal }: Session, json: string): void {
    // Characters: the next measurement has the bytes.
    if (this.#countsBytes) this.#principals.get(principal)?.storedBytes.add(json.length)
  }

  /** So many bytes of blobs are durable. */
  stored({ principal }: Session, bytes: number): void {
    if (this.#countsBytes) this.#principals.get(principal)?.storedBytes.add(bytes)
  }

  /** It has begun with copies of the blobs of another session. */
  copied({ principal }: Session): void {
    this.#principals.get(principal)?.storedBytes.forget()
  }

  closed({ principal, internal }: Session): void {
    if (!internal) this.#principals.get(principal)?.openSessions.add(-1)
  }

  erased({ principal }: Session): void {
    this.#principals.get(principal)?.storedBytes.forget()
  }
}

/**
 * The principal that a recorded turn counts for, as far as the log tells; null: it was a program
 * without limits. A token without a principal is known by its own id there.
 */
function principalOfTurn({ kind, issuer, id }: Principal, owner: string): string | null {
  if (kind === 'local') return null
  if (kind === 'jwt') return `${issuer} ${id}`
  return kind === 'link' || owner === DEFAULT_PRINCIPAL ? owner : id
}

type AllowanceOwner = {
  readonly principal: string
  readonly quotas: Quotas
  /** It is another's than the caller's, which is not told how much that uses. */
  readonly isHidden: boolean
}

/** What a principal may still use: its limits, and what it uses now. */
export class Allowance {
  readonly #principal: string
  readonly #isHidden: boolean
  readonly #quotas: Quotas
  readonly #usage: PrincipalUsage
  readonly #context: UsageContext

  constructor(whose: AllowanceOwner, usage: PrincipalUsage, context: UsageContext) {
    const { principal, quotas, isHidden } = whose
    this.#isHidden = isHidden
    this.#principal = principal
    this.#quotas = quotas
    this.#usage = usage
    this.#context = context
  }

  has(quota: QuotaName): boolean {
    return this.#quotas[quota] !== undefined
  }

  /** Counts a turn that waits, or runs at once; throws if it is one too many. */
  takeTurn(isQueued: boolean): CountedTurn {
    const counted = this.assertTurn(isQueued)
    const { turnsPerMinute } = this.#quotas
    if (turnsPerMinute !== undefined) {
      this.#usage.takeTurn(turnsPerMinute, this.#context.clock.monotonic())
    }
    return new CountedTurn(this.#usage, counted, this.#budget)
  }

  get #budget(): TurnBudget | null {
    return this.#context.usage.budgetOf(this.#principal)
  }

  /** Reads what is used of its budgets; null: nothing has to be waited for. */
  measuringBudget(): Promise<void> | null {
    const budget = this.#budget
    return budget === null ? null : budget.spendings.measuring(budget.spending)
  }

  /** Throws if a turn would be one too many; returns what it counts as. */
  assertTurn(isQueued = false): 'queuedTurns' | 'runningTurns' {
    const counted = isQueued ? 'queuedTurns' : 'runningTurns'
    const { turnsPerMinute } = this.#quotas
    const budget = this.#budget
    budget?.spendings.assertLeft(budget.spending, this.#isHidden)
    this.#assertBelow(counted, this.#usage.total(counted))
    if (turnsPerMinute === undefined) return counted
    const now = this.#context.clock.monotonic()
    const left = turnsPerMinute - this.#usage.turnsUsed(turnsPerMinute, now)
    const retryMs = Math.ceil(((1 - left) * MINUTE_MS) / Math.max(turnsPerMinute, 1))
    if (left < 1) throw this.#refusal('turnsPerMinute', turnsPerMinute, retryMs)
    return counted
  }

  /**
   * Counts one more until the returned function is called; throws if it is one too many, unless it
   * takes the place of another.
   */
  take(quota: 'sockets' | 'browserSessions', isSuccessor = false): () => void {
    if (!isSuccessor) this.#assertBelow(quota, this.#usage.total(quota))
    this.#usage[quota] += 1
    let isCounted = true
    return () => {
      if (isCounted) this.#usage[quota] -= 1
      isCounted = false
    }
  }

  measuring(): Promise<void> | null {
    const { storedBytes: limit } = this.#quotas
    return limit === undefined ? null : this.#usage.storedBytes.measuring(limit)
  }

  /** Throws if all bytes are used, or will be by so many, as far as is known: see `measuring`. */
  assertRoom(bytes = 1): void {
    const used = this.#usage.storedBytes.value ?? 0
    if (used + bytes > (this.#quotas.storedBytes ?? Infinity)) {
      throw this.#refusal('storedBytes', used)
    }
  }

  /**
   * Takes room for a session, unless `isThere` says that it need not be created. The returned
   * function must be called when it is known whether it was. An internal session is not counted.
   */
  async takeSession(
    isThere: () => Promise<boolean>,
    isInternal = false,
  ): Promise<(isCreated: boolean) => void> {
    const { openSessions, storedBytes } = this.#usage
    const limit = isInternal ? undefined : this.#quotas.openSessions
    await this.measuring()
    const isFull = (storedBytes.value ?? 0) >= (this.#quotas.storedBytes ?? Infinity)
    const isTaken = !isFull && (limit === undefined || (await openSessions.take(limit)))
    if (isTaken) {
      const taken = limit === undefined ? 0 : 1
      return (isCreated) => openSessions.settle(taken, isCreated && !isInternal)
    }
    if (await isThere()) return (isCreated) => openSessions.settle(0, isCreated)
    if (isFull) throw this.#refusal('storedBytes', storedBytes.value ?? 0)
    throw this.#refusal('openSessions', openSessions.value ?? 0)
  }

  #assertBelow(quota: QuotaName, used: number): void {
    if (used >= (this.#quotas[quota] ?? Infinity)) throw this.#refusal(quota, used)
  }

  #refusal(quota: QuotaName, used: number, retryAfterMs = RETRY_MS): HoldfastError {
    const { diagnose, counters } = this.#context
    const limit = this.#quotas[quota] ?? 0
    counters.quotaRefusals += 1
    const facts = { principal: this.#principal, quota, limit, used }
    diagnose('limit_reached', 'a request was refused: its principal has reached a quota', {
      reason: `quota_${quota}`,
      ...facts,
    })
    if (this.#isHidden) {
      const message = `the quota ${quota} of the session's principal is used up`
      return new HoldfastError('quota_exceeded', message, { quota, retryAfterMs })
    }
    const message = `the quota ${quota} is used up: ${used} of ${limit}`
    const details = { quota, limit, used, retryAfterMs }
    return new HoldfastError('quota_exceeded', message, details)
  }
}
