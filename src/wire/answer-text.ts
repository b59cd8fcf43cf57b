/** Reading a turn's answer from its events. For the client too, which imports no core. */
import type { Delta, SessionEvent, TurnRecord } from '../core/index.ts'

export { AnswerText } from '../core/answer-text.ts'

export type TurnOutcome = Pick<TurnRecord, 'error' | 'reason'> & {
  readonly state: Exclude<TurnRecord['state'], 'queued' | 'running'>
}

/** How the turn of this event ended; null if the event is not its end. */
export function turnOutcome(event: SessionEvent | Delta): TurnOutcome | null {
  switch (event.type) {
    case 'turn.done':
    case 'turn.expired':
      return { state: event.type === 'turn.done' ? 'done' : 'expired', error: null, reason: null }
    case 'turn.failed':
      return { state: 'failed', error: event.error, reason: null }
    case 'turn.cancelled':
      return { state: 'cancelled', error: null, reason: event.reason }
    case 'turn.interrupted':
      return { state: 'interrupted', error: null, reason: event.reason }
    default:
      return null
  }
}
