/** The connection at a glance: live, on its way back with the time that is left, or over. */
import type { ClientState } from '../client/index.ts'
import { drawing, element, say } from './element.ts'
import { duration } from './moment.ts'

const RADIUS = 7
const ROUND = 2 * Math.PI * RADIUS
const TICK_MS = 250

export class Badge {
  readonly element: HTMLElement
  readonly #text = element('span')
  readonly #rest = drawing('circle', { class: 'rest', cx: 9, cy: 9, r: RADIUS })
  readonly #ring: SVGElement
  readonly #dot: SVGElement
  #timer: number | undefined

  constructor() {
    this.#ring = drawing(
      'svg',
      { viewBox: '0 0 18 18', 'aria-hidden': 'true' },
      drawing('circle', { class: 'track', cx: 9, cy: 9, r: RADIUS }),
      this.#rest,
    )
    this.#dot = drawing(
      'svg',
      { viewBox: '0 0 18 18', 'aria-hidden': 'true' },
      drawing('circle', { class: 'dot', cx: 9, cy: 9, r: 4 }),
    )
    this.element = element('p', { class: 'badge' }, this.#dot, this.#text)
  }

  /** `graceMs` is the whole that the ring shows the rest of. */
  show(state: ClientState, graceMs: number, isWatcher: boolean): void {
    clearInterval(this.#timer)
    this.element.dataset['state'] = state.name
    const isBack = state.name === 'reconnecting'
    this.element.replaceChildren(isBack ? this.#ring : this.#dot, this.#text)
    if (!isBack) return say(this.#text, wordsOf(state, isWatcher))
    const tick = (): void => this.#drain(state.giveUpAt - Date.now(), graceMs)
    tick()
    this.#timer = setInterval(tick, TICK_MS) as unknown as number
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #drain(leftMs: number, graceMs: number): void {
    const left = Math.max(0, leftMs)
    const part = Math.min(1, left / Math.max(1, graceMs))
    this.#rest.setAttribute('stroke-dasharray', `${part * ROUND} ${ROUND}`)
    const seconds = Math.ceil(left / 1000)
    const rest = seconds < 120 ? `${seconds} s` : duration(left)
    say(this.#text, `Reconnecting… ${rest} left`)
  }
}

function wordsOf(state: ClientState, isWatcher: boolean): string {
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
