/** The end of a conversation, as a chat shows it when it begins. */
import type { SessionEvent } from '../core/index.ts'
import { sessionPath, type EventPageView } from '../wire/views.ts'
import type { Remote } from './remote.ts'

export type ChatHistory = {
  /** From the start of the first turn that is shown. */
  readonly events: readonly SessionEvent[]
  /** How many turns are before it; null: some. */
  readonly earlierTurns: number | null
}

type Position = { readonly id: string; readonly seq: number }

/** So many events are read at once, and in all. */
const WINDOW_EVENTS = 500
const EVENTS_MAX = 4_000

/** The last turns up to a position, read backwards: a log may be long. */
export async function readHistory(
  remote: Remote,
  { id, seq }: Position,
  turnsMax: number,
): Promise<ChatHistory> {
  let events: SessionEvent[] = []
  let after = seq
  while (after > 0 && countTurns(events) < turnsMax && seq - after < EVENTS_MAX) {
    const before = after
    after = Math.max(0, before - WINDOW_EVENTS)
    events = [...(await readBetween(remote, id, after, before)), ...events]
  }
  return lastTurns(events, turnsMax, after === 0)
}

/** `isWhole`: the events are from the log's beginning. */
export function lastTurns(
  events: readonly SessionEvent[],
  turnsMax: number,
  isWhole: boolean,
): ChatHistory {
  const starts = events.flatMap(({ type }, index) => (type === 'turn.started' ? [index] : []))
  const earlier = Math.max(0, starts.length - turnsMax)
  const isCut = earlier > 0 || turnsMax === 0 || !isWhole
  const first = isCut ? (starts[earlier] ?? events.length) : 0
  return { events: events.slice(first), earlierTurns: isWhole ? earlier : null }
}

function countTurns(events: readonly SessionEvent[]): number {
  return events.filter(({ type }) => type === 'turn.started').length
}

async function readBetween(
  remote: Remote,
  id: string,
  from: number,
  to: number,
): Promise<readonly SessionEvent[]> {
  const events: SessionEvent[] = []
  for (let after = from; after < to;) {
    const path = `${sessionPath(id)}/events?after=${after}`
    const page = await remote.json<EventPageView>(path)
    events.push(...page.events.filter(({ seq }) => seq <= to))
    if (!page.hasMore) break
    after = page.nextAfter
  }
  return events
}
