/**
 * The open sockets of a door whose protocol has no pings of its own: a silent one is pinged, then
 * given up; and if all together have too much that was not read, those that have most are cut.
 */
import { largestBeyond } from '../doors/cdp/limits.ts'
import type { WebSocketEnd } from './upgrade.ts'

export type WatchedSocket = Pick<
  WebSocketEnd,
  'heardAt' | 'isPaused' | 'bufferedBytes' | 'ping' | 'cut' | 'cutSlow'
>

export type WatchLimits = {
  /** Silence after which a ping is sent, and after which the connection is given up. */
  readonly pingMs: number
  readonly deadMs: number
  readonly unreadTotalBytesMax: number
}

export class WatchedSockets<End extends WatchedSocket = WebSocketEnd> {
  readonly #limits: WatchLimits
  readonly #open = new Set<End>()
  readonly #timer: NodeJS.Timeout

  /** `besides`: what else is looked at as often. */
  constructor(limits: WatchLimits, besides: () => void = () => undefined) {
    this.#limits = limits
    const watch = (): void => {
      this.#watch()
      besides()
    }
    this.#timer = setInterval(watch, limits.pingMs / 3).unref()
  }

  get all(): readonly End[] {
    return [...this.#open]
  }

  add(end: End): void {
    this.#open.add(end)
  }

  delete(end: End): void {
    this.#open.delete(end)
  }

  #watch(): void {
    const now = performance.now()
    const { pingMs, deadMs, unreadTotalBytesMax } = this.#limits
    for (const end of this.all) {
      if (end.heardAt === null) continue
      // It is silent because it is not listened to.
      if (end.isPaused) end.heardAt = now
      else if (now - end.heardAt > deadMs) end.cut()
      else if (now - end.heardAt > pingMs) end.ping()
    }
    // Each has a bound, but many that do not read could still fill the memory together.
    const unread = ({ bufferedBytes }: End): number => bufferedBytes
    for (const end of largestBeyond(this.#open, unread, unreadTotalBytesMax)) end.cutSlow()
  }

  close(): void {
    clearInterval(this.#timer)
  }
}
