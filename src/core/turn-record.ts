/** A turn as callers see it: its record, read back from the log, and a handle on it. */
import { assertVisible, type Caller } from './access.ts'
import { AnswerText } from './answer-text.ts'
import { HoldfastError } from './errors.ts'
import type { EventOf, SessionEvent } from './events.ts'
import type { FeedItem, Position } from './feed-item.ts'
import type { StopSignal } from './feed.ts'
import { readEvent, readEvents, turnUnknown, type LogContext } from './history.ts'
import { addedUsage, NO_USAGE, usageIn } from './settings.ts'
import type { Principal, Input, Reply, Session, TurnError, TurnState, Usage } from './state.ts'
import { isTerminal, joinInputs, queuedAtOf, turnSeq } from './turns.ts'

export type TurnRecord = {
  readonly id: string
  readonly state: TurnState
  readonly input: Input
  /** The last message, once there is one. */
  readonly reply: Reply | null
  readonly error: TurnError | null
  /** Why it was cancelled or interrupted. */
  readonly reason: string | null
  /** The principal that asked for it; null in logs of 0.1.0. */
  readonly by: Principal | null
  readonly queuedAt: number | null
  readonly startedAt: number | null
  readonly endedAt: number | null
  /** What it has used, as the agent reported it; null: it has not, or not yet. */
  readonly usage: Usage | null
}

/** A turn that was recorded, or that ran already and has taken the request as a message. */
export type SubmittedTurn = TurnRecord & { readonly isSteered: boolean }

/** Folds one more event of a turn into its record; the first must be the one that admitted it. */
export function recordTurn(record: TurnRecord | null, event: SessionEvent): TurnRecord {
  if (record === null) return newRecord(event)
  switch (event.type) {
    case 'turn.joined':
      return { ...record, input: joinInputs(record.input, event.input) }
    case 'turn.started':
      return { ...record, state: 'running', startedAt: event.at }
    case 'message.added':
      return { ...record, reply: replyOf(event) }
    case 'turn.activity':
      return recordUsage(record, event)
    case 'turn.done':
      return { ...record, state: 'done', endedAt: event.at }
    case 'turn.failed':
      return { ...record, state: 'failed', error: event.error, endedAt: event.at }
    case 'turn.cancelled':
      return { ...record, state: 'cancelled', reason: event.reason, endedAt: event.at }
    case 'turn.interrupted':
      return { ...record, state: 'interrupted', reason: event.reason, endedAt: event.at }
    case 'turn.expired':
      return { ...record, state: 'expired', endedAt: event.at }
    default:
      return record
  }
}

function newRecord(event: SessionEvent): TurnRecord {
  if (event.type !== 'turn.queued' && event.type !== 'turn.started') {
    throw new HoldfastError('turn_unknown', `no turn begins at ${event.seq}`)
  }
  const queued = event.type === 'turn.queued'
  return {
    id: event.turn,
    state: queued ? 'queued' : 'running',
    input: event.input,
    reply: null,
    error: null,
    reason: null,
    by: event.by ?? null,
    queuedAt: queuedAtOf(event),
    startedAt: queued ? null : event.at,
    endedAt: null,
    usage: null,
  }
}

function recordUsage(record: TurnRecord, event: EventOf<'turn.activity'>): TurnRecord {
  const used = usageIn(event)
  return used === null ? record : { ...record, usage: addedUsage(record.usage ?? NO_USAGE, used) }
}

export function replyOf(event: { readonly text: string; readonly data?: unknown }): Reply {
  return event.data === undefined ? { text: event.text } : { text: event.text, data: event.data }
}

/** A turn as the log tells it: its id says where to begin, its terminal event where to end. */
export async function readTurn(log: LogContext, id: string, turn: string): Promise<TurnRecord> {
  const begin = turnSeq(turn)
  let record: TurnRecord | null = null
  if (begin === null) throw turnUnknown(id, turn)
  for await (const page of readEvents(log, id, begin - 1)) {
    for (const stored of page) {
      const event = readEvent(stored, id)
      if (!('turn' in event) || event.turn !== turn) {
        if (record === null) throw turnUnknown(id, turn)
        continue
      }
      record = recordTurn(record, event)
      if (isTerminal(event)) return record
    }
  }
  if (record === null) throw turnUnknown(id, turn)
  return record
}

type Waiter = {
  readonly resolve: (record: TurnRecord) => void
  readonly reject: (error: unknown) => void
}

/** `record`: null for a turn that was admitted before the session was loaded. */
type OpenTurn = { readonly turn: string; record: TurnRecord | null; readonly waiters: Waiter[] }

/** The turns of a loaded session that are not over, and the callers that wait for their ends. */
export class OpenTurns {
  /**
   * Few, and the one that runs is the first. A `Map` makes a new table whenever its last entry is
   * deleted, and each table refers to the next: once one of them is in the old generation, V8
   * keeps all that follow, with their entries, until its next full collection.
   */
  readonly #turns: OpenTurn[] = []
  readonly #read: (turn: string) => Promise<TurnRecord>

  /** `read`: reads a turn from the log. */
  constructor(read: (turn: string) => Promise<TurnRecord>) {
    this.#read = read
  }

  follow(event: SessionEvent & { readonly turn: string }): void {
    const { turn } = event
    const open = this.#turns.find((one) => one.turn === turn)
    if (open === undefined) {
      if (turn !== `t${event.seq}`) return
      this.#turns.push({ turn, record: recordTurn(null, event), waiters: [] })
    } else if (open.record !== null) open.record = recordTurn(open.record, event)
  }

  /** Resolves when the turn is over. */
  wait(turn: string): Promise<TurnRecord> {
    return new Promise((resolve, reject) => {
      const open = this.#turns.find((one) => one.turn === turn)
      if (open !== undefined) open.waiters.push({ resolve, reject })
      else this.#turns.push({ turn, record: null, waiters: [{ resolve, reject }] })
    })
  }

  /** The turn is over. */
  end(turn: string): void {
    const index = this.#turns.findIndex((one) => one.turn === turn)
    const [open] = index < 0 ? [] : this.#turns.splice(index, 1)
    if (open === undefined) return
    for (const { resolve, reject } of open.waiters) {
      if (open.record === null) this.#read(turn).then(resolve, reject)
      else resolve(open.record)
    }
  }

  /** The session was released. */
  fail(error: HoldfastError): void {
    const open = this.#turns.splice(0)
    for (const { reject } of open.flatMap(({ waiters }) => waiters)) reject(error)
  }
}

/** Where a request came to be a turn. */
export type Admission = {
  /** The loaded session. */
  readonly live: {
    readonly id: string
    readonly session: Session
    finished(turn: string): Promise<TurnRecord>
    cancel(turn: string, reason: string, by: Principal | null): Promise<TurnRecord>
    follow(from: Position, signal?: StopSignal): AsyncGenerator<readonly FeedItem[]>
  }
  readonly turn: string
  /** The turn ran already, and has taken the request as a further message. */
  readonly isSteered: boolean
}

export type CallerPresence = {
  readonly signal?: AbortSignal
  /**
   * What the caller's going away does to an admitted turn. I10: nothing, unless it asked for that.
   */
  readonly onDisconnect?: 'continue' | 'cancel'
}

/** A caller's handle on a turn: await it for the result, iterate it for the answer as it comes. */
export class TurnHandle implements PromiseLike<TurnRecord>, AsyncIterable<string> {
  /** Settles when the turn has started or was found by its key, or with the refusal. */
  readonly admission: Promise<Admission>
  readonly #caller: Caller
  readonly #finished: Promise<TurnRecord>

  /** The answer is for a caller that may still see the session when there is one. */
  constructor(admission: Promise<Admission>, presence: CallerPresence, caller: Caller) {
    this.admission = admission
    this.#caller = caller
    this.#finished = this.#finish(presence)
    // A caller that only iterates gets the failure there.
    this.#finished.catch(() => undefined)
  }

  // oxlint-disable-next-line unicorn/no-thenable -- to be awaited is what it is for
  then<Value = TurnRecord, Reason = never>(
    onfulfilled?: ((record: TurnRecord) => Value | PromiseLike<Value>) | null,
    onrejected?: ((reason: unknown) => Reason | PromiseLike<Reason>) | null,
  ): Promise<Value | Reason> {
    return this.#finished.then(onfulfilled, onrejected)
  }

  async #finish(presence: CallerPresence): Promise<TurnRecord> {
    const { live, turn } = await this.admission
    const ended = await this.#end(live, turn, presence)
    if (this.#caller.access !== null) assertVisible(this.#caller, live.session)
    return ended
  }

  #end(live: Admission['live'], turn: string, presence: CallerPresence): Promise<TurnRecord> {
    const { by } = this.#caller
    const signal = presence.onDisconnect === 'cancel' ? presence.signal : undefined
    if (signal === undefined) return live.finished(turn)
    // The caller is gone; the turn's own end is in the log.
    const cancel = (): void => void live.cancel(turn, 'caller_gone', by).catch(() => undefined)
    if (signal.aborted) cancel()
    signal.addEventListener('abort', cancel)
    return live.finished(turn).finally(() => signal.removeEventListener('abort', cancel))
  }

  /** The turn's own events and deltas, from its beginning to its end. */
  async *feed(signal?: AbortSignal): AsyncGenerator<readonly FeedItem[]> {
    const { live, turn } = await this.admission
    const begin = (turnSeq(turn) ?? 1) - 1
    for await (const items of live.follow({ seq: begin, delta: 0 }, signal)) {
      if (this.#caller.access !== null) assertVisible(this.#caller, live.session)
      const own = items.filter(({ event }) => 'turn' in event && event.turn === turn)
      const end = own.findIndex(({ event }) => isTerminal(event))
      if (own.length > 0) yield end < 0 ? own : own.slice(0, end + 1)
      if (end >= 0) return
    }
  }

  /** The answer in parts as they come: together they are the texts of the turn's messages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    const answer = new AnswerText()
    for await (const items of this.feed()) {
      for (const { event } of items) {
        if (event.type === 'delta') yield answer.delta(event.text)
        if (event.type !== 'message.added') continue
        const rest = answer.message(event.text)
        if (rest !== '') yield rest
      }
    }
  }
}
