/** An event of a log in a few words, for people. Texts are quoted, so that line breaks show. */
import type { SessionEvent } from '../core/index.ts'
import { principalText } from './views.ts'

/** The main fields of an event, and the principal behind it unless that is the local user. */
export function eventSummary(event: SessionEvent): string {
  const by = 'by' in event ? principalText(event.by) : null
  const parts = [mainFields(event), by === null || by === 'local' ? '' : `by ${by}`]
  return parts.filter((part) => part !== '').join('  ')
}

function mainFields(event: SessionEvent): string {
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
    case 'turn.output':
      return JSON.stringify(event.text)
    case 'turn.failed':
      return `${event.error.code}: ${event.error.message}`
    case 'ask.opened':
      return `${event.ask} ${JSON.stringify(event.question)}`
    case 'ask.settled':
      return event.outcome === 'answered'
        ? `${event.ask} answered: ${JSON.stringify(event.answer)}`
        : `${event.ask} ${event.outcome}`
    case 'link.created':
      return event.scopes.join(', ')
    default:
      return otherFields(event)
  }
}

/** Of other events: the attachment or link, then a reason, kind or role. */
function otherFields(event: SessionEvent): string {
  const { attachment, link, reason, kind, role } = event as Readonly<Record<string, unknown>>
  const id = typeof attachment === 'string' ? attachment.slice(0, 6) : link
  const texts = [id, reason ?? kind ?? role].filter((field) => typeof field === 'string')
  return texts.join(' ')
}
