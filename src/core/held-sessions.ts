/**
 * The sessions that a node holds in memory or is about to, the longest unused first. Beyond a limit
 * idle ones are evicted; the next request loads them again.
 */
import type { Clock } from './clock.ts'
import type { Limits } from './limits.ts'
import type { LiveSession } from './live.ts'
import { DEFAULT_PRINCIPAL } from './access.ts'
import { closedError, isClosedError } from './closing.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import type { EventOf } from './events.ts'
import { addLoad, noLoad, type Load } from './figures.ts'
import { assertAdmissible } from './first-turn.ts'
import { erasedError } from './loading.ts'
import type { ResolveRequest } from './requests.ts'
import type { Runner } from './runner.ts'
import type { Session } from './state.ts'
import { createSession, expiresAt } from './session.ts'
import type { Reserved } from './store.ts'

/** Between two looks at whether a turn is still under way. */
const MOTION_LOOK_MS = 10
/** A session used so recently is not evicted, however many there are. */
const IDLE_MS = 100
/** One that was moved to the end so recently stays where it is: it may have been used since. */
const MOVED_MS = 50

export class HeldSessions {
  readonly #held = new Map<string, { readonly live: LiveSession; readonly usedAt: number }>()
  /** By principal and key. */
  readonly #byKey = new Map<string, LiveSession>()
  /** Sessions that are being created or loaded. */
  readonly #arriving = new Map<string, Promise<LiveSession | null>>()
  readonly #clock: Clock
  readonly #limits: Limits

  constructor({ clock, limits }: { readonly clock: Clock; readonly limits: Limits }) {
    this.#clock = clock
    this.#limits = limits
  }

  get size(): number {
    return this.#held.size
  }

  get all(): readonly LiveSession[] {
    return [...this.#held.values()].map(({ live }) => live)
  }

  /** Counted anew: a scrape may take as long, and no turn has to keep count. */
  load(): Load {
    const load = noLoad()
    for (const { live } of this.#held.values()) addLoad(load, live)
    return load
  }

  get(id: string): LiveSession | null {
    return this.#held.get(id)?.live ?? null
  }

  idOfKey(principal: string, key: string): string | null {
    return this.#byKey.get(nameOf(principal, key))?.id ?? null
  }

  add(live: LiveSession): void {
    const { principal, key } = live.session
    this.#held.set(live.id, { live, usedAt: this.#clock.monotonic() })
    if (key !== null) this.#byKey.set(nameOf(principal, key), live)
  }

  /**
   * The session, which counts as used now; null while it is being loaded: requests of that time
   * keep their order (I3).
   */
  use(id: string): LiveSession | null {
    const held = this.#held.get(id)
    if (held === undefined || this.#arriving.has(id)) return null
    const { live, usedAt } = held
    const now = this.#clock.monotonic()
    if (now - usedAt < MOVED_MS) return live
    this.#held.delete(id)
    this.#held.set(id, { live, usedAt: now })
    return live
  }

  /** The session that is being created or loaded: other requests wait for it. */
  arriving(id: string): Promise<LiveSession | null> | undefined {
    return this.#arriving.get(id)
  }

  /**
   * Until `coming` is settled no other request of this node creates or loads the session. One that
   * is held is not on its way: requests for it neither wait for `coming` nor fail with it.
   */
  async arrive(id: string, coming: Promise<LiveSession | null>): Promise<LiveSession | null> {
    if (this.get(id) !== null) return coming
    this.#arriving.set(id, coming)
    try {
      return await coming
    } finally {
      if (this.#arriving.get(id) === coming) this.#arriving.delete(id)
    }
  }

  /** False if it was not held any more. */
  remove(live: LiveSession): boolean {
    if (this.get(live.id) !== live) return false
    const { principal, key } = live.session
    this.#held.delete(live.id)
    const name = key === null ? '' : nameOf(principal, key)
    if (this.#byKey.get(name) === live) this.#byKey.delete(name)
    return true
  }

  /** How many have a turn that runs, or is decided and not known to be durable yet. */
  get inMotion(): number {
    return this.all.filter(({ inMotion }) => inMotion).length
  }

  /** Resolves when none is in motion any more, or after `ms`. */
  async settle(ms: number): Promise<void> {
    const until = this.#clock.monotonic() + ms
    while (this.inMotion > 0 && this.#clock.monotonic() < until) {
      await new Promise<void>((resolve) => this.#clock.after(MOTION_LOOK_MS, resolve))
    }
  }

  /** Removes and returns idle sessions beyond the limit; at most `looks` are looked at. */
  evict(looks: number): readonly LiveSession[] {
    const before = this.#clock.monotonic() - IDLE_MS
    const evicted: LiveSession[] = []
    let left = Math.min(looks, this.#held.size)
    for (const { live, usedAt } of this.#held.values()) {
      if (left === 0 || usedAt > before || this.size <= this.#limits.idleSessionsMax) break
      left -= 1
      if (live.idle) {
        this.remove(live)
        evicted.push(live)
      } else this.use(live.id)
    }
    return evicted
  }
}

/** A key of one principal: no principal's id has a line break in it. */
function nameOf(principal: string, key: string): string {
  return `${principal}\n${key}`
}

export type Resolved = { readonly live: LiveSession; readonly isNew: boolean }

/** How often a resolve starts over when what it found was closed meanwhile. */
const ATTEMPTS_MAX = 8

type ResolverNode = Pick<CoreContext, 'store' | 'clock' | 'entropy' | 'limits' | 'usage'> & {
  readonly draining: boolean
  runner(agent: string): Runner | null
  readonly node: string
  assertLease(): void
  open(id: string): Promise<LiveSession>
  view(id: string): Promise<Session>
  adopt(session: Session, epoch: number): LiveSession
}

/**
 * Finding or creating a session by its key or its id (I1): the store reserves both, and all
 * concurrent requests for one of them get the session that it reserved.
 */
export class Resolver {
  readonly #node: ResolverNode
  readonly #held: HeldSessions
  /** Reservations under way, by id and key. */
  readonly #reserving = new Map<string, Promise<Resolved | null>>()

  constructor(node: ResolverNode, held: HeldSessions) {
    this.#node = node
    this.#held = held
  }

  async resolve(request: ResolveRequest): Promise<Resolved> {
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
      const known = this.#known(request)
      const found = known === null ? null : { live: known, isNew: false }
      const resolved = found ?? (await this.#reserveOnce(request))
      if (resolved === null) continue
      if (!resolved.isNew && request.id === null) resolved.live.wasFound = true
      return resolved
    }
    throw new HoldfastError('too_many', 'the session was closed again and again meanwhile')
  }

  /** The steady state: a session that is held is found without asking the store. */
  #known({ id, principal, key }: ResolveRequest): LiveSession | null {
    this.#node.assertLease()
    if (id === null) {
      return key === null ? null : this.#held.use(this.#held.idOfKey(principal, key) ?? '')
    }
    const live = this.#held.use(id)
    return live !== null && (key === null || live.session.key === key) ? live : null
  }

  /** Null: another request was at it, or what was found is closed by now; look again. */
  async #reserveOnce(request: ResolveRequest): Promise<Resolved | null> {
    const { id, principal, key } = request
    const name = JSON.stringify([id, principal, key])
    const underWay = id === null && key === null ? undefined : this.#reserving.get(name)
    // I2: what is being loaded is not loaded a second time; whether it succeeds does not matter.
    const arriving = id === null ? undefined : this.#held.arriving(id)?.catch(() => null)
    if (underWay !== undefined || arriving !== undefined) {
      await (underWay ?? arriving)
      return null
    }
    const reserving = this.#reserve(request)
    this.#reserving.set(name, reserving)
    return reserving.finally(() => this.#reserving.delete(name))
  }

  /** Takes room for the session first, if its principal has a limit. */
  async #reserve(request: ResolveRequest): Promise<Resolved | null> {
    const { access, principal, internal, turn } = request
    const isThere = (): Promise<boolean> => this.#isThere(request)
    if (turn !== undefined) await assertAdmissible(this.#node, { turn, session: request }, isThere)
    const allowance = this.#node.usage.ofOwner(access, principal)
    if (allowance === null) return this.#reserveNow(request)
    const settle = await allowance.takeSession(isThere, internal)
    let isCreated = false
    try {
      const resolved = await this.#reserveNow(request)
      isCreated = resolved?.isNew === true
      return resolved
    } finally {
      settle(isCreated)
    }
  }

  /** Whether there is a session already; an id is not refused for a quota if it is in use. */
  async #isThere({ id, key, principal }: ResolveRequest): Promise<boolean> {
    const { store } = this.#node
    if (id !== null) return (await store.read(id, 0, 0)).row !== null
    if (key === null) return false
    const found = await store.list({ key, principal, state: 'open', limit: 1 })
    return found.sessions.length > 0
  }

  async #reserveNow(request: ResolveRequest): Promise<Resolved | null> {
    const { store, clock, entropy, node } = this.#node
    const explicit = request.id !== null
    const id = request.id ?? entropy.id()
    const at = clock.now()
    const type = 'session.created'
    // What a caller was granted is not for the log.
    const { principal, access: _, turn: _turn, blobs, ...options } = request
    const whose = principal === DEFAULT_PRINCIPAL ? {} : { principal }
    const event: EventOf<typeof type> = { type, ...options, ...whose, id, seq: 1, at }
    const session = createSession(event)
    const { key, agent, internal, labels } = request
    const reservation = { id, explicit, principal, key, agent, internal, labels, node, at }
    const body = JSON.stringify(event)
    const copies = blobs === undefined ? {} : { blobs }
    const made = { ...reservation, expiresAt: expiresAt(session), body, ...copies }
    const reserved = store.reserve(made)
    const adopt = (answer: Reserved): LiveSession | null => {
      if (answer.type !== 'created') return null
      this.#node.usage.appended(session, body)
      if (blobs !== undefined) this.#node.usage.copied(session)
      return this.#node.adopt(session, answer.epoch)
    }
    const created = await this.#held.arrive(id, reserved.then(adopt))
    if (created !== null) return { live: created, isNew: true }
    return this.#found(await reserved, request)
  }

  async #found(reserved: Reserved, request: ResolveRequest): Promise<Resolved | null> {
    const { type, id } = reserved
    // It was there when its blobs were looked up.
    if (type === 'gone') throw erasedError(id)
    if (type === 'taken') {
      const whose =
        id === request.id ? 'the session has another key' : 'it belongs to another session'
      throw new HoldfastError('key_taken', `the key cannot be used: ${whose}`, { session: id })
    }
    if (type === 'closed' && reserved.state === 'erased') throw erasedError(id)
    if (type === 'closed') throw closedError(await this.#node.view(id))
    try {
      return { live: await this.#node.open(id), isNew: false }
    } catch (error) {
      if (isClosedError(error) && request.id === null) return null
      throw error
    }
  }
}
