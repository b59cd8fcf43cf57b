/**
 * What callers may ask for, checked: every door and the library come through here. And which turn
 * a request has if it was made before (`RequestKeys`).
 */
import { principalOfKey, type Access, type Caller } from './access.ts'
import type { Digest } from './clock.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError, invalid } from './errors.ts'
import { STATE_LIMITS, type Limits } from './limits.ts'
import {
  type Principal,
  LINK_SCOPES,
  PRINCIPAL_KINDS,
  RECONNECT_POLICIES,
  type Input,
  type LinkScope,
  type ReconnectPolicy,
  type RequestKey,
  type Session,
  type SessionOptions,
  type Share,
} from './state.ts'
import type { KeyedTurn } from './store.ts'

/** How to find or create a session. All but `key` and `id` count only when it is created. */
export type ResolveOptions = {
  /** The caller's own name for the session: any text. */
  readonly key?: string
  /** An id of the caller's own; without one it is minted. */
  readonly id?: string
  readonly agent?: string
  readonly reconnect?: ReconnectPolicy
  /** At most one attachment drives it at a time; others may watch. */
  readonly exclusive?: boolean
  readonly graceMs?: number
  /** How long it may be idle; null: without limit. */
  readonly ttlMs?: number | null
  /** Never listed, and not found by its key. */
  readonly internal?: boolean
  readonly labels?: Readonly<Record<string, string>>
}

/** What to find or create. An id is the caller's own and decides; null: a new one is made. */
export type ResolveRequest = Omit<SessionOptions, 'id'> & {
  readonly id: string | null
  /** Whom it belongs to, or will. */
  readonly principal: string
  readonly by: Principal
  readonly access: Access | null
}

declare global {
  /** Named by the types of the client, which are also used without those of a browser or Node. */
  interface AbortSignal {
    readonly aborted: boolean
  }
}

export const BUSY_POLICIES = ['queue', 'reject', 'interrupt', 'collect'] as const

/** What a request does when a turn runs or waits. */
export type BusyPolicy = (typeof BUSY_POLICIES)[number]

export type TurnOptions = {
  readonly busy?: BusyPolicy
  /** How long to wait for the lane. */
  readonly waitMs?: number
  /** The same key and input join the same turn; the same key with another input is refused. */
  readonly idempotencyKey?: string
  /** The caller went away: a request that has not been admitted leaves the lane. */
  readonly signal?: AbortSignal
  /** What the caller's going away does to an admitted turn; nothing, unless asked for. */
  readonly onDisconnect?: 'continue' | 'cancel'
}

/** What one caller asks for. */
export type TurnRequest = {
  readonly input: Input
  /** The length of the input as JSON. */
  readonly chars: number
  readonly key: RequestKey | null
  readonly busy: BusyPolicy
  /** How long it may wait; null: the default, or no limit for one that is submitted. */
  readonly waitMs: number | null
  /** Aborted when the caller goes away: a request that only waits here leaves the queue. */
  readonly caller: { readonly signal?: AbortSignal }
  readonly by: Principal
  /** What its caller was granted: looked at again when its turn is to start. Null: everything. */
  readonly access: Access | null
}

export function resolveRequest(
  options: ResolveOptions,
  caller: Caller,
  { agent, limits }: { agent: string; limits: Limits },
): ResolveRequest {
  const reconnect = oneOf('reconnect', options.reconnect ?? 'reopen', RECONNECT_POLICIES)
  const graceMs = reconnect === 'reopen' ? limits.reopenGraceMs : limits.graceMs
  const ttlMs = Math.min(limits.ttlMs, limits.ttlMsMax)
  const internal = options.internal ?? false
  const key = options.key === undefined ? null : checkKey(options.key)
  return {
    id: options.id === undefined ? null : checkId(options.id),
    principal: principalOfKey(caller, key),
    key: internal ? null : key,
    agent: options.agent ?? agent,
    internal,
    reconnect,
    exclusive: options.exclusive ?? false,
    graceMs:
      options.graceMs === undefined
        ? Math.min(graceMs, limits.graceMsMax)
        : milliseconds('graceMs', options.graceMs, limits.graceMsMax),
    ttlMs: options.ttlMs === null ? null : timeToLive(options.ttlMs ?? ttlMs, limits),
    labels: checkLabels(options.labels ?? {}),
    by: caller.by,
    access: caller.access,
  }
}

export function turnRequest(
  input: Input,
  options: TurnOptions,
  { by, access }: Caller,
  { limits, digest }: { limits: Limits; digest: Digest },
): TurnRequest {
  const json = checkInput(input, limits)
  const { idempotencyKey, waitMs } = options
  oneOf('onDisconnect', options.onDisconnect ?? 'continue', ['continue', 'cancel'])
  return {
    input,
    chars: json.length,
    key: idempotencyKey === undefined ? null : requestKey(idempotencyKey, digest(json)),
    busy: oneOf('busy', options.busy ?? 'queue', BUSY_POLICIES),
    waitMs: waitMs === undefined ? null : milliseconds('waitMs', waitMs, limits.waitMsMax),
    caller: options,
    by,
    access,
  }
}

function requestKey(key: string, digest: string): { key: string; digest: string } {
  const { idempotencyKeyCharsMax } = STATE_LIMITS
  if (key !== '' && key.length <= idempotencyKeyCharsMax) return { key, digest }
  throw invalid('idempotencyKey', `must have 1 to ${idempotencyKeyCharsMax} characters`)
}

function checkInput(input: Input, limits: Limits): string {
  const text = typeof input === 'object' && input !== null ? input.text : input
  if (typeof text !== 'string') throw invalid('input', 'must be a text, or an object with a text')
  const json = JSON.stringify(input)
  if (json.length <= limits.inputBytesMax) return json
  throw new HoldfastError('body_too_large', `input is over ${limits.inputBytesMax} bytes`)
}

const PRINCIPAL_CHARS_MAX = 256

/** Only the three fields, checked: a program may hand over anything. */
export function checkPrincipal({ kind, issuer, id }: Principal): Principal {
  if (!PRINCIPAL_KINDS.includes(kind)) {
    throw invalid('by.kind', `must be one of ${PRINCIPAL_KINDS.join(', ')}`)
  }
  for (const [name, text] of Object.entries({ issuer, id })) {
    if (typeof text === 'string' && text !== '' && text.length <= PRINCIPAL_CHARS_MAX) continue
    throw invalid(`by.${name}`, `must be a text of 1 to ${PRINCIPAL_CHARS_MAX} characters`)
  }
  return { kind, issuer, id }
}

/** The id of a principal or a group, as sessions name them. */
function checkPrincipalId(field: string, id: string): void {
  if (typeof id === 'string' && /^[^\p{Cc}]{1,513}$/u.test(id)) return
  throw invalid(field, 'must be the id of a principal, or @ and the name of a group')
}

export function checkKey(key: string): string {
  if (typeof key !== 'string' || key === '')
    throw invalid('key', 'must be a text that is not empty')
  if (!key.isWellFormed()) throw invalid('key', 'must be well-formed Unicode')
  if (utf8Length(key) <= STATE_LIMITS.keyBytesMax) return key
  throw invalid('key', `must have at most ${STATE_LIMITS.keyBytesMax} bytes of UTF-8`)
}

function checkId(id: string): string {
  if (
    typeof id === 'string' &&
    id.length <= STATE_LIMITS.idCharsMax &&
    /^[\w.:~-]+$/.test(id) &&
    !/^\.\.?$/.test(id)
  ) {
    return id
  }
  throw invalid(
    'id',
    `must have 1 to ${STATE_LIMITS.idCharsMax} of these characters: letters, digits, _ . : ~ -` +
      ', and be neither . nor ..',
  )
}

function checkLabels(labels: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) {
    throw invalid('labels', 'must be an object of texts')
  }
  const entries = Object.entries(labels)
  const { labelsMax, labelCharsMax } = STATE_LIMITS
  if (entries.length > labelsMax) throw invalid('labels', `must be at most ${labelsMax}`)
  for (const [name, value] of entries) {
    if (name !== '' && name.length <= labelCharsMax && isLabelValue(value)) continue
    throw invalid('labels', `must be texts of at most ${labelCharsMax} characters`)
  }
  return labels
}

function isLabelValue(value: unknown): boolean {
  return typeof value === 'string' && value.length <= STATE_LIMITS.labelCharsMax
}

export type LinkOptions = {
  readonly scopes: readonly LinkScope[]
  /** Milliseconds since 1970. */
  readonly expiresAt?: number | null
  readonly uses?: number | null
}

/** At least one scope, an end in the future or none, a count of uses or none. */
export function checkLink(options: LinkOptions): LinkOptions {
  const { scopes, expiresAt = null, uses = null } = options
  checkScopes(scopes)
  if (expiresAt !== null) milliseconds('expiresAt', expiresAt, Number.MAX_SAFE_INTEGER)
  if (uses !== null && (!Number.isInteger(uses) || uses < 1)) {
    throw invalid('uses', 'must be a whole number from 1 on, or null')
  }
  return options
}

/** At least one scope, and the id of a principal or a group. */
export function checkShare({ with: principal, scopes }: Share): Share {
  checkPrincipalId('with', principal)
  checkScopes(scopes)
  return { with: principal, scopes: [...new Set(scopes)] }
}

function checkScopes(scopes: readonly LinkScope[]): void {
  if (!Array.isArray(scopes) || scopes.length === 0) throw invalid('scopes', 'must not be empty')
  for (const scope of scopes) oneOf('scopes', scope, LINK_SCOPES)
}

function timeToLive(ttlMs: number, limits: Limits): number {
  if (ttlMs === 0) throw invalid('ttlMs', 'must be at least 1, or null for no end')
  return milliseconds('ttlMs', ttlMs, limits.ttlMsMax)
}

function milliseconds(field: string, value: number, max: number): number {
  if (Number.isInteger(value) && value >= 0 && value <= max) return value
  throw invalid(field, `must be a whole number from 0 to ${max}`)
}

function oneOf<Value extends string>(
  field: string,
  value: string,
  values: readonly Value[],
): Value {
  const found = values.find((candidate) => candidate === value)
  if (found !== undefined) return found
  throw invalid(field, `must be one of ${values.join(', ')}`)
}

function utf8Length(text: string): number {
  let bytes = 0
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4
  }
  return bytes
}

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

  /** Calls `enter` when it is known which turn the key has, in the order of arrival. */
  pass<Result>(key: RequestKey | null, enter: () => Promise<Result>): Promise<Result> {
    if (key === null) return this.#entering === null ? enter() : this.#enterLater(null, enter)
    const { key: name } = key
    this.#underWay.set(name, (this.#underWay.get(name) ?? 0) + 1)
    const isSure = this.#entering === null && this.#isSure(name)
    const entered = isSure ? enter() : this.#enterLater(name, enter)
    // The caller gets the refusal; here only the end matters.
    void entered.catch(() => undefined).then(() => this.#forgetRequest(name))
    return entered
  }

  async #enterLater<Result>(key: string | null, enter: () => Promise<Result>): Promise<Result> {
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
