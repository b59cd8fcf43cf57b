/**
 * A session as its owner holds it: its lane, its running turn, its asks and its followers. The
 * ledger decides and records; this does what the recorded events say.
 *
 * I2, I3: only `decideMore` starts turns, first come, first run. I8: an ask's promise settles with
 * its `ask.settled`, or with the hold. I9: `session.closed` settles all there is, and the hold
 * ends.
 */
import { askOf, outcomeOf, unanswerableAt, type AskOutcome, type Question } from './asks.ts'
import type { Connected } from './attachments.ts'
import { Alarms } from './alarms.ts'
import { asHoldfastError, HoldfastError, messageOf } from './errors.ts'
import { unreadable } from './event-table.ts'
import { Feed, type StopSignal } from './feed.ts'
import type { FeedItem, Position } from './feed-item.ts'
import type { Holder } from './holder.ts'
import { readTurn, turnUnknown } from './history.ts'
import { reasonOf } from './links.ts'
import {
  combine,
  Lane,
  type LaneEntry,
  type Member,
  type QueuedEntry,
  type QueueRow,
} from './lanes.ts'
import { Ledger, type Batch, type LedgerOwner } from './ledger.ts'
import type { Principal } from './principal.ts'
import { tellRecovered } from './recovered.ts'
import { admittedKeys, RequestKeys } from './request-keys.ts'
import { Run, turnError, type RunHost } from './runs.ts'
import { closedError, type Command, type Session, type SessionEvent } from './session.ts'
import { inputText, isTerminal, recordTurn, turnOfKeys, type TurnRecord } from './turns.ts'
import { Watchers, type Watcher } from './watchers.ts'

export type { Holder } from './holder.ts'

/** What the alarm is about that settles asks which no client is left to answer. */
const UNANSWERABLE = 'unanswerable'

type Waiter = {
  readonly resolve: (record: TurnRecord) => void
  readonly reject: (error: unknown) => void
}

export class LiveSession implements LedgerOwner, RunHost {
  readonly id: string
  readonly lane = new Lane()
  readonly holder: Holder
  readonly requestKeys: RequestKeys
  readonly watchers: Watchers
  /** What waits in front, and has told the turn that runs to stop. */
  #interruptedBy: LaneEntry | null = null
  readonly #ledger: Ledger
  readonly #feed: Feed
  #run: Run | null = null
  /** Why the hold is over, once it is. */
  #released: HoldfastError | null = null
  /** Turns admitted under this hold and not over. */
  readonly #records = new Map<string, TurnRecord>()
  readonly #waiters = new Map<string, Waiter[]>()
  readonly #asking = new Map<string, (outcome: AskOutcome) => void>()
  readonly #alarms: Alarms
  readonly #connected: Connected[] = []
  #confirmed: Promise<unknown> = Promise.resolve()

  constructor(
    holder: Holder,
    state: { readonly session: Session; readonly epoch: number; readonly snapshotSeq: number },
  ) {
    const { store, commits, clock, limits, digest } = holder
    this.id = state.session.id
    this.holder = holder
    this.watchers = new Watchers(this.id, limits)
    this.requestKeys = new RequestKeys(this.id, holder, state.session.seq === 1)
    this.#feed = new Feed(this.id, state.session.seq, store, limits, clock)
    this.#alarms = new Alarms(clock, (command) => this.post(command))
    this.#ledger = new Ledger(this, state, { commits, clock, limits, digest })
    for (const { id: turn, input, by } of state.session.queued) {
      this.lane.push({ type: 'queued', turn, chars: inputText(input).length, by: by ?? null })
    }
  }

  /** The session as its log has it. */
  get session(): Session {
    return this.#ledger.session
  }

  /** A turn runs or waits, or is about to. */
  get busy(): boolean {
    const { session, ahead } = this.#ledger
    return session.running !== null || ahead.running !== null || this.lane.length > 0
  }

  /** A turn runs, or what was decided is not known to be durable yet. */
  get inMotion(): boolean {
    return this.session.running !== null || !this.#ledger.idle
  }

  /** Nothing happens in it and nobody looks at it. */
  get idle(): boolean {
    if (this.busy || !this.#ledger.idle || this.watchers.count > 0) return false
    if (this.requestKeys.isEntering) return false
    return this.session.attachments.length === 0 && this.#feed.followers === 0
  }

  /** Throws if nothing more can be asked of this hold. */
  assertHeld(): void {
    if (this.#released !== null) throw this.#released
  }

  /** What may end the last attachment closes the session, and keeps what the turn has said. */
  post(command: Command | (() => Command)): Promise<readonly SessionEvent[]> {
    if (typeof command === 'function') return this.#ledger.post(command)
    switch (command.type) {
      case 'close':
      case 'leave':
      case 'lose':
      case 'lapse':
      case 'unlink':
        return this.#ledger.post(() => ({ ...command, said: this.#run?.said ?? null }))
      default:
        return this.#ledger.post(command)
    }
  }

  /** Lets a watcher in; in order with what happens to the link that it comes in by. */
  watch(watcher: Watcher, by: Principal): Promise<unknown> {
    const { id, link, use } = watcher
    const enter = (): Command => {
      this.watchers.add(watcher)
      return { type: 'watch', link, use, at: this.holder.clock.now(), by }
    }
    return this.#ledger.post(enter).catch((refusal: unknown) => {
      this.watchers.remove(id)
      throw refusal
    })
  }

  /** This client has its token. All who say so while an append is under way are recorded as one. */
  confirm(client: Connected): Promise<unknown> {
    this.#connected.push(client)
    if (this.#connected.length > 1) return this.#confirmed
    const confirm = (): Command => ({ type: 'confirm', clients: this.#connected.splice(0) })
    this.#confirmed = this.#ledger.post(confirm)
    return this.#confirmed
  }

  /**
   * Records a turn that has its place in the lane, behind `last`; one that joined another gives the
   * place back.
   */
  submit(
    command: Command & { type: 'submit' },
    entry: QueuedEntry,
    last: LaneEntry | null,
  ): Promise<string> {
    // Which turn stands before it may be known only when those before it are decided.
    let known: string | null = null
    const placed = (): Command => {
      known = this.requestKeys.turnOf(command.keys)
      return { ...command, joins: last?.type === 'queued' ? last.turn : null, known }
    }
    return new Promise((resolve, reject) => {
      let { session } = this
      const settle = (): void =>
        resolve(known ?? entry.turn ?? turnOfKeys(session, command.keys) ?? '')
      this.#ledger.send(placed, settle, reject, ([event], after) => {
        session = after
        if (event !== undefined && 'turn' in event) entry.turn = event.turn
        if (event?.type !== 'turn.queued') this.lane.remove(entry)
      })
    })
  }

  /** Starts what may start: called when something entered the lane. */
  pump(): void {
    this.#ledger.pump()
    this.interruptIfDue()
  }

  /** Somebody who interrupts is next: what runs is told to stop. */
  interruptIfDue(): void {
    const { first } = this.lane
    const { running } = this.session
    if (first?.interrupts !== true || running === null || this.#interruptedBy === first) return
    this.#interruptedBy = first
    const by = first.type === 'queued' ? first.by : (first.members[0]?.by ?? null)
    // The callers of that turn learn of its end there; nothing here waits for the answer.
    this.cancel(running.id, 'interrupted_by_newer', by).catch(() => undefined)
  }

  /** Whether a turn was told to stop for its sake. */
  interruptsFor(entry: LaneEntry): boolean {
    return this.#interruptedBy === entry
  }

  /** The time by the log: that of its next event. */
  readonly now = (): number => this.#ledger.now()

  /** Ends what the last owner left behind and sets its clocks going again. */
  async recover(reason: string, said: string | null): Promise<void> {
    const at = this.holder.clock.now()
    for (const { id, expiresAt } of this.session.queued) this.#expireLater(id, expiresAt)
    for (const { id, graceUntil } of this.session.attachments) this.#lapseLater(id, graceUntil)
    for (const { id, expiresAt } of this.session.links) this.#unlinkLater(id, expiresAt)
    const { answerGraceMs } = this.holder.limits
    const recover = { type: 'recover', at, reason, answerGraceMs, said } as const
    const events = await this.post(recover).catch((thrown: unknown) => {
      // The ledger makes a HoldfastError of what the store throws: this is a log that cannot be.
      throw thrown instanceof HoldfastError ? thrown : unreadable(this.id, messageOf(thrown))
    })
    tellRecovered(this, events)
  }

  follow(
    from: Position,
    signal?: StopSignal,
    options?: { readonly presence?: boolean },
  ): AsyncGenerator<readonly FeedItem[]> {
    return this.#feed.follow(from, signal, options)
  }

  /** The turn when it is over. */
  finished(turn: string): Promise<TurnRecord> {
    const { running, queued } = this.session
    if (running?.id !== turn && !queued.some(({ id }) => id === turn)) return this.readTurn(turn)
    if (this.#released !== null) return Promise.reject(this.#released)
    return new Promise((resolve, reject) => {
      const waiters = this.#waiters.get(turn) ?? []
      this.#waiters.set(turn, [...waiters, { resolve, reject }])
    })
  }

  readTurn(turn: string): Promise<TurnRecord> {
    const { store, limits } = this.holder
    return readTurn(store, this.id, turn, limits.pageEvents)
  }

  /** Cancels a turn that waits, or stops the one that runs; returns it when it is over. */
  async cancel(turn: string, reason: string, by: Principal | null): Promise<TurnRecord> {
    await this.post({ type: 'cancel', turn, reason, by })
    if (this.#run?.turn.id === turn) this.#run.cancel(reason, by)
    return this.finished(turn)
  }

  /** All that waits for its turn, in the log or not, in order. */
  queue(): readonly QueueRow[] {
    return this.lane.rows(this.session.queued, () => this.holder.entropy.id())
  }

  /** Takes back a request that waits outside the log: nothing of it has happened. */
  cancelRequest(request: string): void {
    this.assertHeld()
    const member = this.lane.removeRequest(request)
    if (member === null) throw turnUnknown(this.id, request)
    member.refuse(new HoldfastError('cancelled', 'the request was cancelled while it waited'))
    this.interruptIfDue()
  }

  /** The server stops: what still runs is interrupted, and what it has said is kept. */
  interrupt(reason: string): Promise<unknown> {
    const { clock, limits } = this.holder
    const { answerGraceMs } = limits
    const at = clock.now()
    const said = (): string | null => this.#run?.said ?? null
    return this.#ledger.post(() => ({ type: 'recover', at, reason, answerGraceMs, said: said() }))
  }

  /** Refuses the requests that wait outside the log; turns in the log keep their places. */
  refuseWaiting(error: HoldfastError): void {
    for (const member of this.lane.clearWaiting()) member.refuse(error)
  }

  /** Gives the hold up without a trace in the log. */
  release(error: HoldfastError): void {
    this.#ledger.lose(error)
  }

  decideMore(batch: Batch): void {
    while (batch.session.running === null && batch.session.closed === null) {
      if (this.holder.draining) return
      const entry = this.lane.shift()
      if (entry === undefined) return
      if (entry.type === 'queued') this.#startQueued(batch, entry)
      else this.#admit(batch, entry.members)
    }
  }

  #startQueued(batch: Batch, { turn }: QueuedEntry): void {
    const waits = batch.session.queued.some(({ id }) => id === turn)
    if (turn !== null && waits) batch.decide({ type: 'start', turn })
  }

  /** Admits requests that waited. One whose key has a turn by now gets that turn (I11). */
  #admit(batch: Batch, members: readonly Member[]): void {
    const fresh = members.filter((member) => !this.#adopt(batch, member))
    if (fresh.length === 0) return
    try {
      const { queuedAt: since, ...request } = combine(fresh)
      // A clock may have jumped back meanwhile: nobody waits for less than no time.
      const queuedAt = since === null ? null : Math.min(since, batch.at)
      batch.decide({ type: 'admit', ...request, queuedAt })
    } catch (refusal) {
      for (const { refuse } of fresh) batch.whenKnown(() => refuse(refusal), refuse)
      return
    }
    const turn = batch.session.running?.id ?? ''
    for (const { admit, refuse } of fresh) batch.whenKnown(() => admit(turn), refuse)
  }

  #adopt(batch: Batch, { keys, admit, refuse }: Member): boolean {
    try {
      const known = turnOfKeys(batch.session, keys) ?? this.requestKeys.turnOf(keys)
      if (known === null) return false
      batch.whenKnown(() => admit(known), refuse)
    } catch (mismatch) {
      batch.whenKnown(() => refuse(mismatch), refuse)
    }
    return true
  }

  act(event: SessionEvent, json: string): void {
    this.holder.counters.events += 1
    if ('turn' in event) this.#record(event)
    if ('keys' in event) this.requestKeys.add(admittedKeys(event))
    this.#feed.publish(event, json)
    switch (event.type) {
      case 'turn.queued':
        return this.#expireLater(event.turn, event.expiresAt ?? null)
      case 'turn.started':
        return this.#startRun(event.turn)
      case 'ask.opened':
        return this.#timeOutLater(event.ask, event.deadline, event.at)
      case 'ask.settled':
        return this.#settleAsk(event.ask, event)
      case 'attachment.detached':
        return this.#lapseLater(event.attachment, event.graceUntil)
      case 'attachment.resumed':
        return this.#alarms.cancel(event.attachment)
      case 'attachment.ended':
        this.#alarms.cancel(event.attachment)
        return this.holder.attachmentEnded(event.attachment, event.reason)
      case 'link.created':
        return this.#unlinkLater(event.link, event.expiresAt)
      case 'link.revoked':
        return this.#unlinked(event.link, reasonOf(event.reason))
      default:
        if ('turn' in event && isTerminal(event)) this.#endTurn(event.turn)
    }
  }

  settled(): void {
    if (this.session.closed === null) {
      this.#settleUnanswerableLater()
      return this.interruptIfDue()
    }
    this.holder.counters.sessionsClosed += 1
    this.#feed.end()
    this.#ledger.lose(closedError(this.session))
  }

  lost(error: HoldfastError): void {
    this.#released = error
    this.#run?.abandon(error)
    this.#run = null
    this.#alarms.clear()
    this.watchers.clear()
    for (const member of this.lane.clearWaiting()) member.refuse(error)
    for (const { reject } of [...this.#waiters.values()].flat()) reject(error)
    this.#waiters.clear()
    for (const settle of this.#asking.values()) settle({ outcome: 'withdrawn' })
    this.#asking.clear()
    this.#feed.end(error)
    this.holder.released(this, error)
    // Their streams notice too late if they wait for a slow store or a slow reader.
    for (const { id } of this.session.attachments) this.holder.attachmentLost(id, error)
  }

  /** Keeps a record of the turns that were admitted under this hold, to hand out when they end. */
  #record(event: SessionEvent & { turn: string }): void {
    const record = this.#records.get(event.turn) ?? null
    if (record === null && event.turn !== `t${event.seq}`) return
    this.#records.set(event.turn, recordTurn(record, event))
  }

  #startRun(turn: string): void {
    this.holder.counters.turnsStarted += 1
    this.#alarms.cancel(turn)
    const { running, agent } = this.session
    // Started and over in the same step: there is nothing to carry out.
    if (running?.id !== turn) return
    this.#run = new Run(this, running)
    this.#run.start(this.holder.runner(agent))
  }

  #endTurn(turn: string): void {
    this.holder.counters.turnsEnded += 1
    this.#alarms.cancel(turn)
    this.lane.removeTurn(turn)
    if (this.#run?.turn.id === turn) {
      this.#run.abandon()
      this.#run = null
    }
    const record = this.#records.get(turn)
    this.#records.delete(turn)
    const waiters = this.#waiters.get(turn)
    this.#waiters.delete(turn)
    for (const { resolve, reject } of waiters ?? []) {
      if (record === undefined) this.readTurn(turn).then(resolve, reject)
      else resolve(record)
    }
  }

  /** Output of the running turn, live only. */
  delta(turn: string, text: string): void {
    this.#feed.delta(turn, text)
  }

  /** A run's last word. If it cannot be recorded, the turn fails without it; tried once. */
  finish(command: Command & { type: 'finish' }): void {
    const { turn } = command
    this.post(command).catch((refusal: unknown) => {
      this.holder.counters.outputsLate += 1
      if (this.#released !== null || this.session.running?.id !== turn) return
      const end = { state: 'failed', error: turnError(refusal), reply: null } as const
      // If that cannot be recorded either, the hold is given up: the session is loaded anew.
      this.post({ type: 'finish', turn, end }).catch((error: unknown) => {
        if (this.session.running?.id === turn) this.release(asHoldfastError(error))
      })
    })
  }

  /** Asks the session's clients for the running turn; always settles. */
  ask(turn: string, question: Question): Promise<AskOutcome> {
    const { limits } = this.holder
    return new Promise((resolve, reject) => {
      const at = this.now()
      const ask = askOf(question, { turn, at, limits })
      // Known before it is durable: it may be settled in the very step that opens it.
      const opened = ([event]: readonly SessionEvent[]): void => {
        if (event?.type === 'ask.opened') this.#asking.set(event.ask, resolve)
      }
      const command = { type: 'ask', ask, at } as const
      this.#ledger.send(command, () => undefined, reject, opened)
    })
  }

  #settleAsk(ask: string, event: SessionEvent & { type: 'ask.settled' }): void {
    this.holder.counters.asksSettled += 1
    this.#alarms.cancel(ask)
    this.#tellUnanswered(ask, event.outcome)
    this.#asking.get(ask)?.(outcomeOf(event))
    this.#asking.delete(ask)
  }

  #tellUnanswered(ask: string, outcome: AskOutcome['outcome']): void {
    if (outcome !== 'timed_out' && outcome !== 'nobody_to_ask') return
    const facts = { reason: outcome, session: this.id, ask }
    this.holder.diagnose('ask_unanswered', 'an ask was settled without an answer', facts)
  }

  #timeOutLater(ask: string, at: number, now: number): void {
    this.holder.counters.asksOpened += 1
    this.#alarms.set(ask, at, now, { type: 'timeout', ask })
  }

  /** A client that was lost counts as one to ask for a while, and then no more. */
  #settleUnanswerableLater(): void {
    const at = unanswerableAt(this.session)
    if (at === null) return this.#alarms.cancel(UNANSWERABLE)
    const command = { type: 'unanswerable', at } as const
    this.#alarms.set(UNANSWERABLE, at, this.now(), command)
  }

  #expireLater(turn: string, at: number | null): void {
    this.#alarms.set(turn, at, this.now(), { type: 'finish', turn, end: { state: 'expired' } })
  }

  #lapseLater(attachment: string, at: number | null): void {
    this.#alarms.set(attachment, at, this.now(), { type: 'lapse', attachment, graceUntil: at ?? 0 })
  }

  #unlinkLater(link: string, at: number | null): void {
    const command = { type: 'unlink', link, at: at ?? 0, by: null } as const
    this.#alarms.set(link, at, this.holder.clock.now(), command)
  }

  #unlinked(link: string, reason: string): void {
    this.#alarms.cancel(link)
    for (const { id } of this.watchers.removeBy(link)) this.holder.attachmentEnded(id, reason)
  }
}
