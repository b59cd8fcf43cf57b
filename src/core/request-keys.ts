/** Which turn a request has if it was made before, by its idempotency key. */
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import type { RequestKey, Session } from './state.ts'
import type { KeyedTurn } from './store.ts'

/** Keys of one session that are kept in memory. */
const KEPT_MAX = 256
/** Keys with a common prefix that are returned. */
const ALIKE_MAX = 64

export type KeyContext = Pick<CoreContext, 'store' | 'clock' | 'limits'>

/**
 * Which turn an idempotency key belongs to (I11). The keys of turns that run or wait are in the
 * folded session. Those of turns that are over are in the store, with the append that admitted
 * them; the newest are cached here, so that most requests need no look-up in the store.
 *
 * While a request is under way its key is not evicted, and requests enter the queue in the order of
 * arrival, however long a look-up takes. So of all requests with one key only one is admitted.
 */
export class RequestKeys {
  readonly #session: string
  readonly #context: KeyContext
  /** The newest last. */
  #kept = new Map<string, KeyedTurn>()
  /** All that the store has is kept here. */
  #isWhole: boolean
  #evictions = 0
  /** How many requests with this key are under way. */
  readonly #underWay = new Map<string, number>()
  /** The request that came last and has not entered the queue yet. */
  #entering: Promise<void> | null = null
  #loading: Promise<void> | null = null

  /** `isNew`: no turn was ever admitted. */
  constructor(session: string, context: KeyContext, isNew: boolean) {
    this.#session = session
    this.#context = context
    this.#isWhole = isNew
  }

  /** A request has come and is not in the queue yet. */
  get isEntering(): boolean {
    return this.#entering !== null
  }

  /**
   * Calls `enter` when it is known which turn the key has, and `ready`, which is called then, has
   * resolved. Requests enter in the order of arrival.
   */
  pass<Result>(
    key: RequestKey | null,
    enter: () => Promise<Result>,
    ready: (() => Promise<void>) | null = null,
  ): Promise<Result> {
    const isFree = this.#entering === null && ready === null
    if (key === null) return isFree ? enter() : this.#enterLater(null, enter, ready)
    const { key: name } = key
    this.#underWay.set(name, (this.#underWay.get(name) ?? 0) + 1)
    const isSure = isFree && this.#isSure(name)
    const entered = isSure ? enter() : this.#enterLater(name, enter, ready)
    // The caller gets the refusal; here only the end matters.
    void entered.catch(() => undefined).then(() => this.#forgetRequest(name))
    return entered
  }

  async #enterLater<Result>(
    key: string | null,
    enter: () => Promise<Result>,
    ready: (() => Promise<void>) | null,
  ): Promise<Result> {
    const before = this.#entering
    let resolveEntering = (): void => undefined
    const entering = new Promise<void>((resolve) => (resolveEntering = resolve))
    const leave = (): void => {
      if (this.#entering === entering) this.#entering = null
      resolveEntering()
    }
    this.#entering = entering
    const looking = key === null || this.#isSure(key) ? null : this.#look(key)
    // The request before may take longer: a failure is thrown when it is this one's turn.
    looking?.catch(() => undefined)
    try {
      await before
      await looking
      await ready?.()
    } catch (error) {
      leave()
      throw error
    }
    // It is in the queue when this has returned, and then the next may enter.
    const entered = enter()
    leave()
    return entered
  }

  #forgetRequest(key: string): void {
    const left = (this.#underWay.get(key) ?? 0) - 1
    if (left > 0) this.#underWay.set(key, left)
    else this.#underWay.delete(key)
    this.#trim()
  }

  /** The turn with this key, if it runs, waits or is not too old; throws if the body differs. */
  turnOf(request: RequestKey | null, session: Session): string | null {
    if (request === null) return null
    const { key, digest } = request
    const known = turnInSession(session, key) ?? this.#keptTurn(key)
    if (known === null) return null
    if (known.digest !== digest) throw idempotencyMismatch(key)
    return known.turn
  }

  #keptTurn(key: string): KeyedTurn | null {
    const known = this.#kept.get(key)
    return known === undefined || known.at < this.#since() ? null : known
  }

  /** The keys with this prefix, the newest first. If not all are kept, the store is asked. */
  async alike(prefix: string): Promise<readonly KeyedTurn[]> {
    const since = this.#since()
    const { store, limits } = this.#context
    const query = { since, limit: limits.idempotencyKeysMax }
    const known = this.#isWhole
      ? [...this.#kept.values()].toReversed()
      : await store.findKeys(this.#session, query)
    const found = known.filter(({ key, at }) => key.startsWith(prefix) && at >= since)
    return found.slice(0, ALIKE_MAX)
  }

  /** These are durable. */
  add(keys: readonly KeyedTurn[]): void {
    for (const keyed of keys) this.#keep(keyed)
    this.#trim()
  }

  #isSure(key: string): boolean {
    return this.#isWhole || this.#kept.has(key)
  }

  /** First the newest keys; then this one, if it is not among them and there are older ones. */
  async #look(key: string): Promise<void> {
    this.#loading ??= this.#loadNewest()
    try {
      await this.#loading
    } catch (error) {
      this.#loading = null
      throw error
    }
    if (this.#isSure(key)) return
    const query = { key, since: this.#since(), limit: 1 }
    const found = await this.#context.store.findKeys(this.#session, query)
    for (const keyed of found) this.#keep(keyed)
  }

  async #loadNewest(): Promise<void> {
    const evictions = this.#evictions
    const query = { since: this.#since(), limit: KEPT_MAX + 1 }
    const found = await this.#context.store.findKeys(this.#session, query)
    const older = found.toReversed().map((keyed) => [keyed.key, keyed] as const)
    // Those admitted meanwhile are newer.
    this.#kept = new Map([...older, ...this.#kept])
    this.#isWhole = found.length <= KEPT_MAX && evictions === this.#evictions
    this.#trim()
  }

  #keep(keyed: KeyedTurn): void {
    this.#kept.delete(keyed.key)
    this.#kept.set(keyed.key, keyed)
  }

  /** Evicts the oldest, but none that a request under way may still ask for. */
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
    return this.#context.clock.now() - this.#context.limits.idempotencyMs
  }
}

function turnInSession(
  { running, queued }: Session,
  key: string,
): { readonly turn: string; readonly digest: string } | null {
  for (const turn of running === null ? queued : [running, ...queued]) {
    const known = turn.keys.find((request) => request.key === key)
    if (known !== undefined) return { turn: turn.id, digest: known.digest }
  }
  return null
}

export function idempotencyMismatch(key: string): HoldfastError {
  return new HoldfastError(
    'idempotency_mismatch',
    `Idempotency-Key ${JSON.stringify(key)} was used before with another body`,
  )
}

/** `admittedKeys` of an event's text, for migrations; a text that is not JSON has none. */
export function keysInText(body: string): readonly KeyedTurn[] {
  try {
    return admittedKeys(JSON.parse(body))
  } catch {
    return []
  }
}

/** The keys of an event that admits a request to a turn; of any other event, or no event, none. */
export function admittedKeys(event: unknown): readonly KeyedTurn[] {
  if (typeof event !== 'object' || event === null || !('keys' in event)) return []
  const { type, turn, seq, at, keys } = event as Record<string, unknown>
  // A turn that waited starts with the keys that it was admitted with.
  const isAdmission =
    type === 'turn.queued' ||
    type === 'turn.joined' ||
    type === 'turn.steering' ||
    (type === 'turn.started' && turn === `t${String(seq)}`)
  if (!isAdmission || typeof turn !== 'string' || typeof at !== 'number') return []
  if (!Array.isArray(keys)) return []
  return (keys as readonly RequestKey[]).map(({ key, digest }) => ({ key, digest, turn, at }))
}
