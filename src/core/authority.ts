/**
 * The authority: the sessions of this node. It finds, creates, loads and releases them; each loaded
 * session then runs the main path for itself (`ledger.ts`).
 *
 * I1: all requests for a key get the id that the store reserved for it. I5: a node writes only
 * while it can prove its lease. Memory is bounded: idle sessions are evicted and loaded again when
 * needed.
 */
import { ChangeFeed } from './changes.ts'
import type { Clock, Digest, Entropy } from './clock.ts'
import { closedError } from './closing.ts'
import type { Command } from './commands.ts'
import { GroupCommit } from './commits.ts'
import { Counters } from './counters.ts'
import { diagnoseTo, type Diagnose, type DiagnosticListener, type Facts } from './diagnostics.ts'
import { asHoldfastError, HoldfastError, messageOf } from './errors.ts'
import type { EventOf } from './events.ts'
import { HeldSessions } from './held-sessions.ts'
import { readableRow } from './history.ts'
import { Lease } from './lease.ts'
import { coreLimits, type Limits } from './limits.ts'
import { LiveSession, type LoadedState, type SessionHolder } from './live.ts'
import {
  claimed,
  erasedError,
  isUnreadable,
  LoadFailures,
  loadSession,
  Losses,
  RefoldedSessions,
  saidBefore,
} from './loading.ts'
import { Sweeper } from './recovery.ts'
import type { Principal } from './principal.ts'
import { queuedRow, type QueueRow } from './queue.ts'
import type { Runner } from './runner.ts'
import { RunnerTable } from './runner-table.ts'
import { createSession, expiresAt, isPending } from './session.ts'
import type { Session, SessionOptions } from './state.ts'
import type { Reserved, Store } from './store.ts'

export type AuthorityOptions = {
  readonly store: Store
  readonly runners: Readonly<Record<string, Runner>>
  readonly clock: Clock
  readonly entropy: Entropy
  readonly digest: Digest
  /** This node's name: a new one for every start. */
  readonly node: string
  readonly limits?: Partial<Limits>
  /** Called with every diagnostic (`DIAGNOSTICS`). */
  readonly onDiagnostic?: DiagnosticListener
  /** Told with the diagnostics of a start: version, store and the like. */
  readonly about?: Facts
}

/** Told of attachments whose connections and requests, if they have any, are of no more use. */
export type AttachmentListener = {
  /** It is over, and why. */
  readonly ended: (attachment: string, reason: string) => void
  /** Its session's hold is over: the next owner counts its connection as lost. */
  readonly lost: (attachment: string, why: HoldfastError) => void
}

/** What to find or create. An id is the caller's own and decides; without one it is minted. */
export type ResolveRequest = Omit<SessionOptions, 'id'> & {
  readonly id: string | null
  readonly by: Principal
}

export type Resolved = { readonly live: LiveSession; readonly isNew: boolean }

/** Between two looks at whether anything still moves. */
const DRAIN_LOOK_MS = 10
/** How often a resolve starts over when what it found was closed meanwhile. */
const RESOLVE_ATTEMPTS = 8
/** How many of the longest unused sessions are looked at when one more is held. */
const EVICTION_LOOKS = 8

export class Authority implements SessionHolder {
  readonly store: Store
  readonly changes = new ChangeFeed(this)
  readonly commits: GroupCommit
  readonly clock: Clock
  readonly entropy: Entropy
  readonly digest: Digest
  readonly limits: Limits
  readonly node: string
  readonly counters = new Counters()
  readonly diagnose: Diagnose
  readonly about: Facts
  readonly attachmentListeners = new Set<AttachmentListener>()
  /** Prefixes of keys that only the door which added them may use. */
  readonly reservedKeys = new Set<string>()
  readonly #runners: RunnerTable
  readonly #lease: Lease
  readonly #sweeper: Sweeper
  readonly #held: HeldSessions
  /** Sessions that are being created or loaded, by id: requests of that time wait for it. */
  readonly #arriving = new Map<string, Promise<LiveSession | null>>()
  readonly #losses = new Losses()
  readonly refolded = new RefoldedSessions()
  /** Reservations under way, by key. */
  readonly #reserving = new Map<string, Promise<Resolved | null>>()
  readonly #failures: LoadFailures
  #draining = false

  constructor(options: AuthorityOptions) {
    this.store = options.store
    this.clock = options.clock
    this.entropy = options.entropy
    this.digest = options.digest
    this.node = options.node
    this.diagnose = diagnoseTo(options.onDiagnostic ?? (() => undefined))
    this.about = { node: options.node, ...options.about }
    this.limits = coreLimits(options.limits ?? {})
    this.#held = new HeldSessions(this)
    this.#runners = new RunnerTable(options.runners, this.diagnose)
    this.#lease = new Lease(this, (error) => this.#releaseAll(error))
    this.commits = new GroupCommit(this, () => this.#lease.held)
    this.#sweeper = new Sweeper(this)
    this.#failures = new LoadFailures(this)
  }

  get draining(): boolean {
    return this.#draining
  }

  /** How many sessions are held in memory. */
  get heldCount(): number {
    return this.#held.size
  }

  /** Null where a lease never ends. */
  get lease(): Pick<Lease, 'ageMs' | 'leftMs'> | null {
    return this.#lease.ends ? this.#lease : null
  }

  holds(id: string): boolean {
    return this.#held.get(id) !== null
  }

  holdsKey(key: string): boolean {
    return this.#held.idOfKey(key) !== null
  }

  get agents(): readonly string[] {
    return this.#runners.agents
  }

  runner(agent: string): Runner | null {
    return this.#runners.get(agent)
  }

  /** Takes the lease, picks up what earlier nodes left unfinished, and keeps the house in order. */
  async start(): Promise<void> {
    await this.#lease.start()
    await this.#sweeper.start()
    this.diagnose('opened', 'Holdfast is open', this.about)
  }

  /** Finds or creates a session; exactly one of all who ask for the same one sees `isNew` (I1). */
  async resolve(request: ResolveRequest): Promise<Resolved> {
    for (let attempt = 0; attempt < RESOLVE_ATTEMPTS; attempt += 1) {
      const known = this.#known(request)
      if (known !== null) return { live: known, isNew: false }
      const resolved = await this.#reserveOnce(request)
      if (resolved !== null) return resolved
    }
    throw new HoldfastError('too_many', 'the session was closed again and again meanwhile')
  }

  /** The steady state: a session that is held is found without asking anybody. */
  #known({ id, key }: ResolveRequest): LiveSession | null {
    this.#lease.assertHeld()
    if (id === null) return key === null ? null : this.#ready(this.#held.idOfKey(key) ?? '')
    const live = this.#ready(id)
    return live !== null && (key === null || live.session.key === key) ? live : null
  }

  /** Null: somebody else was at it, or what was found is closed by now; look again. */
  async #reserveOnce(request: ResolveRequest): Promise<Resolved | null> {
    const { id, key } = request
    const name = JSON.stringify([id, key])
    const underWay = id === null && key === null ? undefined : this.#reserving.get(name)
    // I2: what is being loaded must not be loaded a second time; whether that succeeds is not ours.
    const arriving = id === null ? undefined : this.#arriving.get(id)?.catch(() => null)
    if (underWay !== undefined || arriving !== undefined) {
      await (underWay ?? arriving)
      return null
    }
    const reserving = this.#reserve(request)
    this.#reserving.set(name, reserving)
    return reserving.finally(() => this.#reserving.delete(name))
  }

  async #reserve(request: ResolveRequest): Promise<Resolved | null> {
    const explicit = request.id !== null
    const id = request.id ?? this.entropy.id()
    const at = this.clock.now()
    const event: EventOf<'session.created'> = {
      type: 'session.created',
      ...request,
      id,
      seq: 1,
      at,
    }
    const session = createSession(event)
    const { key, agent, internal, labels } = request
    const reservation = { id, explicit, key, agent, internal, labels, node: this.node, at }
    const body = JSON.stringify(event)
    const reserved = this.store.reserve({ ...reservation, expiresAt: expiresAt(session), body })
    const created = await this.#arrive(
      id,
      reserved.then((answer) => this.#adopt(answer, session)),
    )
    if (created !== null) return { live: created, isNew: true }
    return this.#found(await reserved, request)
  }

  #adopt(reserved: Reserved, session: Session): LiveSession | null {
    if (reserved.type !== 'created') return null
    this.counters.sessionsCreated += 1
    this.changes.committed()
    return this.#hold({ session, epoch: reserved.epoch, snapshotSeq: 0 })
  }

  async #found(reserved: Reserved, request: ResolveRequest): Promise<Resolved | null> {
    const { type, id } = reserved
    if (type === 'taken') {
      const whose =
        id === request.id ? 'the session has another key' : 'it belongs to another session'
      throw new HoldfastError('key_taken', `the key cannot be used: ${whose}`, { session: id })
    }
    if (type === 'closed' && reserved.state === 'erased') throw erasedError(id)
    if (type === 'closed') throw closedError(await this.view(id))
    try {
      return { live: await this.open(id), isNew: false }
    } catch (error) {
      const closed = error instanceof HoldfastError && error.code === 'session_closed'
      if (closed && request.id === null) return null
      throw error
    }
  }

  /** Remembers that a session is on its way, so that nobody else in this process claims it too. */
  async #arrive(id: string, coming: Promise<LiveSession | null>): Promise<LiveSession | null> {
    this.#arriving.set(id, coming)
    try {
      return await coming
    } finally {
      if (this.#arriving.get(id) === coming) this.#arriving.delete(id)
    }
  }

  /**
   * The open session, loaded if it is not held. Throws if it is unknown, closed, or another
   * node's.
   */
  async open(id: string): Promise<LiveSession> {
    for (;;) {
      this.#lease.assertHeld()
      const live = this.#ready(id)
      if (live !== null) return live
      const arriving = this.#arriving.get(id)
      // I2: nothing may be awaited from here until the load is known to those who ask meanwhile.
      if (arriving === undefined) break
      await arriving
    }
    const live = await this.#arrive(id, this.#load(id))
    if (live === null) throw closedError(await this.view(id))
    return live
  }

  async #load(id: string): Promise<LiveSession | null> {
    const claim = claimed(id, this.#losses.judge(id, await this.store.claim(id, this.node)))
    const { epoch, takenOver = false } = claim
    if (epoch === null) return null
    try {
      this.#failures.assertMayLoad(id)
      const loaded = await loadSession(this, claim)
      const said = await saidBefore(this, loaded.session)
      const live = this.#hold({ ...loaded, epoch, said })
      this.counters.sessionsLoaded += 1
      if (takenOver) this.#tellTakenOver(id)
      await live.recover(this.#losses.reasonOf(id, takenOver, this.#lease.ends))
      return live.session.closed === null ? live : null
    } catch (thrown) {
      throw await this.#giveUp(id, epoch, thrown)
    }
  }

  /**
   * A session that cannot be loaded is not held, and not owned: another node may know how to read
   * it. What the store or the lease has failed at is no reason for that.
   */
  async #giveUp(id: string, epoch: number, thrown: unknown): Promise<unknown> {
    if (!isUnreadable(thrown)) return thrown
    const error = this.#failures.note(id, thrown)
    this.#losses.forget(id)
    const live = this.#held.get(id)
    if (live !== null) {
      this.#held.remove(live)
      live.release(error)
    }
    // A store that cannot be told now has this node as the owner until its lease ends.
    await this.store.release(id, epoch).catch(() => undefined)
    return error
  }

  #tellTakenOver(session: string): void {
    this.counters.sessionsTakenOver += 1
    const message = 'a session was taken over from a node whose lease has ended'
    this.diagnose('session_taken_over', message, { session, node: this.node })
  }

  /** The session's state, open or closed. */
  async view(id: string): Promise<Session> {
    const held = this.#held.get(id)
    if (held !== null) {
      // A process that was frozen past its lease may not know yet that another node has gone on.
      this.#lease.assertHeld()
      return held.session
    }
    const { row } = await this.store.read(id, 0, 0)
    if (readableRow(row, id).state === 'open') {
      const live = await this.open(id).catch(nullIfClosed)
      if (live !== null) return live.session
    }
    this.#failures.assertMayLoad(id)
    const claim = claimed(id, await this.store.claim(id, this.node))
    try {
      return (await loadSession(this, claim)).session
    } catch (thrown) {
      throw isUnreadable(thrown) ? this.#failures.note(id, thrown) : thrown
    }
  }

  /** What waits in a session: the requests that are not in its log too, where it is held. */
  queueOf({ id, queued }: Session): readonly QueueRow[] {
    const rows = this.#held.get(id)?.queue.rows(queued)
    return rows ?? queued.map((turn, index) => queuedRow(turn, index + 1))
  }

  /** Closes a session, once; closing it again changes nothing. */
  async close(id: string, reason: string, by: Principal | null): Promise<Session> {
    const session = await this.view(id)
    if (session.closed === null) await this.#closeOpen(id, { type: 'close', reason, by })
    return this.view(id)
  }

  async #closeOpen(id: string, close: Command & { type: 'close' }): Promise<void> {
    try {
      const live = await this.open(id)
      await live.post(close)
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'session_closed') throw error
    }
  }

  /** From now on no turn starts. Resolves when those that run have ended, or after `ms`. */
  async drain(ms: number): Promise<void> {
    if (!this.#draining) this.#tellDraining(ms)
    this.#draining = true
    const error = new HoldfastError('draining', 'the server is about to stop')
    for (const { queue } of this.#held.all) queue.refuseWaiting(error)
    await this.settle(ms)
  }

  /** Resolves when no turn of the held sessions moves any more, or after `ms`. */
  async settle(ms: number): Promise<void> {
    const until = this.clock.monotonic() + ms
    // A turn that was admitted a moment ago may not be in the log yet: it is waited for too.
    while (this.#held.all.some(({ inMotion }) => inMotion)) {
      if (this.clock.monotonic() >= until) return
      await new Promise<void>((resolve) => this.clock.after(DRAIN_LOOK_MS, resolve))
    }
  }

  #tellDraining(ms: number): void {
    const running = this.#held.all.filter(({ inMotion }) => inMotion).length
    this.diagnose('draining', 'no turn starts any more', { drainMs: ms, running })
  }

  /** Records what still runs as interrupted, lets go of everything, and gives the lease back. */
  async stop(): Promise<void> {
    this.#draining = true
    this.#sweeper.stop()
    this.changes.close()
    const pending = this.#held.all.filter(({ session }) => isPending(session))
    await Promise.all(pending.map((live) => this.#interrupt(live)))
    // Unlike a refusal, this may reach callers of admitted turns: no node may forward it by itself.
    this.#releaseAll(new HoldfastError('draining', 'the server has stopped', { stopped: true }))
    await this.#runners.close(this)
    await this.#lease.stop()
    this.diagnose('closed', 'Holdfast is closed', { node: this.node })
  }

  /** If it cannot be recorded, the next owner does it. */
  async #interrupt(live: LiveSession): Promise<void> {
    try {
      await live.interrupt('shutdown')
    } catch (error) {
      this.#tellLost(live.id, asHoldfastError(error))
    }
  }

  attachmentEnded(attachment: string, reason: string): void {
    this.#tellListeners(attachment, ({ ended }) => ended(attachment, reason))
  }

  attachmentLost(attachment: string, why: HoldfastError): void {
    this.#tellListeners(attachment, ({ lost }) => lost(attachment, why))
  }

  #tellListeners(attachment: string, tell: (listener: AttachmentListener) => void): void {
    for (const listener of this.attachmentListeners) {
      try {
        tell(listener)
      } catch (error) {
        // The event is durable: what it means to one listener must not undo what follows.
        const facts = { attachment, error: messageOf(error) }
        this.diagnose('listener_failed', 'a listener for attachments failed', facts)
      }
    }
  }

  released(live: LiveSession, why: HoldfastError): void {
    this.#runners.released(live.session, why)
    // Eviction removes the session first, so only an unexpected release gets past this line.
    if (!this.#held.remove(live) || live.session.closed !== null || this.#draining) return
    this.counters.sessionsLost += 1
    if (live.session.running !== null) this.#losses.add(live.id)
    this.#tellLost(live.id, why)
    this.#sweeper.pickUp(live.id)
  }

  /** With the lease all of them are lost, which is told as one. */
  #tellLost(session: string, { code, message }: HoldfastError): void {
    if (code === 'lease_lost') return
    const facts = { reason: code, session, error: message }
    this.diagnose('session_lost', 'a session was let go and is loaded again', facts)
  }

  #hold(state: LoadedState): LiveSession {
    // The lease may have ended, or been given up, while the store was asked.
    this.#lease.assertHeld()
    const live = new LiveSession(this, state)
    this.#held.add(live)
    this.trim(EVICTION_LOOKS)
    return live
  }

  /** The held session, unless it is being loaded: requests of that time keep their order (I3). */
  #ready(id: string): LiveSession | null {
    return this.#arriving.has(id) ? null : this.#held.use(id)
  }

  /** Evicts idle sessions beyond the limit, the longest unused first. */
  trim(looks = Number.POSITIVE_INFINITY): void {
    for (const live of this.#held.evict(looks)) {
      this.counters.sessionsEvicted += 1
      live.release(new HoldfastError('not_owner', `session ${live.id} was let go: ask again`))
    }
  }

  #releaseAll(error: HoldfastError): void {
    this.#runners.releasedAll(error)
    for (const live of this.#held.all) live.release(error)
  }
}

/** For whom a session that was closed meanwhile is an answer, not a failure. */
function nullIfClosed(error: unknown): null {
  if (error instanceof HoldfastError && error.code === 'session_closed') return null
  throw error
}
