/**
 * A session in the memory of its owner: its queue, its running turn, its asks and its followers.
 * The ledger decides and records; this does what the recorded events say.
 *
 * I2, I3: only the queue starts turns, in the order of arrival. I8: an ask's promise settles with
 * its `ask.settled`, or when the session is released. I9: `session.closed` settles all there is,
 * and releases the session.
 */
import { outcomeForAgent } from './rules.ts'
import { Alarms } from './alarms.ts'
import type { Answerers } from './answerers.ts'
import { outcomeOf } from './asks.ts'
import type { Command } from './commands.ts'
import { closedError } from './closing.ts'
import type { GroupCommit } from './commits.ts'
import type { CoreContext } from './context.ts'
import { asHoldfastError, HoldfastError, messageOf } from './errors.ts'
import { unreadable, type EventOf, type SessionEvent } from './events.ts'
import { countEnd, type EndType } from './figures.ts'
import type { FeedItem, Position } from './feed-item.ts'
import { Feed, type FollowerOptions, type StopSignal } from './feed.ts'
import { LooseBlobs } from './loose-blobs.ts'
import { Ledger, movedOn, type LedgerSession } from './ledger.ts'
import { reasonOf } from './links.ts'
import { notKnownToBeTaken, wasSteered } from './history.ts'
import { OpenTurns, readTurn, type TurnRecord } from './turn-record.ts'
import type { SessionReaders } from './overview.ts'
import type { Principal, AskOutcome, Connected, Input, Session, Settings } from './state.ts'
import { askOf, type Question } from './questions.ts'
import { Queue, type SteeringMessage } from './queue.ts'
import { admittedKeys, RequestKeys } from './request-keys.ts'
import type { Runner, RunnerSession } from './runner.ts'
import type { RunnerTable } from './runner-table.ts'
import { Run, turnError, type GiveUp, type RunHost } from './runs.ts'
import { assertTakes } from './parts.ts'
import { assertHonoured, usageIn } from './settings.ts'
import { isTerminal, turnSeq } from './turns.ts'
import { Watchers, type Watcher } from './watchers.ts'

/** The authority, as a loaded session sees it. */
export interface SessionHolder extends CoreContext {
  readonly commits: GroupCommit
  readonly answerers: Answerers
  /** No turn starts any more: the node is about to stop. */
  readonly draining: boolean
  readonly runners: RunnerTable
  runner(agent: string): Runner | null
  attachmentEnded(attachment: string, reason: string): void
  /** The session was released, and its next owner counts this client's connection as lost. */
  attachmentLost(attachment: string, why: HoldfastError): void
  /** The session is closed, or this node may no longer append to it. */
  released(session: LiveSession, why: HoldfastError): void
}

/** What a session is loaded from. */
export type LoadedState = {
  readonly session: Session
  readonly epoch: number
  readonly snapshotSeq: number
  /** What the turn that ran under the last owner had said since its last message. */
  readonly said?: string | null
}

function isEnd(event: SessionEvent): event is EventOf<EndType> {
  return isTerminal(event)
}

export class LiveSession implements LedgerSession, RunHost {
  readonly id: string
  readonly queue: Queue
  readonly holder: SessionHolder
  readonly requestKeys: RequestKeys
  readonly watchers: Watchers
  readonly looseBlobs: LooseBlobs
  /** A request besides the one that created it has learnt its id, by its key. */
  wasFound = false
  readonly #ledger: Ledger
  readonly #feed: Feed
  readonly #alarms: Alarms
  #run: Run | null = null
  #saidBefore: string | null
  /** Why the session was released, once it is. */
  #released: HoldfastError | null = null
  readonly #turns = new OpenTurns((turn) => this.readTurn(turn))
  readonly #asking = new Map<string, (outcome: AskOutcome) => void>()
  /** Messages of which it is not known whether the agent takes them. */
  readonly #steers = new Set<GiveUp>()
  readonly #connected: Connected[] = []
  #confirmed: Promise<unknown> = Promise.resolve()

  constructor(holder: SessionHolder, state: LoadedState) {
    const { session, said = null } = state
    this.id = session.id
    this.holder = holder
    this.#saidBefore = said
    this.watchers = new Watchers(this.id, holder.limits)
    this.requestKeys = new RequestKeys(this.id, holder, session.seq === 1)
    this.looseBlobs = new LooseBlobs(this)
    this.queue = new Queue(this, session)
    this.#feed = new Feed(this.id, session.seq, holder)
    this.#alarms = new Alarms(holder.clock, this)
    this.#ledger = new Ledger(this, this.queue, state, holder)
  }

  /** The session as its log has it. */
  get session(): Session {
    return this.#ledger.session
  }

  /** A turn runs, or is about to. */
  get isRunning(): boolean {
    return this.session.running !== null || this.#ledger.ahead.running !== null
  }

  /** A turn runs, or what was decided is not known to be durable yet. */
  get inMotion(): boolean {
    return this.session.running !== null || !this.#ledger.idle
  }

  /** Nothing happens in it and no client is there. */
  get idle(): boolean {
    if (this.isRunning || this.queue.length > 0 || !this.#ledger.idle) return false
    if (this.requestKeys.isEntering || this.watchers.count > 0) return false
    return this.session.attachments.length === 0 && this.#feed.followers === 0
  }

  /** Nothing has happened in it since it was created, and nothing is about to. */
  get isUnused(): boolean {
    const isEntered = this.wasFound || this.queue.length > 0 || this.requestKeys.isEntering
    return this.#ledger.ahead.seq === 1 && !isEntered && this.watchers.count === 0
  }

  /** Throws if the session was released. */
  assertHeld(): void {
    if (this.#released !== null) throw this.#released
  }

  /** The outcome of every append is known, so that no event can name what is removed now. */
  get isSettled(): boolean {
    return this.#released === null || this.session.closed !== null
  }

  async dropBlobs(digests: readonly string[]): Promise<void> {
    const { store, usage } = this.holder
    usage.stored(this.session, -(await store.dropBlobs(this.id, this.#ledger.epoch, digests)))
  }

  readonly post = (command: Command | (() => Command)): Promise<readonly SessionEvent[]> =>
    this.#ledger.post(command)

  pump(): void {
    this.#ledger.pump()
  }

  /** The time by the log: that of its next event. */
  readonly now = (): number => this.#ledger.now()

  said(): string | null {
    return this.#run?.said ?? this.#saidBefore
  }

  readonly hasFollower = (kind: string): boolean => this.holder.answerers.counts(this.session, kind)

  /** Whether an ask waits that must not wait without a client to ask. */
  get needsAnswerers(): boolean {
    return this.session.asks.some(({ onNobody }) => onNobody === 'deny')
  }

  /** Some follower of all asks does not count any more. */
  answererLeft(): void {
    this.#alarms.stepped(this.session)
  }

  /** Admits a watcher; in order with what happens to the link that it comes in by. */
  watch(watcher: Watcher): Promise<unknown> {
    const { id, link, use, by } = watcher
    const enter = (): Command => {
      const leaver = this.watchers.add(watcher)
      if (leaver !== null) this.holder.attachmentEnded(leaver.id, 'crowded_out')
      return { type: 'watch', link, use, by }
    }
    return this.post(enter).catch((refusal: unknown) => {
      this.watchers.remove(id)
      throw refusal
    })
  }

  /** This client has its token. All confirmations during one append are recorded as one event. */
  confirm(client: Connected): Promise<unknown> {
    this.#connected.push(client)
    if (this.#connected.length > 1) return this.#confirmed
    const confirm = (): Command => ({ type: 'confirm', clients: this.#connected.splice(0) })
    this.#confirmed = this.post(confirm)
    return this.#confirmed
  }

  /** Ends what the last owner left behind and sets its timers again. */
  async recover(reason: string): Promise<void> {
    this.#alarms.restore(this.session)
    const events = await this.interrupt(reason).catch((thrown: unknown) => {
      // The ledger makes a HoldfastError of what the store throws: this is a log that cannot be.
      throw thrown instanceof HoldfastError ? thrown : unreadable(this.id, messageOf(thrown))
    })
    this.#saidBefore = null
    this.#reportRecovered(events)
  }

  #reportRecovered(events: readonly SessionEvent[]): void {
    const interrupted = events.find((event) => event.type === 'turn.interrupted')?.turn ?? null
    const { length: queued } = this.session.queued
    if (interrupted === null && queued === 0) return
    const asksWithdrawn = events.filter(({ type }) => type === 'ask.settled').length
    const facts = { session: this.id, interrupted, asksWithdrawn, queued }
    this.holder.diagnose('session_recovered', 'a session that had work to do was loaded', facts)
  }

  /** Records what runs as interrupted, with what it has said. */
  interrupt(reason: string): Promise<readonly SessionEvent[]> {
    const { answerGraceMs } = this.holder.limits
    return this.post({ type: 'recover', reason, answerGraceMs })
  }

  follow(
    from: Position,
    signal?: StopSignal,
    options?: FollowerOptions,
  ): AsyncGenerator<readonly FeedItem[]> {
    return this.#feed.follow(from, signal, options)
  }

  get readers(): SessionReaders {
    const { count } = this.watchers
    return { cursorOf: (attachment) => this.#feed.cursorOf(attachment), watchers: count }
  }

  /** The turn when it is over. */
  async finished(turn: string): Promise<TurnRecord> {
    const { running, queued } = this.session
    if (running?.id === turn || queued.some(({ id }) => id === turn)) {
      this.assertHeld()
      return this.#turns.wait(turn)
    }
    const record = await this.readTurn(turn)
    if (record.endedAt !== null) return record
    // Only another node can have admitted a turn that is not in this log: it owns the session (I5).
    if ((turnSeq(turn) ?? 0) > this.#ledger.ahead.seq) this.release(movedOn(this.id))
    this.assertHeld()
    return this.finished(turn)
  }

  readTurn(turn: string): Promise<TurnRecord> {
    return readTurn(this.holder, this.id, turn)
  }

  /** Cancels a turn that waits, or stops the one that runs; returns it when it is over. */
  async cancel(turn: string, reason: string, by: Principal | null): Promise<TurnRecord> {
    await this.post({ type: 'cancel', turn, reason, by })
    if (this.#run?.turn.id === turn) this.#run.cancel(reason, by)
    return this.finished(turn)
  }

  /** Gives the session up without a trace in the log. */
  release(error: HoldfastError): void {
    this.#ledger.lose(error)
  }

  act(event: SessionEvent, json: string): void {
    this.holder.counters.events += 1
    this.holder.usage.appended(this.session, json)
    if ('turn' in event) this.#turns.follow(event)
    if ('keys' in event) this.requestKeys.add(admittedKeys(event))
    this.#alarms.follow(event)
    this.#feed.publish(event, json)
    switch (event.type) {
      case 'turn.started':
        return this.#startRun(event)
      case 'session.configured':
        return this.#tellRunner('configure', (runner, session) => {
          runner.configure?.(session, event.settings)
        })
      case 'session.ungranted':
        return this.#tellRunner('revoke', (runner, session) => runner.revoke?.(session))
      case 'ask.opened':
        this.holder.counters.asksOpened += 1
        if (event.onNobody === 'deny') this.holder.answerers.look()
        return
      case 'ask.settled':
        return this.#settleAsk(event)
      case 'turn.activity':
        return this.#countUsage(event)
      case 'attachment.ended':
        return this.holder.attachmentEnded(event.attachment, event.reason)
      case 'link.revoked':
        return this.#unlinked(event)
      default:
        if (isEnd(event)) this.#endTurn(event)
    }
  }

  settled(): void {
    if (this.session.closed === null) {
      this.#alarms.stepped(this.session)
      return this.queue.interruptIfDue()
    }
    this.holder.counters.sessionsClosed += 1
    this.holder.usage.closed(this.session)
    this.#feed.end()
    this.#ledger.lose(closedError(this.session))
  }

  lost(error: HoldfastError): void {
    this.#released = error
    this.#endRun(error)
    for (const giveUp of this.#steers) giveUp(error)
    this.#alarms.clear()
    this.watchers.clear()
    this.queue.lose(error)
    this.#turns.fail(error)
    for (const settle of this.#asking.values()) settle({ outcome: 'withdrawn' })
    this.#asking.clear()
    this.#feed.end(error)
    this.holder.released(this, error)
    // Streams that wait for a slow store or a slow reader would notice too late.
    for (const { id } of this.session.attachments) this.holder.attachmentLost(id, error)
  }

  /** Whether the running turn may take another message. */
  get canSteer(): boolean {
    return this.#run?.runner?.steer !== undefined
  }

  /**
   * Gives the running turn another message; returns the turn, and whether it has taken it. Throws
   * `turn_over` if that cannot be known: then something may have happened.
   */
  async steer(message: SteeringMessage): Promise<{ turn: string; isTaken: boolean }> {
    const run = this.#run
    if (run === null) throw new HoldfastError('turn_over', 'no turn runs')
    const { input, by } = message
    const turn = run.turn.id
    const [event] = await this.post({ type: 'steer', turn, ...message })
    try {
      const isTaken = await run.steer(input, this.#steers)
      const steering = event?.seq ?? 0
      if (isTaken) await this.post({ type: 'steered', turn, steering, input, by })
      return { turn, isTaken }
    } catch (error) {
      throw notKnownToBeTaken(turn, messageOf(error))
    }
  }

  /** Whether the request with this key was a message for a turn that ran already. */
  wasSteered(turn: string, key: string): Promise<boolean> {
    return wasSteered(this.holder, this.id, { turn, key })
  }

  assertHonoured(settings: Settings): void {
    const { agent } = this.session
    assertHonoured(agent, this.holder.runner(agent), settings)
  }

  assertTakes(input: Input): void {
    const { agent } = this.session
    assertTakes(agent, this.holder.runner(agent), input)
  }

  #countUsage(event: EventOf<'turn.activity'>): void {
    const used = usageIn(event)
    if (used === null) return
    this.holder.figures.agent(this.session.agent).use(used)
    this.queue.use(event.turn, used)
  }

  /** A runner that fails here gets the settings, and the grants, with the next turn. */
  #tellRunner(reason: string, tell: (runner: Runner, session: RunnerSession) => void): void {
    const { id, agent, backend } = this.session
    const runner = this.holder.runner(agent)
    try {
      if (runner !== null) tell(runner, { id, backend })
    } catch (error) {
      const facts = { reason, session: id, error: messageOf(error) }
      this.holder.diagnose('runner_failed', 'a runner failed to apply a change', facts)
    }
  }

  #startRun({ turn, at }: EventOf<'turn.started'>): void {
    this.holder.counters.turnsStarted += 1
    const { running, agent } = this.session
    // Started and over in the same step: there is nothing to run.
    if (running?.id !== turn) return
    this.holder.figures.queueWait.observeMs(at - (running.queuedAt ?? at))
    const { runners } = this.holder
    this.#run = new Run(this, running, runners.take(agent))
    this.#run.start(runners.handingOver(this.session))
  }

  #endRun(why?: HoldfastError): void {
    if (this.#run === null) return
    this.#run.abandon(why)
    this.holder.runners.giveBack(this.#run.runner)
    this.#run = null
  }

  #endTurn({ turn, type }: EventOf<EndType>): void {
    const run = this.#run?.turn.id === turn ? this.#run : null
    countEnd(this.holder, type, run && { agent: this.session.agent, startedAt: run.startedAt })
    this.queue.removeTurn(turn)
    if (run !== null) this.#endRun()
    this.#turns.end(turn)
  }

  /** Ends this turn if it runs; false: it does not. */
  failTurn(turn: string, error: HoldfastError): boolean {
    return this.#run?.turn.id === turn && this.#run.fail(error)
  }

  /** Output of the running turn, live only. */
  delta(turn: string, text: string): void {
    this.#feed.delta(turn, text)
  }

  /** Records the end of a run. If that is refused, the turn fails without its reply. */
  finish(command: Command & { type: 'finish' }): void {
    const { turn } = command
    this.post(command).catch((refusal: unknown) => {
      this.holder.counters.outputsLate += 1
      if (this.#released !== null || this.session.running?.id !== turn) return
      const end = { state: 'failed', error: turnError(refusal), reply: null } as const
      // If that cannot be recorded either, the session is released and loaded anew.
      this.post({ type: 'finish', turn, end }).catch((error: unknown) => {
        if (this.session.running?.id === turn) this.release(asHoldfastError(error))
      })
    })
  }

  /** Asks the session's clients for the running turn; always settles. */
  async ask(turn: string, question: Question): Promise<AskOutcome> {
    const { agent, grants, running } = this.session
    const by = { agent, grants, principal: running?.by ?? null }
    const { ask, ruling } = this.holder.rules.apply(this.#askOf(turn, question), by)
    if (ruling === null && ask.onNobody === 'deny')
      await this.holder.answerers.find(this.session, ask.kind)
    const { clock, figures } = this.holder
    const askedAt = clock.monotonic()
    return new Promise((answered, reject) => {
      const resolve = (outcome: AskOutcome): void => {
        figures.ask(outcome.outcome).observeMs(clock.monotonic() - askedAt)
        answered(outcomeForAgent(outcome, ask.options))
      }
      const opened = (events: readonly SessionEvent[]): void => {
        // It may be settled in the step that opens it, by the same command or by a later one.
        const settled = events.find((event) => event.type === 'ask.settled')
        if (settled !== undefined) return resolve(outcomeOf(settled))
        const [event] = events
        if (event?.type !== 'ask.opened') return
        this.#asking.set(event.ask, resolve)
        if (question.signal !== undefined) this.#withdrawOnAbort(event, question.signal)
      }
      this.#ledger.send({ type: 'ask', ask, ruling }, opened, reject)
    })
  }

  /** A runner may treat an ask that cannot be made as one that was denied: it is reported too. */
  #askOf(turn: string, question: Question) {
    try {
      return askOf(question, { turn, at: this.now(), limits: this.holder.limits })
    } catch (error) {
      const facts = { reason: 'ask', session: this.id, turn, error: messageOf(error) }
      this.holder.diagnose('runner_failed', 'an agent asked what cannot be asked', facts)
      throw error
    }
  }

  #withdrawOnAbort({ turn, ask }: EventOf<'ask.opened'>, signal: AbortSignal): void {
    const withdraw = (): void => {
      // If the hold is lost, so is the ask.
      this.post({ type: 'withdraw', turn, ask }).catch(() => undefined)
    }
    if (signal.aborted) withdraw()
    else signal.addEventListener('abort', withdraw, { once: true })
  }

  #settleAsk(event: EventOf<'ask.settled'>): void {
    const { ask, outcome } = event
    this.holder.counters.asksSettled += 1
    if (outcome === 'timed_out' || outcome === 'nobody_to_ask') {
      const facts = { reason: outcome, session: this.id, ask }
      this.holder.diagnose('ask_unanswered', 'an ask was settled without an answer', facts)
    }
    this.#asking.get(ask)?.(outcomeOf(event))
    this.#asking.delete(ask)
  }

  /** The watchers that came in by a link end with it, as its attachments do. */
  #unlinked({ link, reason }: EventOf<'link.revoked'>): void {
    for (const { id } of this.watchers.removeBy(link)) {
      this.holder.attachmentEnded(id, reasonOf(reason))
    }
  }
}
