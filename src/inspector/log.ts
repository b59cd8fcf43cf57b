/** The session's log: every event with its number, and all of it when it is opened. */
import type { SessionEvent } from '../client/index.ts'
import { principalText } from '../wire/views.ts'
import { element, say } from './element.ts'
import { clockTime, fullTime } from './moment.ts'

/** More than this is shown on demand: a log may be long. */
const SHOWN_MAX = 300

export class Log {
  readonly element: HTMLElement
  readonly #items = element('div')
  readonly #earlier: HTMLButtonElement
  #events: SessionEvent[] = []
  /** How many of the oldest are not shown. */
  #hidden = 0

  constructor() {
    this.#earlier = element('button', {
      class: 'earlier',
      type: 'button',
      hidden: true,
      onclick: () => this.#showEarlier(),
    })
    this.element = element('div', { class: 'log' }, this.#earlier, this.#items)
  }

  get count(): number {
    return this.#events.length
  }

  clear(): void {
    this.#events = []
    this.#hidden = 0
    this.#items.replaceChildren()
    this.#tellHidden()
  }

  event(event: SessionEvent): void {
    this.#events.push(event)
    this.#items.append(entry(event))
    if (this.#items.childElementCount <= SHOWN_MAX) return
    this.#items.firstElementChild?.remove()
    this.#hidden += 1
    this.#tellHidden()
  }

  #showEarlier(): void {
    const from = Math.max(0, this.#hidden - SHOWN_MAX)
    this.#items.prepend(...this.#events.slice(from, this.#hidden).map(entry))
    this.#hidden = from
    this.#tellHidden()
  }

  #tellHidden(): void {
    this.#earlier.hidden = this.#hidden === 0
    say(this.#earlier, `Show earlier events (${this.#hidden})`)
  }
}

function entry(event: SessionEvent): HTMLElement {
  const { seq, at, type } = event
  const time = element('time', { title: fullTime(at) }, clockTime(at))
  const by = 'by' in event ? principalText(event.by) : null
  const summary = element(
    'summary',
    {},
    element('span', { class: 'seq' }, String(seq)),
    element('span', { class: 'mono' }, type),
    element('span', { class: 'gist' }, by === null ? gist(event) : `${gist(event)}  by ${by}`),
    time,
  )
  const details = element('details', { 'data-seq': seq, 'data-type': type }, summary)
  // Written out only when somebody looks.
  const open = (): void => {
    details.append(element('pre', { tabindex: 0 }, JSON.stringify(event, null, 2)))
  }
  details.addEventListener('toggle', open, { once: true })
  return details
}

/** The one thing worth knowing of an event without opening it. */
function gist(event: SessionEvent): string {
  switch (event.type) {
    case 'session.created':
      return `${event.agent}, ${event.reconnect}${event.exclusive ? ', exclusive' : ''}`
    case 'session.bound':
      return event.backend
    case 'session.closed':
      return event.reason
    case 'turn.queued':
    case 'turn.joined':
    case 'turn.started':
      return `${event.turn}  ${typeof event.input === 'string' ? event.input : event.input.text}`
    case 'message.added':
      return event.text
    case 'turn.output':
      return `${event.turn}  ${event.text}`
    case 'turn.activity':
      return `${event.turn}  ${event.kind}`
    case 'turn.failed':
      return `${event.turn}  ${event.error.message}`
    case 'turn.cancelled':
    case 'turn.interrupted':
      return `${event.turn}  ${event.reason}`
    case 'turn.done':
    case 'turn.expired':
      return event.turn
    case 'ask.opened':
      return event.question
    case 'ask.settled':
      return event.outcome
    case 'attachment.ended':
      return `${event.attachment.slice(0, 6)}  ${event.reason}`
    case 'attachment.opened':
      return `${event.attachment.slice(0, 6)}  ${event.role}`
    case 'attachment.resumed':
      return `${event.attachment.slice(0, 6)}  connection ${event.epoch}`
    case 'attachment.detached':
      return event.attachment.slice(0, 6)
    case 'attachment.confirmed':
      // Not in a log that was begun before crowds were recorded together.
      return (event.attachments ?? []).map((id) => id.slice(0, 6)).join(', ')
    case 'link.created':
      return event.scopes.join(', ')
    case 'link.used':
    case 'link.revoked':
      return event.link
    default:
      // Of a newer version than this page.
      return ''
  }
}
