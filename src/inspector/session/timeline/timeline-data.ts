/**
 * What a timeline shows, folded from events. Pages of a log may come in any order, so each event
 * only fills in what it knows. The events are not kept: a log may have a hundred thousand.
 */
import type { SessionEvent } from '../../../client/index.ts'
import { beginningOf } from '../../shared/clipped.tsx'
import { turnOutcome } from '../../../wire/answer-text.ts'

export type TimelineTurn = {
  readonly id: string
  text: string
  queuedAt: number | null
  startedAt: number | null
  endedAt: number | null
  /** How it ended; null: it has not, or its end is not known. */
  outcome: string | null
  why: string
}

export type TimelineAsk = {
  readonly id: string
  question: string
  openedAt: number | null
  openedSeq: number | null
  settledAt: number | null
  outcome: string | null
}

/** What became of a client's connection. */
export type ClientStep = {
  readonly seq: number
  readonly at: number
  readonly type: 'opened' | 'detached' | 'resumed' | 'ended'
  readonly words: string
}

export type Mark = {
  readonly seq: number
  readonly at: number
  readonly kind: 'failover' | 'interruption' | 'session' | 'change'
  readonly text: string
}

const TEXT_CHARS_MAX = 120

/** Reasons of interruptions after which another owner continues the session. */
const FAILOVERS = ['node_lost', 'server_crashed', 'hold_lost']

export class TimelineData {
  readonly turns = new Map<string, TimelineTurn>()
  readonly asks = new Map<string, TimelineAsk>()
  readonly clients = new Map<string, ClientStep[]>()
  readonly marks: Mark[] = []
  /** The time of the first and the last event. */
  firstAt = Number.POSITIVE_INFINITY
  lastAt = 0
  /** How many events were added. */
  count = 0

  /** True if the timeline shows something of them. */
  add(events: readonly SessionEvent[]): boolean {
    let isShown = false
    for (const event of events) {
      this.count += 1
      this.firstAt = Math.min(this.firstAt, event.at)
      this.lastAt = Math.max(this.lastAt, event.at)
      isShown = this.#add(event) || isShown
    }
    return isShown
  }

  #add(event: SessionEvent): boolean {
    if (event.type === 'ask.opened' || event.type === 'ask.settled') return this.#ask(event)
    if ('attachment' in event) return this.#client(event)
    const mark = markOf(event)
    if (mark !== null) this.marks.push({ seq: event.seq, at: event.at, ...mark })
    return ('turn' in event && this.#turn(event)) || mark !== null
  }

  #turn(event: Extract<SessionEvent, { turn: string }>): boolean {
    const turn = this.#turnOf(event.turn)
    const outcome = turnOutcome(event)
    if (outcome !== null) {
      turn.endedAt = event.at
      turn.outcome = outcome.state
      turn.why = outcome.error?.message ?? outcome.reason ?? ''
      return true
    }
    if (event.type !== 'turn.queued' && event.type !== 'turn.started') return false
    const { input, queuedAt } = event
    turn.text = beginningOf(typeof input === 'string' ? input : input.text, TEXT_CHARS_MAX)
    if (event.type === 'turn.started') {
      turn.startedAt = event.at
      turn.queuedAt ??= queuedAt ?? null
    } else turn.queuedAt = queuedAt ?? event.at
    return true
  }

  #turnOf(id: string): TimelineTurn {
    const known = this.turns.get(id)
    if (known !== undefined) return known
    const empty = { text: '', queuedAt: null, startedAt: null, endedAt: null }
    const turn: TimelineTurn = { id, ...empty, outcome: null, why: '' }
    this.turns.set(id, turn)
    return turn
  }

  #ask(event: Extract<SessionEvent, { type: 'ask.opened' | 'ask.settled' }>): boolean {
    const { ask: id, at, seq } = event
    const empty = { question: '', openedAt: null, openedSeq: null, settledAt: null, outcome: null }
    const ask: TimelineAsk = this.asks.get(id) ?? { id, ...empty }
    this.asks.set(id, ask)
    if (event.type === 'ask.opened') {
      ask.question = beginningOf(event.question, TEXT_CHARS_MAX)
      ask.openedAt = at
      ask.openedSeq = seq
    } else {
      ask.settledAt = at
      ask.outcome = event.outcome.replaceAll('_', ' ')
    }
    return true
  }

  #client(event: Extract<SessionEvent, { attachment: string }>): boolean {
    const { attachment, seq, at } = event
    const type = event.type.slice('attachment.'.length) as ClientStep['type']
    const steps = this.clients.get(attachment) ?? []
    const words = 'reason' in event ? event.reason.replaceAll('_', ' ') : type
    steps.push({ seq, at, type, words })
    this.clients.set(attachment, steps)
    return true
  }
}

function markOf(event: SessionEvent): Pick<Mark, 'kind' | 'text'> | null {
  switch (event.type) {
    case 'turn.interrupted': {
      const kind = FAILOVERS.includes(event.reason) ? 'failover' : 'interruption'
      const what = kind === 'failover' ? 'Failover' : 'Interruption'
      return { kind, text: `${what} of turn ${event.turn}: ${event.reason.replaceAll('_', ' ')}` }
    }
    case 'turn.cancelled':
      return { kind: 'interruption', text: `Turn ${event.turn} was cancelled: ${event.reason}` }
    case 'turn.steered':
      return { kind: 'change', text: `A message was added to turn ${event.turn}` }
    case 'turn.moved':
      return { kind: 'change', text: `Turn ${event.turn} was moved in the queue` }
    case 'session.configured':
      return { kind: 'change', text: `Settings: ${JSON.stringify(event.settings)}` }
    case 'session.created':
      return { kind: 'session', text: 'The session was created' }
    case 'session.closed':
      return { kind: 'session', text: `The session was closed: ${event.reason}` }
    default:
      return null
  }
}
