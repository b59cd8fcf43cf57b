/**
 * Which turn a request key belongs to (I11). The keys of turns that run or wait are in the folded
 * session. Those of turns that are over are in the store, with the append that admitted them; the
 * newest are kept here too, so that most requests need no look into the store.
 *
 * While a request is under way its keys are not forgotten here, and requests enter the lane in the
 * order in which they came, however long a look takes. So of all requests with one key only one is
 * ever admitted.
 */
import type { Clock } from './clock.ts'
import type { Limits } from './limits.ts'
import type { KeyedTurn, Store } from './store.ts'
import { idempotencyMismatch, type RequestKey } from './turns.ts'

/** Keys of one session that are kept in memory. */
const KEPT_MAX = 256
/** Keys that begin alike and are looked at. */
const ALIKE_MAX = 64

export type KeyHost = {
  readonly store: Store
  readonly clock: Clock
  readonly limits: Limits
}

export class RequestKeys {
  readonly #session: string
  readonly #host: KeyHost
  /** The newest last. */
  #kept = new Map<string, KeyedTurn>()
  /** All that the store has is kept here. */
  #isWhole: boolean
  #evictions = 0
  /** How many requests with this key are under way. */
  readonly #underWay = new Map<string, number>()
  /** The request that came last and has not entered yet. */
  #entering: Promise<void> | null = null
  #loading: Promise<void> | null = null

  /** `isNew`: no turn was ever admitted. */
  constructor(session: string, host: KeyHost, isNew: boolean) {
    this.#session = session
    this.#host = host
    this.#isWhole = isNew
  }

  /** A request has come and stands in no lane yet. */
  get isEntering(): boolean {
    return this.#entering !== null
  }

  /** Calls `enter` when it is known what turns these keys have, in the order of arrival. */
  pass<Result>(keys: readonly RequestKey[], enter: () => Promise<Result>): Promise<Result> {
    if (keys.length === 0 && this.#entering === null) return enter()
    for (const { key } of keys) this.#underWay.set(key, (this.#underWay.get(key) ?? 0) + 1)
    const isSure = this.#entering === null && this.#isSure(keys)
    const entered = isSure ? enter() : this.#enterLater(keys, enter)
    // The caller gets the refusal; here only the end matters.
    void entered.catch(() => undefined).then(() => this.#forgetRequest(keys))
    return entered
  }

  async #enterLater<Result>(
    keys: readonly RequestKey[],
    enter: () => Promise<Result>,
  ): Promise<Result> {
    const before = this.#entering
    let resolveEntering = (): void => undefined
    const entering = new Promise<void>((resolve) => (resolveEntering = resolve))
    const leave = (): void => {
      if (this.#entering === entering) this.#entering = null
      resolveEntering()
    }
    this.#entering = entering
    const looking = this.#isSure(keys) ? null : this.#look(keys)
    // Whoever is before may take longer: a failure is thrown when it is its turn.
    looking?.catch(() => undefined)
    try {
      await before
      await looking
    } catch (error) {
      leave()
      throw error
    }
    // It stands in the lane when it has returned, and then the next may enter.
    const entered = enter()
    leave()
    return entered
  }

  #forgetRequest(keys: readonly RequestKey[]): void {
    for (const { key } of keys) {
      const left = (this.#underWay.get(key) ?? 0) - 1
      if (left > 0) this.#underWay.set(key, left)
      else this.#underWay.delete(key)
    }
    this.#trim()
  }

  /** The turn that has one of these keys, if that is not too old; throws if the body differs. */
  turnOf(keys: readonly RequestKey[]): string | null {
    for (const { key, digest } of keys) {
      const known = this.#kept.get(key)
      if (known === undefined || known.at < this.#since()) continue
      if (known.digest !== digest) throw idempotencyMismatch(key)
      return known.turn
    }
    return null
  }

  /** The keys that begin so, the newest first. */
  async alike(prefix: string): Promise<readonly KeyedTurn[]> {
    const since = this.#since()
    if (!this.#isWhole) await this.#look([])
    if (!this.#isWhole) {
      return this.#host.store.findKeys(this.#session, { prefix, since, limit: ALIKE_MAX })
    }
    const kept = [...this.#kept.values()]
    const found = kept.filter(({ key, at }) => key.startsWith(prefix) && at >= since)
    return found.toReversed().slice(0, ALIKE_MAX)
  }

  /** These are durable. */
  add(keys: readonly KeyedTurn[]): void {
    for (const keyed of keys) this.#keep(keyed)
    this.#trim()
  }

  #isSure(keys: readonly RequestKey[]): boolean {
    return this.#isWhole || keys.every(({ key }) => this.#kept.has(key))
  }

  /** First all of them, if they are not too many; else each that is asked for. */
  async #look(keys: readonly RequestKey[]): Promise<void> {
    this.#loading ??= this.#loadNewest()
    try {
      await this.#loading
    } catch (error) {
      this.#loading = null
      throw error
    }
    const { store } = this.#host
    for (const { key } of keys) {
      if (this.#isSure([{ key, digest: '' }])) continue
      const query = { key, since: this.#since(), limit: 1 }
      for (const keyed of await store.findKeys(this.#session, query)) this.#keep(keyed)
    }
  }

  async #loadNewest(): Promise<void> {
    const evictions = this.#evictions
    const query = { since: this.#since(), limit: KEPT_MAX + 1 }
    const found = await this.#host.store.findKeys(this.#session, query)
    const older = found.toReversed().map((keyed) => [keyed.key, keyed] as const)
    // What was admitted meanwhile is newer.
    this.#kept = new Map([...older, ...this.#kept])
    this.#isWhole = found.length <= KEPT_MAX && evictions === this.#evictions
    this.#trim()
  }

  #keep(keyed: KeyedTurn): void {
    this.#kept.delete(keyed.key)
    this.#kept.set(keyed.key, keyed)
  }

  /** Lets the oldest go, but none that a request under way may still be about. */
  #trim(): void {
    if (this.#kept.size <= KEPT_MAX) return
    for (const key of this.#kept.keys()) {
      if (this.#kept.size <= KEPT_MAX) return
      if (this.#underWay.has(key)) continue
      this.#kept.delete(key)
      this.#isWhole = false
      this.#evictions += 1
    }
  }

  #since(): number {
    return this.#host.clock.now() - this.#host.limits.idempotencyMs
  }
}

/** The same of an event's text, as a migration finds it; one that is no JSON has none. */
export function keysInText(body: string): readonly KeyedTurn[] {
  try {
    return admittedKeys(JSON.parse(body))
  } catch {
    return []
  }
}

/** The keys of an event that admits a turn, or joins one; of any other event, or no event, none. */
export function admittedKeys(event: unknown): readonly KeyedTurn[] {
  if (typeof event !== 'object' || event === null || !('keys' in event)) return []
  const { type, turn, seq, at, keys } = event as Record<string, unknown>
  // A turn that waited starts with the keys that it was admitted with.
  const isAdmission =
    type === 'turn.queued' ||
    type === 'turn.joined' ||
    (type === 'turn.started' && turn === `t${String(seq)}`)
  if (!isAdmission || typeof turn !== 'string' || typeof at !== 'number') return []
  if (!Array.isArray(keys)) return []
  return (keys as readonly RequestKey[]).map(({ key, digest }) => ({ key, digest, turn, at }))
}
