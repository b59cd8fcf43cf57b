/**
 * Holdfast as a program uses it: sessions by key or id, turns, events, asks. The library hands this
 * out, and every door translates to it.
 */
import {
  assertMay,
  assertMayDo,
  principalOfKey,
  principalsOf,
  scopesOn,
  sessionUnknown,
  type Access,
  type Caller,
} from './access.ts'
import type { AnsweringFollower } from './answerers.ts'
import { Authority, type AuthorityOptions } from './authority.ts'
import type { FollowChangesOptions } from './commits.ts'
import { isClosedError } from './closing.ts'
import { HoldfastError, invalid } from './errors.ts'
import {
  AskFollower,
  filterOf,
  listAsks,
  type FollowAsksOptions,
  type InboxPage,
  type OpenAskPage,
} from './inbox.ts'
import { readLastPosition } from './history.ts'
import type { LiveSession } from './live.ts'
import { bytesOf, digestsOf, type GivenInput } from './parts.ts'
import { LOCAL, type Principal, type SessionOptions } from './state.ts'
import {
  checkKey,
  checkPrincipal,
  resolveRequest,
  turnRequest,
  type ResolveOptions,
  type ResolveRequest,
  type TurnOptions,
  type TurnRequest,
} from './requests.ts'
import {
  adoptedId,
  cannotFork,
  cannotOpen,
  forkedFrom,
  readConversation,
  readForkPoint,
} from './origins.ts'
import { erasePrincipal, type PrincipalErasure } from './principal-erasure.ts'
import { checkRetention, previewRetention, type RetentionPreview } from './retention.ts'
import { restoreSession } from './restoring.ts'
import { NO_CAPABILITIES, type TerminalCommand } from './runner.ts'
import { assertAgent } from './runner-table.ts'
import { SessionHandle } from './session-handle.ts'
import { assertHonoured } from './settings.ts'
import type {
  AskQuery,
  ChangePage,
  ListPage,
  ListQuery,
  RestoredSession,
  SessionRef,
} from './store.ts'
import { TurnHandle, type Admission, type SubmittedTurn } from './turn-record.ts'

export type HoldfastOptions = AuthorityOptions

/** How to make a session that continues another. */
export type ForkOptions = Omit<ResolveOptions, 'agent' | 'id'> & { readonly turn?: string }

/** What a session that continues a conversation begins with. */
type Continued = Required<Pick<SessionOptions, 'backend' | 'origin'>> &
  Pick<ResolveRequest, 'blobs'>

/** How often one conversation can be adopted, each time after its session was closed. */
const ADOPTIONS_MAX = 100

/** How often a turn by key starts over when the session it found was closed meanwhile. */
const KEY_ATTEMPTS = 4

/** How many messages of its conversation its log does not have; null: not known. */
type Written = { readonly writtenOutside: number | null }

/** What `as` hands on. */
type Bound = Caller & {
  readonly authority: Authority
}

/** Holdfast without a caller: a door has to bind it to one first, and to say what that may do. */
export type Unbound = Pick<Holdfast, 'authority'> & {
  as(by: Principal, access: Access | null): Holdfast
}

export class Holdfast {
  readonly authority: Authority
  /** On whose behalf it acts: recorded with what is done through it. */
  readonly by: Principal
  /** What it may see and do; null: everything. */
  readonly access: Access | null

  constructor(options: HoldfastOptions | Bound) {
    if ('authority' in options) {
      this.authority = options.authority
      this.by = options.by
      this.access = options.access
      return
    }
    this.authority = new Authority(options)
    this.by = LOCAL
    this.access = null
  }

  /**
   * The same Holdfast on behalf of a principal, with which all that it does is recorded. With
   * `access` it sees and does only what that allows.
   */
  as(by: Principal, access: Access | null = null): Holdfast {
    const { authority } = this
    return new Holdfast({ authority, by: checkPrincipal(by), access })
  }

  /** Finds the session of a key or an id, or creates it. */
  async resolve(options: ResolveOptions = {}): Promise<SessionHandle> {
    await this.#assertMayName(options)
    return this.resolveReserved(options)
  }

  /**
   * The same for the door that has reserved the key's prefix. `first`: to run a turn there, this
   * one if that is known; what it would be refused for is checked before there is a session.
   */
  async resolveReserved(
    options: ResolveOptions,
    first?: { readonly input?: GivenInput; readonly options?: TurnOptions },
  ): Promise<SessionHandle> {
    const { input, options: turnOptions = {} } = first ?? {}
    const isKnown = input !== undefined
    const turn = isKnown ? turnRequest(input, turnOptions, this, this.authority) : null
    const { live, isNew } = await this.#resolve(options, first === undefined ? {} : { turn })
    const { key } = live.session
    return new SessionHandle(this.authority, this, { id: live.id, key, isNew })
  }

  /** The open session of a key; null if there is none. */
  async find(key: string): Promise<SessionHandle | null> {
    const principal = principalOfKey(this, key)
    const [row] = (await this.list({ key, principal, state: 'open', limit: 1 })).sessions
    return row === undefined ? null : this.session(row.id)
  }

  /** The session that a key leads to, as stores and nodes name it. */
  refOf(key: string): Extract<SessionRef, { readonly key: string }> {
    return { key, principal: principalOfKey(this, key) }
  }

  /** A handle on a session by its id; whether there is one shows when it is used. */
  session(id: string): SessionHandle {
    return new SessionHandle(this.authority, this, { id })
  }

  /** A turn in the session of a key, which is created in the same step if need be. */
  turn(options: ResolveOptions, input: GivenInput, turnOptions: TurnOptions = {}): TurnHandle {
    return new TurnHandle(this.#enterByKey(options, input, turnOptions), turnOptions, this)
  }

  /**
   * Like `turn`, but records the turn in the queue and returns at once: it survives a crash there.
   */
  async submit(
    options: ResolveOptions,
    input: GivenInput,
    turnOptions: TurnOptions = {},
  ): Promise<{ readonly session: string; readonly turn: SubmittedTurn }> {
    const request = turnRequest(input, turnOptions, this, this.authority)
    const { live, turn, isSteered } = await this.#inSession(options, request, async (live) => ({
      live,
      ...(await live.queue.submit(request)),
    }))
    return { session: live.id, turn: { ...(await live.readTurn(turn)), isSteered } }
  }

  /**
   * The sessions that it may see, by a filter, newest first unless `sort` and `order` say so;
   * internal ones are never listed. A page may have fewer than `limit`: only one without
   * `nextCursor` is the last.
   */
  async list(query: Partial<ListQuery> = {}): Promise<ListPage> {
    const limit = this.#pageLimit(query.limit ?? 100)
    if (query.key !== undefined) checkKey(query.key)
    for (const name of ['keyPrefix', 'keyText'] as const) {
      if (query[name] === '') throw invalid(name, 'must be a text that is not empty')
    }
    const visibleTo = principalsOf(this)
    const all = visibleTo === null ? query : { ...query, visibleTo }
    return this.authority.store.list({ ...all, limit })
  }

  /**
   * The sessions that change, on whichever node: a page whenever some have, each session once in
   * it. Internal ones are left out. To begin with all sessions, take the position of
   * `readChanges()`, list them, and follow from there.
   */
  changes(options: FollowChangesOptions = {}): AsyncGenerator<ChangePage, void> {
    return this.authority.changes.follow(options, (row) => scopesOn(this, row).length > 0)
  }

  /** The sessions that changed after a position: one page. Without one, only the feed's end. */
  async readChanges(
    after: number | null = null,
    limit = 100,
  ): Promise<ChangePage & { readonly hasMore: boolean }> {
    const most = this.#pageLimit(limit)
    const { changes, limits } = this.authority
    if (principalsOf(this) === null) return changes.read(after, most)
    return changes.readVisible(after, { most, size: limits.listMax }, (row) => {
      return scopesOn(this, row).length > 0
    })
  }

  /**
   * The asks that wait in the sessions that it may see, by a filter, in the order of their
   * opening: one page.
   */
  async listAsks(query: Partial<AskQuery> = {}): Promise<OpenAskPage> {
    return listAsks(this.authority, this, { ...query, limit: this.#pageLimit(query.limit ?? 100) })
  }

  /**
   * The same asks as they are opened and settled, on whichever node, after those that wait. With
   * `answers` it counts, while it follows, as a client to ask for these kinds of ask, in the
   * sessions in which it may answer.
   */
  asks({
    answers = [],
    ...options
  }: FollowAsksOptions & { readonly answers?: readonly string[] } = {}): AsyncGenerator<
    InboxPage,
    void
  > {
    const follower = new AskFollower(this.authority, this, options)
    if (answers.length === 0) return follower.follow()
    this.#assertMayFollow()
    const answering = { ...filterOf(options), access: answererAccess(this.access), answers }
    this.authority.answerers.assertRoom(answering)
    return this.#answering(follower, answering)
  }

  #assertMayFollow(): void {
    if (this.access !== null) assertMayDo(this.access.scopes, 'ask.answer')
    if (principalsOf(this)?.length !== 0) return
    throw new HoldfastError('forbidden', 'a link shows the asks of its own session only')
  }

  async *#answering(
    follower: AskFollower,
    answering: AnsweringFollower,
  ): AsyncGenerator<InboxPage, void> {
    const leave = await this.authority.answerers.join(answering)
    try {
      yield* follower.follow()
    } finally {
      leave()
    }
  }

  /** What retention would erase now: by the operator's rules, or by others. */
  async previewRetention(rules = this.authority.retention): Promise<RetentionPreview> {
    this.#assertManages()
    const { store, clock, limits } = this.authority
    return previewRetention({ store, rules: checkRetention(rules), limits, now: clock.now() })
  }

  /** Makes a closed session of an archive, under its own id; returns the bytes that it takes. */
  async restore(session: RestoredSession): Promise<number> {
    this.#assertManages()
    return restoreSession(this.authority, session)
  }

  /** Closes and erases all sessions of a principal, and says what it could not erase. */
  async erasePrincipal(principal: string): Promise<PrincipalErasure> {
    this.#assertManages()
    return erasePrincipal(this.authority, principal, (id) => this.session(id))
  }

  #assertManages(): void {
    if (this.access !== null) assertMayDo(this.access.scopes, 'store.manage')
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

  /**
   * A new session that continues from the end of a turn of another, with that one's agent: the last
   * turn that is done, unless `turn` names one.
   */
  async fork(source: string, { turn, ...options }: ForkOptions = {}): Promise<SessionHandle> {
    await assertMay(this.authority, this, source, 'turn.run')
    const { agent, settings: before, backend } = await this.authority.view(source)
    const known = options.key === undefined ? null : await this.find(options.key)
    if (known !== null) return forkedFrom(known, source, turn)
    const runner = this.authority.runner(agent)
    const can = runner?.capabilities?.fork ?? null
    if (runner?.fork === undefined || can === null) throw cannotFork(agent, 'cannot be forked')
    const point = await readForkPoint(this.authority, source, turn ?? null)
    if (can === 'head' && !point.isHead) throw cannotFork(agent, 'forks at its last turn only')
    const { messages, omitted, ...at } = point
    const settings = { ...before, ...options.settings }
    const parts = messages.flatMap((message) => message.parts ?? [])
    // What would be refused is refused before the agent has made the fork.
    const { principal } = this.#request({ ...options, agent, settings })
    const { usage } = this.authority
    await usage.assertSession(this.access, principal)
    const owner = usage.ofOwner(this.access, principal)
    owner?.assertRoom(Math.max(1, bytesOf(parts)))
    const own = await runner.fork({ id: source, backend, ...at })
    // The runner may have taken long.
    await assertMay(this.authority, this, source, 'turn.run')
    const { position } = at
    const origin = { session: source, turn: at.turn, backend, position, messages, omitted }
    const digests = digestsOf(parts)
    const blobs = digests.length === 0 ? {} : { blobs: { from: source, digests } }
    const from = { backend: own, origin, ...blobs }
    const forked = await this.#continue({ ...options, agent, settings }, from)
    return forked.isNew ? forked : forkedFrom(forked, source, turn)
  }

  /** A session that continues a conversation of the agent that was begun without Holdfast. */
  async adopt(backend: string, options: ResolveOptions = {}): Promise<SessionHandle> {
    if (this.access !== null) assertMayDo(this.access.scopes, 'session.adopt')
    const agent = options.agent ?? this.#ownDefault
    assertAgent(agent, this.agents)
    const runner = this.authority.runner(agent)
    const given = { backend, settings: options.settings ?? {} }
    const { origin, settings } = await readConversation(agent, runner, given)
    const from = { backend, origin }
    for (let attempt = 1; ; attempt += 1) {
      try {
        const id = adoptedId(agent, backend, attempt)
        return await this.#continue({ ...options, agent, settings, id }, from)
      } catch (error) {
        // The session of an earlier time is closed, and its id is not given out again.
        if (!isClosedError(error) || attempt === ADOPTIONS_MAX) throw error
      }
    }
  }

  /**
   * How a person continues a session in the agent's own program, on the machine of this node.
   * `isToOpen`: its agent here is stopped if it is idle, so that the program can open the session.
   */
  async terminal(id: string, isToOpen = false): Promise<TerminalCommand & Written> {
    await assertMay(this.authority, this, id, 'session.open')
    const { agent, backend, settings, origin, running, closed } = await this.authority.view(id)
    // Its own program continues the session without Holdfast.
    assertAgent(agent, this.agents)
    if (backend === null) throw cannotOpen(`session ${id} has no conversation of its agent yet`)
    const session = { id, backend, origin }
    const runner = this.authority.runner(agent)
    const command = runner?.terminal?.(session, settings) ?? null
    if (command === null) throw cannotOpen(`agent ${agent} has no program that could continue it`)
    // What is written to a conversation after its session was closed is no matter of that.
    if (running !== null || closed !== null) return { ...command, writtenOutside: null }
    if (isToOpen) await runner?.stopIdle?.(session)
    const last = await readLastPosition(this.authority, id, null)
    const written = await runner?.writtenOutside?.(session, last)
    return { ...command, writtenOutside: written?.length ?? null }
  }

  async #continue(options: ResolveOptions, from: Continued): Promise<SessionHandle> {
    this.#assertNotReserved(options)
    const { live, isNew } = await this.#resolve(options, from)
    const { id, key } = live.session
    return new SessionHandle(this.authority, this, { id, key, isNew })
  }

  async #resolve(
    options: ResolveOptions,
    from: Partial<Continued> & Pick<ResolveRequest, 'turn'> = {},
  ): Promise<{ live: LiveSession; isNew: boolean }> {
    const resolved = await this.authority.resolve({ ...this.#request(options), ...from })
    const { id, agent } = resolved.live.session
    if (scopesOn(this, resolved.live.session).length === 0) throw sessionUnknown(id)
    if (options.agent === undefined || options.agent === agent) return resolved
    throw new HoldfastError('agent_mismatch', `session ${id} belongs to agent ${agent}`, { agent })
  }

  /** Throws for what no session can be created with. */
  #request(options: ResolveOptions): ResolveRequest {
    const { limits } = this.authority
    const request = resolveRequest(options, this, { limits, agent: this.#ownDefault })
    const { agent, settings } = request
    assertAgent(agent, this.agents)
    if (settings !== undefined) assertHonoured(agent, this.authority.runner(agent), settings)
    return request
  }

  async #enterByKey(
    options: ResolveOptions,
    input: GivenInput,
    turnOptions: TurnOptions,
  ): Promise<Admission> {
    const request = turnRequest(input, turnOptions, this, this.authority)
    return this.#inSession(options, request, async (live) => ({
      live,
      ...(await live.queue.enter(request)),
    }))
  }

  async #inSession<Result>(
    options: ResolveOptions,
    turn: TurnRequest,
    work: (live: LiveSession) => Promise<Result>,
  ): Promise<Result> {
    const naming = this.#assertMayName(options)
    if (naming !== undefined) await naming
    for (let attempt = 1; ; attempt += 1) {
      const { live, isNew } = await this.#resolve(options, { turn })
      try {
        if (this.access !== null) assertMayDo(scopesOn(this, live.session), 'turn.run')
        const measuring = this.authority.usage.measuring(this.access, live.session)
        if (measuring === null) return await work(live)
        await measuring
        return await work(await this.authority.open(live.id))
      } catch (error) {
        // An erased id is never given out again: a session by an id that the caller chose stays.
        const isDiscarded = isNew && options.id === undefined
        // If it fails, an empty session is left, which its time to live ends.
        if (isDiscarded) await this.authority.discard(live.id).catch(() => undefined)
        // Closed before it was admitted: the key is free again, and nothing happened.
        const isFree = isClosedError(error) && options.id === undefined
        if (!isFree || attempt === KEY_ATTEMPTS) throw error
      }
    }
  }

  /** The agent of sessions that do not name one. */
  get defaultAgent(): string {
    return this.authority.defaultAgent
  }

  /** The agents that it may use. */
  get agents(): readonly string[] {
    const { agents } = this.authority
    const allowed = this.access?.agents
    return allowed === undefined ? agents : agents.filter((agent) => allowed.includes(agent))
  }

  /** The default agent, or the first that it may use. */
  get #ownDefault(): string {
    const { agents, defaultAgent } = this
    return agents.includes(defaultAgent) ? defaultAgent : (agents[0] ?? '')
  }

  /** The agents that it may use, and what each can do. */
  describeAgents() {
    return this.agents.map((name) => ({
      name,
      isDefault: name === this.#ownDefault,
      capabilities: { ...NO_CAPABILITIES, ...this.authority.runner(name)?.capabilities },
    }))
  }

  /**
   * Throws unless it may use the key, and see the session of the id: to create one under an id of
   * its own choice would be to learn which ids there are.
   */
  #assertMayName(options: ResolveOptions): Promise<void> | undefined {
    this.#assertNotReserved(options)
    const { id, internal = false } = options
    if (internal) this.authority.usage.assertMayHide(this.access)
    return id === undefined ? undefined : assertMay(this.authority, this, id, 'session.read')
  }

  #assertNotReserved({ key }: ResolveOptions): void {
    for (const prefix of this.authority.reservedKeys) {
      if (typeof key !== 'string' || !key.startsWith(prefix)) continue
      throw new HoldfastError('key_taken', `the prefix ${prefix} of the key is reserved`)
    }
  }
}

/** Of what a caller was granted, what decides in which sessions it may answer. */
function answererAccess(access: Access | null): Access | null {
  if (access === null) return null
  const { principal, groups, scopes, agents } = access
  return { principal, groups, scopes, ...(agents === undefined ? {} : { agents }) }
}
