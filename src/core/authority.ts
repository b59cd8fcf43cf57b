/**
 * The authority: the sessions of this node. It finds, creates, loads and releases them; each loaded
 * session then runs the main path for itself (`ledger.ts`).
 *
 * I5: a node writes only while it can prove its lease. Memory is bounded: idle sessions are evicted
 * and loaded again when needed.
 */
import { Answerers } from './answerers.ts'
import { AttachmentListeners } from './attachment-listeners.ts'
import { checkBudgetOptions, type BudgetOptions } from './budgets.ts'
import type { Clock, Digest, Entropy } from './clock.ts'
import { closedError, isClosedError } from './closing.ts'
import { ChangeFeed, GroupCommit } from './commits.ts'
import { diagnoseToAll, type DiagnosticListener, type Facts } from './diagnostics.ts'
import { Counters, Figures, type Load } from './figures.ts'
import { asHoldfastError, HoldfastError, invalid } from './errors.ts'
import { HeldSessions, Resolver, type Resolved } from './held-sessions.ts'
import { readableRow } from './history.ts'
import { Lease } from './lease.ts'
import { coreLimits, type Limits } from './limits.ts'
import { checkQuotaOptions, type QuotaOptions } from './quotas.ts'
import { checkRetention, type RetentionRule, type SessionArchive } from './retention.ts'
import { checkRules, Rules, type Rule } from './rules.ts'
import { LiveSession, type LoadedState, type SessionHolder } from './live.ts'
import { isUnreadable, SessionLoader } from './loading.ts'
import type { Principal, Session } from './state.ts'
import { NO_READERS, type SessionReaders } from './overview.ts'
import { queuedRow, type QueueRow } from './queued-request.ts'
import { Sweeper } from './recovery.ts'
import type { ResolveRequest } from './requests.ts'
import type { ErasedSession, Runner } from './runner.ts'
import { assertAgent, RunnerTable } from './runner-table.ts'
import { isPending } from './session.ts'
import { SharedCounts } from './shared-counts.ts'
import type { Store } from './store.ts'
import { TurnClients } from './turn-clients.ts'
import { ClientTools } from './client-tools.ts'
import { Usage } from './usage.ts'

export type AuthorityOptions = {
  readonly store: Store
  readonly runners: Readonly<Record<string, Runner>>
  readonly clock: Clock
  readonly entropy: Entropy
  readonly digest: Digest
  /** This node's name: a new one for every start. */
  readonly node: string
  readonly limits?: Partial<Limits>
  /** How much principals may use; without it, callers have the limits of their `access` only. */
  readonly quotas?: QuotaOptions
  /** How much principals may use in a day; likewise. */
  readonly budgets?: BudgetOptions
  /** What is decided before people are asked. */
  readonly rules?: readonly Rule[]
  /** The agent of sessions that do not name one; without it the first of `runners`. */
  readonly defaultAgent?: string | undefined
  /** Which closed sessions are kept, and for how long. */
  readonly retention?: readonly RetentionRule[]
  /** Takes what retention erases. */
  readonly archive?: SessionArchive | null
  /** Called with every diagnostic (`DIAGNOSTICS`). */
  readonly onDiagnostic?: DiagnosticListener
  /** Facts for the diagnostic of a start: version, store and the like. */
  readonly about?: Facts
}

/** What can be changed while it runs. What is left out is as if it were never set. */
export type Reconfiguration = Pick<
  AuthorityOptions,
  'runners' | 'defaultAgent' | 'limits' | 'quotas' | 'budgets' | 'rules'
>

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
  readonly figures = new Figures()
  readonly diagnosticListeners = new Set<DiagnosticListener>()
  readonly diagnose = diagnoseToAll(this.diagnosticListeners)
  readonly about: Facts
  readonly attachmentListeners: AttachmentListeners
  /** Shared with the other nodes. */
  readonly counts: SharedCounts
  readonly usage: Usage
  readonly turnClients = new TurnClients()
  readonly clientTools = new ClientTools()
  readonly rules: Rules
  readonly retention: readonly RetentionRule[]
  readonly archive: SessionArchive | null
  readonly answerers: Answerers
  /** Prefixes of keys that only the door which added them may use. */
  readonly reservedKeys = new Set<string>()
  readonly runners: RunnerTable
  #defaultAgent: string
  readonly #lease: Lease
  readonly #sweeper: Sweeper
  readonly #held: HeldSessions
  readonly #resolver: Resolver
  readonly #loader: SessionLoader
  /** No turn starts any more. */
  draining = false

  constructor(options: AuthorityOptions) {
    this.store = options.store
    this.clock = options.clock
    this.entropy = options.entropy
    this.digest = options.digest
    this.node = options.node
    if (options.onDiagnostic !== undefined) this.diagnosticListeners.add(options.onDiagnostic)
    this.about = { node: options.node, ...options.about }
    this.limits = coreLimits(options.limits ?? {})
    this.counts = new SharedCounts(this)
    this.usage = new Usage(this, options.quotas, options.budgets)
    this.rules = new Rules(options.rules ?? [], options.digest)
    this.retention = checkRetention(options.retention ?? [])
    this.archive = options.archive ?? null
    this.answerers = new Answerers(this)
    this.attachmentListeners = new AttachmentListeners(this.diagnose)
    this.#held = new HeldSessions(this)
    this.runners = new RunnerTable(options.runners, this.diagnose)
    this.#defaultAgent = defaultAgentOf(options)
    this.#lease = new Lease(this, (error) => this.#releaseAll(error))
    this.commits = new GroupCommit(this, () => this.#lease.held)
    this.#sweeper = new Sweeper(this)
    this.#loader = new SessionLoader(this, this.node)
    this.#resolver = new Resolver(this, this.#held)
  }

  /** How many sessions are held in memory. */
  get heldCount(): number {
    return this.#held.size
  }

  /** What the held sessions do now. */
  get load(): Load {
    return this.#held.load()
  }

  /** Null where a lease never ends. */
  get lease(): Pick<Lease, 'ageMs' | 'leftMs'> | null {
    return this.#lease.ends ? this.#lease : null
  }

  /** Throws if this node may not act as an owner any more (I5). */
  assertLease(): void {
    this.#lease.assertHeld()
  }

  readonly heldSession = (id: string): Session | null => this.#held.get(id)?.session ?? null

  /** A turn is ended that may not run any longer. */
  readonly endTurn = (session: string, turn: string, error: HoldfastError): void => {
    if (this.#held.get(session)?.failTurn(turn, error) === true) this.counters.budgetEnds += 1
  }

  readonly needsAnswerers = (): boolean =>
    this.#held.all.some(({ needsAnswerers }) => needsAnswerers)

  readonly answererLeft = (): void => {
    for (const live of this.#held.all) live.answererLeft()
  }

  holdsKey(principal: string, key: string): boolean {
    return this.#held.idOfKey(principal, key) !== null
  }

  get agents(): readonly string[] {
    return this.runners.agents
  }

  /** The agent of sessions that do not name one. */
  get defaultAgent(): string {
    return this.#defaultAgent
  }

  runner(agent: string): Runner | null {
    return this.runners.get(agent)
  }

  /**
   * Checks a new configuration, and throws if it cannot be used. The returned function puts it in
   * force: for new turns, new asks and new requests. What has begun goes on as it was.
   */
  prepare(options: Reconfiguration): () => void {
    const { runners, quotas = {}, budgets = {}, rules = [] } = options
    const limits = coreLimits(options.limits ?? {})
    if (limits.leaseMs !== this.limits.leaseMs) {
      throw invalid('limits.leaseMs', 'cannot be changed without a restart')
    }
    checkQuotaOptions(quotas)
    checkBudgetOptions(budgets)
    checkRules(rules)
    const defaultAgent = defaultAgentOf(options)
    return () => {
      // Its parts refer to this object.
      Object.assign(this.limits, limits)
      this.usage.configure(quotas, budgets)
      this.rules.replace(rules)
      this.runners.replace(runners)
      this.#defaultAgent = defaultAgent
    }
  }

  /** Takes the lease, picks up what earlier nodes left unfinished, and starts the sweeper. */
  async start(): Promise<void> {
    await this.#lease.start()
    this.counts.start()
    await this.#sweeper.start()
    this.diagnose('opened', 'Holdfast is open', this.about)
  }

  /** Finds or creates a session; exactly one of all requests for it sees `isNew` (I1). */
  resolve(request: ResolveRequest): Promise<Resolved> {
    return this.#resolver.resolve(request)
  }

  /** Holds a session that was created here. */
  adopt(session: Session, epoch: number): LiveSession {
    this.counters.sessionsCreated += 1
    this.changes.committed()
    return this.#hold({ session, epoch, snapshotSeq: 0 })
  }

  /**
   * The open session, loaded if it is not held. Throws if it is unknown, closed, or another
   * node's.
   */
  async open(id: string): Promise<LiveSession> {
    for (;;) {
      this.assertLease()
      const live = this.#held.use(id)
      if (live !== null) return live
      const arriving = this.#held.arriving(id)
      // I2: nothing may be awaited from here until other requests can see that it is loaded.
      if (arriving === undefined) break
      await arriving
    }
    const live = await this.#held.arrive(id, this.#load(id))
    if (live === null) throw closedError(await this.view(id))
    return live
  }

  /** Null if it is closed. */
  openUnlessClosed(id: string): Promise<LiveSession | null> {
    return this.open(id).catch(nullIfClosed)
  }

  async #load(id: string): Promise<LiveSession | null> {
    const loaded = await this.#loader.load(id)
    if (loaded === null) return null
    try {
      const live = this.#hold(loaded)
      this.counters.sessionsLoaded += 1
      if (loaded.takenOver) this.#reportTakenOver(id)
      await live.recover(this.#loader.reasonOf(loaded, this.#lease.ends))
      return live.session.closed === null ? live : null
    } catch (thrown) {
      const live = this.#held.get(id)
      if (isUnreadable(thrown) && live !== null) {
        this.#held.remove(live)
        live.release(thrown)
      }
      throw await this.#loader.giveUp(id, loaded.epoch, thrown)
    }
  }

  #reportTakenOver(session: string): void {
    this.counters.sessionsTakenOver += 1
    const message = 'a session was taken over from a node whose lease has ended'
    this.diagnose('session_taken_over', message, { session, node: this.node })
  }

  /** The session's state, open or closed. */
  async view(id: string): Promise<Session> {
    const held = this.#held.get(id)
    if (held !== null) {
      // A process that was frozen past its lease may not know yet that another node has gone on.
      this.assertLease()
      return held.session
    }
    const { row } = await this.store.read(id, 0, 0)
    if (readableRow(row, id).state === 'open') {
      const live = await this.openUnlessClosed(id)
      if (live !== null) return live.session
    }
    return this.#loader.readClosed(id)
  }

  /** What waits in a session: the requests that are not in its log too, where it is held. */
  queueOf({ id, queued }: Session): readonly QueueRow[] {
    const rows = this.#held.get(id)?.queue.rows(queued)
    return rows ?? queued.map((turn, index) => queuedRow(turn, index + 1))
  }

  /** How far the readers of a session have come, where it is held. */
  readersOf(id: string): SessionReaders {
    return this.#held.get(id)?.readers ?? NO_READERS
  }

  /** Closes a session, once; closing it again changes nothing. */
  async close(id: string, reason: string, by: Principal | null): Promise<Session> {
    const session = await this.view(id)
    if (session.closed !== null) return session
    const live = await this.openUnlessClosed(id)
    await live?.post({ type: 'close', reason, by }).catch(nullIfClosed)
    return this.view(id)
  }

  /** Removes a session in which nothing has happened since it was created, for a refused turn. */
  async discard(id: string): Promise<void> {
    const live = this.#held.get(id)
    if (live?.isUnused !== true) return
    await live.post(() => {
      if (!live.isUnused) throw new HoldfastError('session_busy', `session ${id} is in use`)
      return { type: 'close', reason: 'refused', by: null }
    })
    await this.erase(id, live.session.agent)
    this.usage.erased(live.session)
  }

  /**
   * Erases a closed session: first what its agent has written, so that a crash in between leaves
   * nothing that is not found again. Returns what could not be removed.
   */
  async erase(id: string, agent: string): Promise<readonly string[]> {
    const hasFiles = this.runner(agent) === null || this.runner(agent)?.erase !== undefined
    const left = hasFiles ? await this.runners.erase(await this.#erased(id, agent)) : []
    await this.store.erase(id)
    return left
  }

  /** One that cannot be read is erased all the same. */
  async #erased(id: string, agent: string): Promise<ErasedSession & Pick<Session, 'agent'>> {
    try {
      return await this.#loader.readClosed(id)
    } catch (thrown) {
      if (!isUnreadable(thrown)) throw thrown
      return { id, agent, backend: null, origin: null }
    }
  }

  /** From now on no turn starts. Resolves when those that run have ended, or after `ms`. */
  async drain(ms: number): Promise<void> {
    if (!this.draining) {
      const facts = { drainMs: ms, running: this.#held.inMotion }
      this.diagnose('draining', 'no turn starts any more', facts)
    }
    this.draining = true
    const error = new HoldfastError('draining', 'the server is about to stop')
    for (const { queue } of this.#held.all) queue.refuseWaiting(error)
    await this.settle(ms)
  }

  /** Resolves when no turn of the held sessions is under way any more, or after `ms`. */
  settle(ms: number): Promise<void> {
    return this.#held.settle(ms)
  }

  /** Records what still runs as interrupted, lets go of everything, and gives the lease back. */
  async stop(): Promise<void> {
    this.draining = true
    this.#sweeper.stop()
    this.counts.stop()
    this.changes.close()
    this.answerers.close()
    const pending = this.#held.all.filter(({ session }) => isPending(session))
    await Promise.all(pending.map((live) => this.#interrupt(live)))
    await this.usage.spendings.stop()
    // Unlike a refusal, this may reach callers of admitted turns: no node may forward it by itself.
    const stopped = new HoldfastError('draining', 'the server has stopped', { stopped: true })
    this.#releaseAll(stopped)
    await this.runners.close(this)
    await this.#lease.stop()
    // A client that was lost meanwhile made its session load again; without the lease none can.
    this.#releaseAll(stopped)
    this.diagnose('closed', 'Holdfast is closed', { node: this.node })
  }

  /** If it cannot be recorded, the next owner does it. */
  async #interrupt(live: LiveSession): Promise<void> {
    try {
      await live.interrupt('shutdown')
    } catch (error) {
      this.#reportLost(live.id, asHoldfastError(error))
    }
  }

  attachmentEnded(attachment: string, reason: string): void {
    this.attachmentListeners.tell(attachment, ({ ended }) => ended(attachment, reason))
  }

  attachmentLost(attachment: string, why: HoldfastError): void {
    this.attachmentListeners.tell(attachment, ({ lost }) => lost(attachment, why))
  }

  released(live: LiveSession, why: HoldfastError): void {
    this.runners.released(live.session, why)
    // Eviction removes the session first, so only an unexpected release gets past this line.
    if (!this.#held.remove(live) || live.session.closed !== null || this.draining) return
    this.counters.sessionsLost += 1
    if (live.session.running !== null) this.#loader.lost(live.id)
    this.#reportLost(live.id, why)
    this.#sweeper.pickUp(live.id)
  }

  /** A lost lease is reported once, not for every session. */
  #reportLost(session: string, { code, message }: HoldfastError): void {
    if (code === 'lease_lost') return
    const facts = { reason: code, session, error: message }
    this.diagnose('session_lost', 'a session was let go and is loaded again', facts)
  }

  #hold(state: LoadedState): LiveSession {
    // The lease may have ended, or been given up, while the store was asked.
    this.assertLease()
    const live = new LiveSession(this, state)
    this.#held.add(live)
    this.trim(EVICTION_LOOKS)
    return live
  }

  /** Evicts idle sessions beyond the limit, the longest unused first. */
  trim(looks = Number.POSITIVE_INFINITY): void {
    for (const live of this.#held.evict(looks)) {
      this.counters.sessionsEvicted += 1
      live.release(new HoldfastError('not_owner', `session ${live.id} was let go: ask again`))
    }
  }

  #releaseAll(error: HoldfastError): void {
    this.runners.releasedAll(error)
    for (const live of this.#held.all) live.release(error)
  }
}

function defaultAgentOf({ runners, defaultAgent }: Reconfiguration): string {
  const agents = Object.keys(runners)
  const agent = defaultAgent ?? agents[0] ?? ''
  assertAgent(agent, agents)
  return agent
}

/** For a caller to which a session that was closed meanwhile is an answer, not a failure. */
function nullIfClosed(error: unknown): null {
  if (isClosedError(error)) return null
  throw error
}
