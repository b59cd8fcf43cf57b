/** The session's log: every event on one line, as JSON when it is opened. */
import type { SessionEvent } from '../client/index.ts'
import { eventSummary } from '../wire/views.ts'
import { button, element, setText } from './element.ts'
import { clockTime, fullTime } from './moment.ts'

/** How many events are shown at first; a button shows earlier ones. */
const SHOWN_MAX = 300

export function logView() {
  const items = element('div')
  const earlier = button('', showEarlier, { class: 'earlier', hidden: true })
  let events: SessionEvent[] = []
  /** How many of the oldest events are not shown. */
  let hidden = 0

  function hide(count: number): void {
    hidden = count
    earlier.hidden = hidden === 0
    setText(earlier, `Show earlier events (${hidden})`)
  }

  function showEarlier(): void {
    const from = Math.max(0, hidden - SHOWN_MAX)
    items.prepend(...events.slice(from, hidden).map(entry))
    hide(from)
  }

  return {
    element: element('div.log', earlier, items),
    count: () => events.length,
    clear(): void {
      events = []
      items.replaceChildren()
      hide(0)
    },
    event(event: SessionEvent): void {
      events.push(event)
      items.append(entry(event))
      if (items.childElementCount <= SHOWN_MAX) return
      items.firstElementChild?.remove()
      hide(hidden + 1)
    },
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
