/** An event of a log as one line for people. */
import type { Delta, SessionEvent } from '../core/index.ts'
import { eventSummary } from '../wire/event-summary.ts'
import { printable } from './output.ts'

export function eventLine(event: SessionEvent): string {
  const time = new Date(event.at).toISOString().slice(11, 23)
  const turn = 'turn' in event ? `${event.turn} ` : ''
  const head = `${String(event.seq).padStart(5)}  ${time}  ${turn}${event.type}`
  return `${head}  ${printable(eventSummary(event))}`.trimEnd()
}

export function deltaLine({ turn, n, text }: Delta): string {
  return `${' '.repeat(5)}  ${' '.repeat(12)}  ${turn} delta ${n}  ${printable(text)}`
}
