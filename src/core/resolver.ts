/**
 * Finding or creating a session by its key or its id (I1): the store reserves both, and all
 * concurrent requests for one of them get the session that it reserved.
 */
import { closedError } from './closing.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import type { EventOf } from './events.ts'
import type { HeldSessions } from './held-sessions.ts'
import type { LiveSession } from './live.ts'
import { erasedError } from './loading.ts'
import type { Principal } from './principal.ts'
import { createSession, expiresAt } from './session.ts'
import type { Session, SessionOptions } from './state.ts'
import type { Reserved } from './store.ts'

/** What to find or create. An id is the caller's own and decides; null: a new one is made. */
export type ResolveRequest = Omit<SessionOptions, 'id'> & {
  readonly id: string | null
  readonly by: Principal
}

export type Resolved = { readonly live: LiveSession; readonly isNew: boolean }

/** How often a resolve starts over when what it found was closed meanwhile. */
const ATTEMPTS_MAX = 8

type ResolverNode = Pick<CoreContext, 'store' | 'clock' | 'entropy'> & {
  readonly node: string
  assertLease(): void
  open(id: string): Promise<LiveSession>
  view(id: string): Promise<Session>
  adopt(session: Session, epoch: number): LiveSession
}

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
      if (known !== null) return { live: known, isNew: false }
      const resolved = await this.#reserveOnce(request)
      if (resolved !== null) return resolved
    }
    throw new HoldfastError('too_many', 'the session was closed again and again meanwhile')
  }

  /** The steady state: a session that is held is found without asking the store. */
  #known({ id, key }: ResolveRequest): LiveSession | null {
    this.#node.assertLease()
    if (id === null) return key === null ? null : this.#held.use(this.#held.idOfKey(key) ?? '')
    const live = this.#held.use(id)
    return live !== null && (key === null || live.session.key === key) ? live : null
  }

  /** Null: another request was at it, or what was found is closed by now; look again. */
  async #reserveOnce(request: ResolveRequest): Promise<Resolved | null> {
    const { id, key } = request
    const name = JSON.stringify([id, key])
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

  async #reserve(request: ResolveRequest): Promise<Resolved | null> {
    const { store, clock, entropy, node } = this.#node
    const explicit = request.id !== null
    const id = request.id ?? entropy.id()
    const at = clock.now()
    const type = 'session.created'
    const event: EventOf<typeof type> = { type, ...request, id, seq: 1, at }
    const session = createSession(event)
    const { key, agent, internal, labels } = request
    const reservation = { id, explicit, key, agent, internal, labels, node, at }
    const body = JSON.stringify(event)
    const reserved = store.reserve({ ...reservation, expiresAt: expiresAt(session), body })
    const adopt = (answer: Reserved): LiveSession | null =>
      answer.type === 'created' ? this.#node.adopt(session, answer.epoch) : null
    const created = await this.#held.arrive(id, reserved.then(adopt))
    if (created !== null) return { live: created, isNew: true }
    return this.#found(await reserved, request)
  }

  async #found(reserved: Reserved, request: ResolveRequest): Promise<Resolved | null> {
    const { type, id } = reserved
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
      const closed = error instanceof HoldfastError && error.code === 'session_closed'
      if (closed && request.id === null) return null
      throw error
    }
  }
}
