/** Reading a log back: pages of events, what a turn said, the conversation. Needs no ownership. */
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import { assertReadable, type LoggedEvent, type SessionEvent } from './events.ts'
import type { LastPosition, Message } from './runner.ts'
import {
  PAGE_CHARS,
  type ReadResult,
  type SessionRow,
  type Store,
  type StoredEvent,
} from './store.ts'
import { inputText, partsOf, turnSeq } from './turns.ts'

export type LogContext = Pick<CoreContext, 'store' | 'limits'>

/** The kind of activity by which a runner keeps where in its own conversation a turn has ended. */
export const POSITION_KIND = 'position'

/** An event as it stands in the log, of whatever type. */
export function parseEvent({ seq, body }: StoredEvent): SessionEvent {
  try {
    return JSON.parse(body) as SessionEvent
  } catch {
    throw new HoldfastError('session_unreadable', `event ${seq} is not JSON`, { seq })
  }
}

/** Throws `session_unreadable` if this version must not go on from the event. */
export function readEvent(stored: StoredEvent, session: string): SessionEvent {
  const event: LoggedEvent = parseEvent(stored)
  assertReadable(event, session)
  return event
}

/** Throws `session_unknown` or `session_erased` where there is no log to read. */
export function readableRow(row: SessionRow | null, id: string): SessionRow {
  if (row === null) throw new HoldfastError('session_unknown', `there is no session ${id}`)
  if (row.state !== 'erased') return row
  throw new HoldfastError('session_erased', `session ${id} is closed and its log was erased`)
}

/** All events after a position up to the log's present end, page by page. */
export async function* readEvents(
  { store, limits }: LogContext,
  id: string,
  after: number,
): AsyncGenerator<readonly StoredEvent[]> {
  let position = after
  for (;;) {
    const { row, events } = await store.read(id, position, limits.pageEvents)
    const { seq } = readableRow(row, id)
    if (events.length > 0) yield events
    position = events.at(-1)?.seq ?? seq
    if (position >= seq) return
  }
}

/** What a turn has said since its last message, as far as the log has it; null: nothing. */
export async function readOutput(
  log: LogContext,
  id: string,
  turn: string,
): Promise<string | null> {
  let said: string | null = null
  for await (const page of readEvents(log, id, turnSeq(turn) ?? 0)) {
    for (const event of page.map(parseEvent)) {
      if (!('turn' in event) || event.turn !== turn) continue
      if (event.type === 'turn.output') said = (said ?? '') + event.text
      else if (event.type === 'message.added') said = null
    }
  }
  return said
}

/**
 * Whether the request with this key was a message for the turn when that ran already. Throws
 * `turn_over` if it was, and the log does not say that the agent has taken it.
 */
export async function wasSteered(
  log: LogContext,
  id: string,
  { turn, key }: { readonly turn: string; readonly key: string },
): Promise<boolean> {
  let steering: number | null = null
  for await (const page of readEvents(log, id, turnSeq(turn) ?? 0)) {
    for (const event of page.map(parseEvent)) {
      if (!('turn' in event) || event.turn !== turn) continue
      if (event.type === 'turn.steered' && event.steering === steering) return true
      if (event.type !== 'turn.steering') continue
      if (event.keys?.some((known) => known.key === key) === true) steering = event.seq
    }
  }
  if (steering === null) return false
  throw notKnownToBeTaken(turn, 'the log does not say so')
}

export function notKnownToBeTaken(turn: string, why: string): HoldfastError {
  const message = `it is not known whether the agent took the message in turn ${turn}: ${why}`
  return new HoldfastError('turn_over', message)
}

/** Whether this is an ask that was opened once: its id says where. */
export async function wasAsk(store: Store, id: string, ask: string): Promise<boolean> {
  const { events } = await store.read(id, Number(ask.slice(1)) - 1, 1)
  return events.map(parseEvent).some((event) => event.type === 'ask.opened' && event.ask === ask)
}

export function turnUnknown(session: string, turn: string): HoldfastError {
  return new HoldfastError('turn_unknown', `session ${session} has no turn ${turn}`)
}

/**
 * The conversation: each message and its role, in the order in which the turns ran. Its reader may
 * be slow: nothing that was read before is kept while the next page is waited for.
 */
export async function* readMessages(log: LogContext, id: string): AsyncGenerator<Message> {
  let position = 0
  for (;;) {
    const { messages, seq, isLast } = await readMessagePage(log, id, position)
    for (let next = messages.shift(); next !== undefined; next = messages.shift()) yield next
    if (isLast) return
    position = seq
  }
}

async function readMessagePage({ store, limits }: LogContext, id: string, after: number) {
  const { row, events } = await store.read(id, after, limits.pageEvents)
  const end = readableRow(row, id).seq
  const seq = events.at(-1)?.seq ?? end
  const messages = events.flatMap((stored) => messagesOf(readEvent(stored, id)))
  return { messages, seq, isLast: seq >= end }
}

/** What an event adds to the conversation. */
export function messagesOf(event: SessionEvent): readonly Message[] {
  const { seq, at } = event
  switch (event.type) {
    case 'session.created':
      return (event.origin?.messages ?? []).map((message) => ({ seq, turn: '', ...message }))
    case 'turn.steered':
    case 'turn.started': {
      const { turn, input } = event
      const parts = partsOf(input)
      const more = parts === null ? {} : { parts }
      return [{ seq, turn, role: 'user', text: inputText(input), ...more, at }]
    }
    case 'message.added': {
      const { turn, role, text, data, partial } = event
      const extra = { ...(data === undefined ? {} : { data }), ...(partial ? { partial } : {}) }
      return [{ seq, turn, role, text, at, ...extra }]
    }
    default:
      return []
  }
}

/** How many events at the end of a log are looked at for the last position. */
const LAST_EVENTS_MAX = 4_096

/**
 * Where the conversation was at the end of the last turn before this one. Pages are read backwards
 * from the end of the log; a position that lies too far back counts as unknown (null).
 */
export async function readLastPosition(
  log: LogContext,
  id: string,
  before: string | null,
): Promise<LastPosition> {
  let inputs: string[] = []
  for await (const page of readPagesBack(log, id, LAST_EVENTS_MAX)) {
    for (const event of page.toReversed().map((stored) => readEvent(stored, id))) {
      if ('turn' in event && event.turn === before) continue
      if (event.type === 'session.created') {
        const { origin } = event
        return {
          position: origin?.session === undefined ? (origin?.position ?? null) : null,
          inputs,
        }
      }
      if (event.type === 'turn.activity' && event.kind === POSITION_KIND) {
        return { position: event.data, inputs }
      }
      const said = messagesOf(event).filter(({ role }) => role === 'user')
      inputs = [...said.map(({ text }) => text), ...inputs]
    }
  }
  return { position: null, inputs: [] }
}

/** The last events of a log, at most so many: the last page first, each in the order of the log. */
async function* readPagesBack(
  log: LogContext,
  id: string,
  eventsMax: number,
  end = Number.MAX_SAFE_INTEGER,
): AsyncGenerator<readonly StoredEvent[]> {
  let before = end
  for (let left = eventsMax; left > 0 && before > 1;) {
    const { events, first } = await readPageBefore(log, id, {
      before,
      limit: Math.min(left, log.limits.pageEvents),
    })
    if (events.length > 0) yield events
    left -= events.length
    before = first
  }
}

export type PageBefore = { readonly before: number; readonly limit: number }

/**
 * The events of a log that end just before a position, or at its end if that comes first: at most
 * `limit`, fewer if they are large, but one at least. `first` is the seq of the first of them: the
 * page before ends there.
 */
export async function readPageBefore(
  { store }: LogContext,
  id: string,
  { before, limit }: PageBefore,
): Promise<ReadResult & { readonly first: number }> {
  const { seq } = readableRow((await store.read(id, 0, 0)).row, id)
  const end = Math.min(before - 1, seq)
  // A store's page ends early where events are large; this one has to begin late.
  for (let count = Math.min(limit, end); ; count = Math.ceil(count / 2)) {
    const { row, events } = await store.read(id, end - count, count)
    readableRow(row, id)
    if (events.length === count || count <= 1) return { row, events, first: end - count + 1 }
  }
}

/** What is looked through for one page of a conversation: its messages may be far apart. */
const LOOKED_THROUGH_MAX = 4_096
const LOOKED_THROUGH_CHARS = 16 * PAGE_CHARS

export type MessagePage = {
  readonly messages: readonly Message[]
  /** The page before ends just before this event; null: the conversation begins on this page. */
  readonly nextBefore: number | null
}

/**
 * The last messages before a position, oldest first: at most `limit`, or all of one event. Fewer,
 * or none, if they are large or far apart.
 */
export async function readMessagesBefore(
  log: LogContext,
  id: string,
  { before, limit }: PageBefore,
): Promise<MessagePage> {
  let messages: readonly Message[] = []
  let chars = 0
  let lookedThrough = 0
  let nextBefore = before
  for await (const page of readPagesBack(log, id, LOOKED_THROUGH_MAX, before)) {
    for (const stored of page.toReversed()) {
      const said = messagesOf(readEvent(stored, id))
      const isFull = messages.length + said.length > limit || chars >= PAGE_CHARS
      if (isFull && said.length > 0 && messages.length > 0) return { messages, nextBefore }
      if (said.length > 0) chars += stored.body.length
      messages = [...said, ...messages]
      nextBefore = stored.seq
      lookedThrough += stored.body.length
    }
    if (lookedThrough >= LOOKED_THROUGH_CHARS) break
  }
  return { messages, nextBefore: nextBefore > 1 ? nextBefore : null }
}
