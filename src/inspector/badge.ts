/** The state of the connection: live, reconnecting with the remaining time, or ended. */
import type { ClientState } from '../client/index.ts'
import { element, setText, svgElement } from './element.ts'
import { duration } from './moment.ts'

const RADIUS = 7
const CIRCUMFERENCE = 2 * Math.PI * RADIUS
const TICK_MS = 250

const LABELS = { connecting: 'Connecting…', live: 'Live', ended: 'Ended' } as const

export function connectionBadge() {
  const text = element('span')
  const rest = circle('rest', RADIUS)
  const ring = icon(circle('track', RADIUS), rest)
  const dot = icon(circle('dot', 4))
  const badge = element('p.badge', dot, text)
  let timer: number | undefined

  function drain(leftMs: number, graceMs: number): void {
    const part = Math.min(1, leftMs / Math.max(1, graceMs))
    rest.setAttribute('stroke-dasharray', `${part * CIRCUMFERENCE} ${CIRCUMFERENCE}`)
    const seconds = Math.ceil(leftMs / 1000)
    setText(text, `Reconnecting… ${seconds < 120 ? `${seconds} s` : duration(leftMs)} left`)
  }

  return {
    element: badge,
    /** The ring shows the remaining part of `graceMs`. */
    show(state: ClientState, graceMs: number, isWatcher: boolean): void {
      clearInterval(timer)
      badge.dataset['state'] = state.name
      badge.replaceChildren(state.name === 'reconnecting' ? ring : dot, text)
      if (state.name === 'reconnecting') {
        const tick = (): void => drain(Math.max(0, state.giveUpAt - Date.now()), graceMs)
        tick()
        timer = setInterval(tick, TICK_MS)
      } else if (state.name === 'live' && isWatcher) setText(text, 'Live, watching')
      else setText(text, LABELS[state.name])
    },
    stop: () => clearInterval(timer),
  }
}

function icon(...circles: readonly SVGElement[]): SVGElement {
  return svgElement('svg', { viewBox: '0 0 18 18', 'aria-hidden': 'true' }, ...circles)
}

function circle(kind: string, radius: number): SVGElement {
  return svgElement('circle', { class: kind, cx: 9, cy: 9, r: radius })
}
