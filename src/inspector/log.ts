/** The session's log: every event on one line, as JSON when it is opened. */
import type { SessionEvent } from '../client/index.ts'
import { eventSummary } from '../wire/event-summary.ts'
import { button, element, setText } from './element.ts'
import { clockTime, fullTime } from './moment.ts'

/** How many events are shown at first; a button shows earlier ones. */
const SHOWN_MAX = 300

export class LogView {
  readonly #items = element('div')
  readonly #earlier = button('', () => this.#showEarlier(), { class: 'earlier', hidden: true })
  readonly element = element('div.log', this.#earlier, this.#items)
  #events: SessionEvent[] = []
  /** How many of the oldest events are not shown. */
  #hidden = 0

  get count(): number {
    return this.#events.length
  }

  clear(): void {
    this.#events = []
    this.#hidden = 0
    this.#items.replaceChildren()
    this.#showHidden()
  }

  event(event: SessionEvent): void {
    this.#events.push(event)
    this.#items.append(entry(event))
    if (this.#items.childElementCount <= SHOWN_MAX) return
    this.#items.firstElementChild?.remove()
    this.#hidden += 1
    this.#showHidden()
  }

  #showEarlier(): void {
    const from = Math.max(0, this.#hidden - SHOWN_MAX)
    this.#items.prepend(...this.#events.slice(from, this.#hidden).map(entry))
    this.#hidden = from
    this.#showHidden()
  }

  #showHidden(): void {
    this.#earlier.hidden = this.#hidden === 0
    setText(this.#earlier, `Show earlier events (${this.#hidden})`)
  }
}

function entry(event: SessionEvent): HTMLElement {
  const { seq, at, type } = event
  const turn = 'turn' in event ? `${event.turn}  ` : ''
  const summary = element(
    'summary',
    element('span.seq', String(seq)),
    element('span.mono', type),
    element('span.gist', `${turn}${eventSummary(event)}`),
    element('time', { title: fullTime(at) }, clockTime(at)),
  )
  const details = element('details', { 'data-seq': seq, 'data-type': type }, summary)
  // Rendered when it is opened for the first time.
  const open = (): void => {
    details.append(element('pre', { tabindex: 0 }, JSON.stringify(event, null, 2)))
  }
  details.addEventListener('toggle', open, { once: true })
  return details
}
