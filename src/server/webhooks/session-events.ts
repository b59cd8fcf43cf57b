/**
 * The events of one session in one change of the feed, those that a webhook is told of: read from
 * the log in pages, in their order. The feed names ranges that follow each other without a gap, so
 * that a log that has grown by many events between two looks loses none.
 */
import type { EventOf, SessionEvent } from '../../core/events.ts'
import { typeOf } from '../../core/feed-item.ts'
import type { SessionChange, Store, StoredEvent } from '../../core/index.ts'
import type { WebhookEvent } from '../../schema/webhooks.ts'
import type { WebhookedEvent } from './payload.ts'

export type FoundEvent = { readonly event: WebhookedEvent; readonly isDecided: boolean }

type EventSource = {
  readonly store: Pick<Store, 'read'>
  readonly limits: { readonly pageEvents: number }
}

/** `after`: those up to here have been delivered before. */
export async function* sessionEvents(
  { store, limits }: EventSource,
  { row, after: first, seq }: SessionChange,
  after: number,
  wanted: readonly WebhookEvent[],
): AsyncGenerator<FoundEvent> {
  let opened: WebhookedEvent | null = null
  for (let position = Math.max(first, after); position < seq;) {
    const { events } = await store.read(
      row.id,
      position,
      Math.min(seq - position, limits.pageEvents),
    )
    for (const stored of events) {
      const type = typeOf(stored)
      if (opened !== null) yield { event: opened, isDecided: isDecision(stored, opened) }
      opened = null
      if (!wanted.includes(type as WebhookEvent)) continue
      const event = eventOf(stored)
      if (event.type === 'ask.opened') opened = event
      else yield { event, isDecided: false }
    }
    // It may have been erased.
    if (events.length === 0) break
    position = events.at(-1)!.seq
  }
  if (opened !== null) yield { event: opened, isDecided: false }
}

/** A rule settles an ask in the step that opens it: no person was asked. */
function isDecision(stored: StoredEvent, { seq: opened }: WebhookedEvent): boolean {
  if (typeOf(stored) !== 'ask.settled') return false
  const { ask, ...outcome } = JSON.parse(stored.body) as EventOf<'ask.settled'>
  return ask === `a${opened}` && (outcome.outcome !== 'answered' || outcome.by === null)
}

function eventOf({ seq, body }: StoredEvent): WebhookedEvent {
  return { ...(JSON.parse(body) as SessionEvent), seq } as WebhookedEvent
}

/** How many events before the end of a turn its last message is looked for in. */
const LOOKED_AT = 16

/** The last message of a turn that ended with this event; null: it is too far back. */
export async function lastMessage(
  store: Pick<Store, 'read'>,
  session: string,
  { turn, seq }: { readonly turn: string; readonly seq: number },
): Promise<string | null> {
  const { events } = await store.read(session, Math.max(0, seq - 1 - LOOKED_AT), LOOKED_AT)
  for (const stored of events.toReversed()) {
    if (stored.seq >= seq || typeOf(stored) !== 'message.added') continue
    const message = JSON.parse(stored.body) as { readonly turn: string; readonly text: string }
    if (message.turn === turn) return message.text
  }
  return null
}
