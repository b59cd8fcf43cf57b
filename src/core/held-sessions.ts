/**
 * The sessions that a node holds in memory, the longest unused first. Beyond a limit idle ones are
 * evicted; the next request loads them again.
 */
import type { Clock } from './clock.ts'
import type { Limits } from './limits.ts'
import type { LiveSession } from './live.ts'

/** A session used so recently is not evicted, however many there are. */
const IDLE_MS = 100

export class HeldSessions {
  readonly #held = new Map<string, { readonly live: LiveSession; readonly usedAt: number }>()
  readonly #byKey = new Map<string, LiveSession>()
  readonly #clock: Clock
  readonly #limits: Limits

  constructor({ clock, limits }: { readonly clock: Clock; readonly limits: Limits }) {
    this.#clock = clock
    this.#limits = limits
  }

  get size(): number {
    return this.#held.size
  }

  get all(): readonly LiveSession[] {
    return [...this.#held.values()].map(({ live }) => live)
  }

  get(id: string): LiveSession | null {
    return this.#held.get(id)?.live ?? null
  }

  idOfKey(key: string): string | null {
    return this.#byKey.get(key)?.id ?? null
  }

  add(live: LiveSession): void {
    const { key } = live.session
    this.#held.set(live.id, { live, usedAt: this.#clock.monotonic() })
    if (key !== null) this.#byKey.set(key, live)
  }

  /** The session, which counts as used now. */
  use(id: string): LiveSession | null {
    const live = this.get(id)
    if (live === null) return null
    this.#held.delete(id)
    this.#held.set(id, { live, usedAt: this.#clock.monotonic() })
    return live
  }

  /** False if it was not held any more. */
  remove(live: LiveSession): boolean {
    if (this.get(live.id) !== live) return false
    const { key } = live.session
    this.#held.delete(live.id)
    if (key !== null && this.#byKey.get(key) === live) this.#byKey.delete(key)
    return true
  }

  /** Removes and returns idle sessions beyond the limit; at most `looks` are looked at. */
  evict(looks: number): readonly LiveSession[] {
    const before = this.#clock.monotonic() - IDLE_MS
    const evicted: LiveSession[] = []
    let left = Math.min(looks, this.#held.size)
    for (const { live, usedAt } of this.#held.values()) {
      if (left === 0 || usedAt > before || this.size <= this.#limits.idleSessionsMax) break
      left -= 1
      if (live.idle) {
        this.remove(live)
        evicted.push(live)
      } else this.use(live.id)
    }
    return evicted
  }
}
