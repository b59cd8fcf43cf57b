/** An event of a log as one line for people. */
import type { Delta, SessionEvent } from '../core/index.ts'
import { principalText } from '../wire/views.ts'
import { printable } from './output.ts'

export function eventLine(event: SessionEvent): string {
  const time = new Date(event.at).toISOString().slice(11, 23)
  const about = 'turn' in event ? `${event.turn} ` : ''
  const head = `${String(event.seq).padStart(5)}  ${time}  ${about}${event.type}`
  const by = 'by' in event ? principalText(event.by) : null
  const rest = [detailOf(event), by === null || by === 'local' ? '' : `by ${by}`]
  return [head, ...rest.filter((text) => text !== '').map(printable)].join('  ')
}

export function deltaLine({ turn, n, text }: Delta): string {
  return `${' '.repeat(5)}  ${' '.repeat(12)}  ${turn} delta ${n}  ${printable(text)}`
}

/** The main field of the event. Texts are quoted, so that line breaks show. */
function detailOf(event: SessionEvent): string {
  switch (event.type) {
    case 'session.created':
      return `${event.agent}${event.key === null ? '' : ` ${JSON.stringify(event.key)}`}`
    case 'session.bound':
      return event.backend
    case 'turn.queued':
    case 'turn.joined':
    case 'turn.started':
      return JSON.stringify(typeof event.input === 'string' ? event.input : event.input.text)
    case 'message.added':
      return JSON.stringify(event.text)
    case 'turn.failed':
      return `${event.error.code}: ${event.error.message}`
    case 'ask.opened':
      return `${event.ask} ${JSON.stringify(event.question)}`
    case 'ask.settled':
      return event.outcome === 'answered'
        ? `${event.ask} answered: ${JSON.stringify(event.answer)}`
        : `${event.ask} ${event.outcome}`
    default:
      return reasonOf(event)
  }
}

/** Of other events: the reason, or else the kind. */
function reasonOf(event: SessionEvent): string {
  const { reason, kind } = event as { readonly reason?: unknown; readonly kind?: unknown }
  if (typeof reason === 'string') return reason
  return typeof kind === 'string' ? kind : ''
}
