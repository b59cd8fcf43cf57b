/** What is told of a session that was loaded with work to do. */
import type { LiveSession } from './live.ts'
import type { SessionEvent } from './session.ts'

export function tellRecovered(live: LiveSession, events: readonly SessionEvent[]): void {
  const { id, session, holder } = live
  const interrupted = events.find(({ type }) => type === 'turn.interrupted')
  const { length: queued } = session.queued
  if (interrupted === undefined && queued === 0) return
  const turn = interrupted !== undefined && 'turn' in interrupted ? interrupted.turn : null
  const message = 'a session that had work to do was loaded'
  const asks = events.filter(({ type }) => type === 'ask.settled').length
  const facts = { session: id, interrupted: turn, asksWithdrawn: asks, queued }
  holder.diagnose('session_recovered', message, facts)
}
