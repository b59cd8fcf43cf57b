/**
 * I8 and I9: which clients an ask waits for. A driver counts while it is connected, and for a short
 * time after a loss, and so does a follower of all asks that answers its kind, on the node that asks;
 * a watcher never does, and leaves no trace in a log.
 */
import type { Attachment } from '../../src/core/index.ts'
import type { SessionEvent } from '../../src/core/events.ts'
import type { Violation } from './checker.ts'
import type { Facts, Log } from './facts.ts'
import type { History } from './history.ts'
import { BEGINNING_MS } from './process.ts'

/** `answerGraceMs` of every world. */
export const ANSWER_GRACE_MS = 700
/** How late what is due may be decided, where stores are slow and processes stand still. */
const LATE_MS = 900

type Opened = SessionEvent & { readonly type: 'ask.opened' }

/** `watchers`: the ids of clients that were let in to look on. */
export function* checkAnswerers(
  { history, logs }: Facts,
  watchers: ReadonlySet<string> = new Set(),
): Generator<Violation> {
  for (const log of logs.values()) {
    yield* checkTrace(log, watchers)
    yield* checkGrace(log)
    if (!history.wallJumps) yield* checkAsksOf(history, log, watchers)
  }
  yield* checkInboxes(history, logs)
}

/** What a follower of all asks is told: asks of the log, each opened before it is settled. */
function* checkInboxes(history: History, logs: Facts['logs']): Generator<Violation> {
  const open = new Set<string>()
  for (const { inbox, what, session, ask } of history.of('inbox.saw')) {
    const name = `${inbox} ${session} ${ask}`
    const isOpen = open.has(name)
    if (what === 'ask.opened') open.add(name)
    else open.delete(name)
    const events = logs.get(session)?.events ?? []
    const isThere = events.some((event) => event.type === what && event.ask === ask)
    const settled = events.find((event) => event.type === 'ask.settled' && event.ask === ask)
    const storedAt = settled && appendOf(history, session, settled.seq)?.at
    const begunAt = history.of('inbox.begun').find((one) => one.inbox === inbox)?.at ?? 0
    if (what === 'ask.opened' && storedAt !== undefined && storedAt < begunAt) {
      yield { invariant: 'I8', message: `inbox ${inbox} was shown ${ask}, which was settled` }
    }
    // An ask is not told of as settled if it was not shown, nor shown twice.
    if (isThere && isOpen === (what === 'ask.settled')) continue
    yield { invariant: 'I8', message: `inbox ${inbox} was told ${what} of ${ask} of ${session}` }
  }
}

function* checkTrace({ id, events }: Log, watchers: ReadonlySet<string>): Generator<Violation> {
  for (const event of events) {
    const isNamed = 'attachment' in event && watchers.has(event.attachment ?? '')
    const isOpened = event.type === 'attachment.opened' && event.role === 'watcher'
    if (!isOpened && (!isNamed || event.type === 'ask.settled')) continue
    yield { invariant: 'I9', message: `${id}: ${event.type} at ${event.seq} is of a watcher` }
  }
}

/** How long a lost client counts is recorded with its loss. */
function* checkGrace({ id, events, states }: Log): Generator<Violation> {
  for (const [index, event] of events.entries()) {
    if (event.type !== 'attachment.detached') continue
    const { graceUntil, answersUntil, attachment } = event
    const lostAt = graceUntil - (states[index]?.graceMs ?? 0)
    if (answersUntil === Math.min(graceUntil, lostAt + ANSWER_GRACE_MS)) continue
    const wrong = `counts until ${answersUntil}, lost at ${lostAt}`
    yield { invariant: 'I8', message: `${id}: ${attachment} ${wrong}` }
  }
}

function* checkAsksOf(
  history: History,
  log: Log,
  watchers: ReadonlySet<string>,
): Generator<Violation> {
  const { id, events, states } = log
  for (const [index, event] of events.entries()) {
    if (event.type !== 'ask.settled') continue
    const opened = events.find(
      (other): other is Opened => other.type === 'ask.opened' && other.ask === event.ask,
    )
    if (opened === undefined) continue
    const drivers = (states[index]?.attachments ?? []).filter(({ id }) => !watchers.has(id))
    const followed = followedUntil(history, opened, event.at)
    const until = Math.max(answeredUntil(drivers, opened.kind), followed.counted)
    if (event.outcome === 'nobody_to_ask' && until > event.at) {
      yield { invariant: 'I8', message: `${id}: ${event.ask} could have been answered` }
    }
    const since = Math.max(until, followed.perhaps, changedAt(events.slice(0, index)))
    // A deadline that came before counts, however late it was recorded.
    const isDenied = opened.onNobody === 'deny' && since < opened.deadline
    const isLate = isDenied && event.at - since > LATE_MS
    if (!isLate || (event.outcome !== 'timed_out' && event.outcome !== 'answered')) continue
    // Nothing is decided while the store records the step before; an answer may wait meanwhile.
    if (event.at - recordedAt(history, id, event.seq - 1) > LATE_MS) {
      yield { invariant: 'I8', message: `${id}: ${event.ask} waited for no client since ${since}` }
    }
  }
}

/** Until when one of them counts as a client that answers this kind. */
function answeredUntil(attachments: readonly Attachment[], kind: string): number {
  const times = attachments
    .filter(({ answers }) => answers.includes(kind))
    .map(({ state, answersUntil }) => (state === 'live' ? Infinity : (answersUntil ?? 0)))
  return Math.max(0, ...times)
}

/**
 * Until when a follower of all asks counts at the node that asks: one that had been told of all that
 * wait, and one that had only begun to follow, which may count or not.
 */
function followedUntil(history: History, { kind, question }: Opened, at: number) {
  const node = history.of('ask.begun').find(({ ask }) => ask === question)?.node
  const until = { counted: 0, perhaps: 0 }
  for (const { inbox, answers, node: own, at: begunAt } of history.of('inbox.begun')) {
    if (own !== node || !answers.includes(kind) || BEGINNING_MS + begunAt > at) continue
    const one = (event: { readonly inbox: number }): boolean => event.inbox === inbox
    const left = history.of('inbox.left').find(one)?.at ?? Infinity
    const leaves = BEGINNING_MS + left + ANSWER_GRACE_MS
    const listed = BEGINNING_MS + (history.of('inbox.listed').find(one)?.at ?? Infinity)
    until.perhaps = Math.max(until.perhaps, leaves)
    // Times of events are whole.
    if (listed < at) until.counted = Math.max(until.counted, leaves - 1)
  }
  return until
}

/** When clients or asks came or went last. */
function changedAt(events: readonly SessionEvent[]): number {
  return events.findLast(({ type }) => /^(attachment|ask)\./.test(type))?.at ?? 0
}

/** When the store had answered that it has this event. */
function recordedAt(history: History, id: string, seq: number): number {
  const append = appendOf(history, id, seq)
  const reply = history.of('store.replied').find(({ call }) => call === append?.call)
  return BEGINNING_MS + (reply?.at ?? 0)
}

/** The append by which the store got this event. */
function appendOf(history: History, id: string, seq: number) {
  return history
    .of('store.appended')
    .find(({ session, after, count }) => session === id && after < seq && seq <= after + count)
}
