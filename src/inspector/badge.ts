/** The state of the connection: live, reconnecting with the remaining time, or ended. */
import type { ClientState } from '../client/index.ts'
import { svgElement, element, setText } from './element.ts'
import { duration } from './moment.ts'

const RADIUS = 7
const CIRCUMFERENCE = 2 * Math.PI * RADIUS
const TICK_MS = 250

export class Badge {
  readonly element: HTMLElement
  readonly #text = element('span')
  readonly #rest = svgElement('circle', { class: 'rest', cx: 9, cy: 9, r: RADIUS })
  readonly #ring: SVGElement
  readonly #dot: SVGElement
  #timer: number | undefined

  constructor() {
    this.#ring = svgElement(
      'svg',
      { viewBox: '0 0 18 18', 'aria-hidden': 'true' },
      svgElement('circle', { class: 'track', cx: 9, cy: 9, r: RADIUS }),
      this.#rest,
    )
    this.#dot = svgElement(
      'svg',
      { viewBox: '0 0 18 18', 'aria-hidden': 'true' },
      svgElement('circle', { class: 'dot', cx: 9, cy: 9, r: 4 }),
    )
    this.element = element('p', { class: 'badge' }, this.#dot, this.#text)
  }

  /** The ring shows the remaining part of `graceMs`. */
  show(state: ClientState, graceMs: number, isWatcher: boolean): void {
    clearInterval(this.#timer)
    this.element.dataset['state'] = state.name
    const isLost = state.name === 'reconnecting'
    this.element.replaceChildren(isLost ? this.#ring : this.#dot, this.#text)
    if (!isLost) return setText(this.#text, labelOf(state, isWatcher))
    const tick = (): void => this.#drain(state.giveUpAt - Date.now(), graceMs)
    tick()
    this.#timer = setInterval(tick, TICK_MS)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #drain(leftMs: number, graceMs: number): void {
    const left = Math.max(0, leftMs)
    const part = Math.min(1, left / Math.max(1, graceMs))
    this.#rest.setAttribute('stroke-dasharray', `${part * CIRCUMFERENCE} ${CIRCUMFERENCE}`)
    const seconds = Math.ceil(left / 1000)
    const rest = seconds < 120 ? `${seconds} s` : duration(left)
    setText(this.#text, `Reconnecting… ${rest} left`)
  }
}

function labelOf(state: ClientState, isWatcher: boolean): string {
  switch (state.name) {
    case 'connecting':
    case 'reconnecting':
      return 'Connecting…'
    case 'live':
      return isWatcher ? 'Live, watching' : 'Live'
    case 'ended':
      return 'Ended'
  }
}
