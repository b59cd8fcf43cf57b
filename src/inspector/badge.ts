/** The state of the connection: live, reconnecting with the remaining time, or ended. */
import type { ClientState } from '../client/index.ts'
import { element, setText, svgElement } from './element.ts'
import { duration } from './moment.ts'

const RADIUS = 7
const CIRCUMFERENCE = 2 * Math.PI * RADIUS
const TICK_MS = 250

export class Badge {
  readonly #text = element('span')
  readonly #rest = circle('rest', RADIUS)
  readonly #ring = icon(circle('track', RADIUS), this.#rest)
  readonly #dot = icon(circle('dot', 4))
  readonly element = element('p.badge', this.#dot, this.#text)
  #timer: number | undefined

  /** The ring shows the remaining part of `graceMs`. */
  show(state: ClientState, graceMs: number, isWatcher: boolean): void {
    clearInterval(this.#timer)
    this.element.dataset['state'] = state.name
    const isLost = state.name === 'reconnecting'
    this.element.replaceChildren(isLost ? this.#ring : this.#dot, this.#text)
    if (!isLost)
      return setText(
        this.#text,
        isWatcher && state.name === 'live' ? 'Live, watching' : LABELS[state.name],
      )
    const tick = (): void => this.#drain(Math.max(0, state.giveUpAt - Date.now()), graceMs)
    tick()
    this.#timer = setInterval(tick, TICK_MS)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #drain(leftMs: number, graceMs: number): void {
    const part = Math.min(1, leftMs / Math.max(1, graceMs))
    this.#rest.setAttribute('stroke-dasharray', `${part * CIRCUMFERENCE} ${CIRCUMFERENCE}`)
    const seconds = Math.ceil(leftMs / 1000)
    const rest = seconds < 120 ? `${seconds} s` : duration(leftMs)
    setText(this.#text, `Reconnecting… ${rest} left`)
  }
}

const LABELS = { connecting: 'Connecting…', live: 'Live', ended: 'Ended' } as const

function icon(...circles: readonly SVGElement[]): SVGElement {
  return svgElement('svg', { viewBox: '0 0 18 18', 'aria-hidden': 'true' }, ...circles)
}

function circle(kind: string, radius: number): SVGElement {
  return svgElement('circle', { class: kind, cx: 9, cy: 9, r: radius })
}
