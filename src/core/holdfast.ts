/**
 * Holdfast as a program uses it: sessions by key or id, turns, events, asks. The library hands this
 * out, and every door translates to it.
 */
import { Authority, type AuthorityOptions } from './authority.ts'
import type { FollowChangesOptions } from './commits.ts'
import { isClosedError } from './closing.ts'
import { HoldfastError, invalid } from './errors.ts'
import type { LiveSession } from './live.ts'
import { LOCAL, type Principal, type Input } from './state.ts'
import {
  checkKey,
  checkPrincipal,
  resolveRequest,
  turnRequest,
  type ResolveOptions,
  type TurnOptions,
} from './requests.ts'
import { SessionHandle } from './session-handle.ts'
import type { ChangePage, ListPage, ListQuery } from './store.ts'
import { TurnHandle, type Admission, type TurnRecord } from './turn-record.ts'

export type HoldfastOptions = AuthorityOptions & {
  /** The agent of sessions that do not name one; without it the first of `runners`. */
  readonly defaultAgent?: string
}

/** How often a turn by key starts over when the session it found was closed meanwhile. */
const KEY_ATTEMPTS = 4

/** What `as` hands on. */
type Bound = {
  readonly authority: Authority
  readonly defaultAgent: string
  readonly by: Principal
}

/** Holdfast without a principal: a door has to bind it to one first. */
export type Unbound = Pick<Holdfast, 'as' | 'authority' | 'list' | 'changes'>

export class Holdfast {
  readonly authority: Authority
  /** On whose behalf it acts: recorded with what is done through it. */
  readonly by: Principal
  readonly #defaultAgent: string

  constructor(options: HoldfastOptions | Bound) {
    if ('authority' in options) {
      this.authority = options.authority
      this.by = options.by
      this.#defaultAgent = options.defaultAgent
      return
    }
    this.authority = new Authority(options)
    this.by = LOCAL
    this.#defaultAgent = options.defaultAgent ?? Object.keys(options.runners)[0] ?? ''
    this.#assertAgent(this.#defaultAgent)
  }

  /** The same Holdfast on behalf of a principal, with which all that it does is recorded. */
  as(by: Principal): Holdfast {
    const { authority } = this
    return new Holdfast({ authority, defaultAgent: this.#defaultAgent, by: checkPrincipal(by) })
  }

  /** Finds the session of a key or an id, or creates it. */
  async resolve(options: ResolveOptions = {}): Promise<SessionHandle> {
    this.#assertOpenKey(options)
    return this.resolveReserved(options)
  }

  /** The same for the door that has reserved the key's prefix. */
  async resolveReserved(options: ResolveOptions): Promise<SessionHandle> {
    const { live, isNew } = await this.#resolve(options)
    const { key } = live.session
    return new SessionHandle(this.authority, this.by, { id: live.id, key, isNew })
  }

  /** The open session of a key; null if there is none. */
  async find(key: string): Promise<SessionHandle | null> {
    const [row] = (await this.list({ key, state: 'open', limit: 1 })).sessions
    return row === undefined ? null : this.session(row.id)
  }

  /** A handle on a session by its id; whether there is one shows when it is used. */
  session(id: string): SessionHandle {
    return new SessionHandle(this.authority, this.by, { id })
  }

  /** A turn in the session of a key, which is created in the same step if need be. */
  turn(options: ResolveOptions, input: Input, turnOptions: TurnOptions = {}): TurnHandle {
    return new TurnHandle(this.#enterByKey(options, input, turnOptions), turnOptions, this.by)
  }

  /**
   * Like `turn`, but records the turn in the queue and returns at once: it survives a crash there.
   */
  async submit(
    options: ResolveOptions,
    input: Input,
    turnOptions: TurnOptions = {},
  ): Promise<{ readonly session: string; readonly turn: TurnRecord }> {
    const request = turnRequest(input, turnOptions, this.by, this.authority)
    const { live, turn } = await this.#inSession(options, async (live) => ({
      live,
      turn: await live.queue.submit(request),
    }))
    return { session: live.id, turn: await live.readTurn(turn) }
  }

  /** Sessions by a filter, newest first; internal ones are never listed. */
  async list(query: Partial<ListQuery> = {}): Promise<ListPage> {
    const limit = this.#pageLimit(query.limit ?? 100)
    if (query.key !== undefined) checkKey(query.key)
    return this.authority.store.list({ ...query, limit })
  }

  /**
   * The sessions that change, on whichever node: a page whenever some have, each session once in
   * it. Internal ones are left out. To begin with all sessions, take the position of
   * `readChanges()`, list them, and follow from there.
   */
  changes(options: FollowChangesOptions = {}): AsyncGenerator<ChangePage, void> {
    return this.authority.changes.follow(options)
  }

  /** The sessions that changed after a position: one page. Without one, only the feed's end. */
  async readChanges(
    after: number | null = null,
    limit = 100,
  ): Promise<ChangePage & { readonly hasMore: boolean }> {
    return this.authority.changes.read(after, this.#pageLimit(limit))
  }

  #pageLimit(limit: number): number {
    const { listMax } = this.authority.limits
    if (Number.isInteger(limit) && limit >= 1 && limit <= listMax) return limit
    throw invalid('limit', `must be a whole number from 1 to ${listMax}`)
  }

  /**
   * Lets running turns end for `drainMs`, records the rest as interrupted, and closes the store.
   */
  async close({ drainMs = 0 }: { readonly drainMs?: number } = {}): Promise<void> {
    await this.authority.drain(drainMs)
    await this.authority.stop()
    await this.authority.store.close()
  }

  async #resolve(options: ResolveOptions): Promise<{ live: LiveSession; isNew: boolean }> {
    const { limits } = this.authority
    const request = resolveRequest(options, this.by, { limits, agent: this.#defaultAgent })
    this.#assertAgent(request.agent)
    const resolved = await this.authority.resolve(request)
    const { id, agent } = resolved.live.session
    if (options.agent === undefined || options.agent === agent) return resolved
    throw new HoldfastError('agent_mismatch', `session ${id} belongs to agent ${agent}`, { agent })
  }

  async #enterByKey(
    options: ResolveOptions,
    input: Input,
    turnOptions: TurnOptions,
  ): Promise<Admission> {
    const request = turnRequest(input, turnOptions, this.by, this.authority)
    return this.#inSession(options, async (live) => ({
      live,
      turn: await live.queue.enter(request),
    }))
  }

  async #inSession<Result>(
    options: ResolveOptions,
    work: (live: LiveSession) => Promise<Result>,
  ): Promise<Result> {
    this.#assertOpenKey(options)
    for (let attempt = 1; ; attempt += 1) {
      const { live } = await this.#resolve(options)
      try {
        return await work(live)
      } catch (error) {
        // Closed before it was admitted: the key is free again, and nothing happened.
        const isFree = isClosedError(error) && options.id === undefined
        if (!isFree || attempt === KEY_ATTEMPTS) throw error
      }
    }
  }

  #assertAgent(agent: string): void {
    if (this.authority.runner(agent) !== null) return
    const names = this.authority.agents.join(', ')
    throw new HoldfastError('agent_unknown', `there is no agent ${agent}; there are: ${names}`)
  }

  #assertOpenKey({ key }: ResolveOptions): void {
    for (const prefix of this.authority.reservedKeys) {
      if (typeof key !== 'string' || !key.startsWith(prefix)) continue
      throw new HoldfastError('key_taken', `the prefix ${prefix} of the key is reserved`)
    }
  }
}
