/** What a list says of a session: what it is doing, or how it ended what it did last. */
import type { SessionEvent } from './events.ts'
import type { Session } from './state.ts'
import type { Append } from './store.ts'
import { isTerminal } from './turns.ts'

/** The status after `events`, which led to `session`. Empty: as it was before them. */
export function statusAfter(
  { closed, asks, running, queued }: Session,
  events: readonly SessionEvent[],
): Pick<Append, 'status' | 'queuedTurns'> {
  if (closed !== null) return {}
  if (asks.length > 0) return { status: 'waiting', queuedTurns: queued.length }
  if (running !== null) return { status: 'running', queuedTurns: queued.length }
  if (queued.length > 0) return { status: 'queued', queuedTurns: queued.length }
  const end = events.findLast(isTerminal)
  return end === undefined ? {} : { status: end.type === 'turn.failed' ? 'failed' : 'idle' }
}
