/**
 * The sessions that a node holds in memory or is about to, the longest unused first. Beyond a limit
 * idle ones are evicted; the next request loads them again.
 */
import type { Clock } from './clock.ts'
import type { Limits } from './limits.ts'
import type { LiveSession } from './live.ts'

/** Between two looks at whether a turn is still under way. */
const MOTION_LOOK_MS = 10
/** A session used so recently is not evicted, however many there are. */
const IDLE_MS = 100

export class HeldSessions {
  readonly #held = new Map<string, { readonly live: LiveSession; readonly usedAt: number }>()
  readonly #byKey = new Map<string, LiveSession>()
  /** Sessions that are being created or loaded. */
  readonly #arriving = new Map<string, Promise<LiveSession | null>>()
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

  /**
   * The session, which counts as used now; null while it is being loaded: requests of that time
   * keep their order (I3).
   */
  use(id: string): LiveSession | null {
    const live = this.get(id)
    if (live === null || this.#arriving.has(id)) return null
    this.#held.delete(id)
    this.#held.set(id, { live, usedAt: this.#clock.monotonic() })
    return live
  }

  /** The session that is being created or loaded: other requests wait for it. */
  arriving(id: string): Promise<LiveSession | null> | undefined {
    return this.#arriving.get(id)
  }

  /**
   * Until `coming` is settled no other request of this node creates or loads the session. One that
   * is held is not on its way: requests for it neither wait for `coming` nor fail with it.
   */
  async arrive(id: string, coming: Promise<LiveSession | null>): Promise<LiveSession | null> {
    if (this.get(id) !== null) return coming
    this.#arriving.set(id, coming)
    try {
      return await coming
    } finally {
      if (this.#arriving.get(id) === coming) this.#arriving.delete(id)
    }
  }

  /** False if it was not held any more. */
  remove(live: LiveSession): boolean {
    if (this.get(live.id) !== live) return false
    const { key } = live.session
    this.#held.delete(live.id)
    if (key !== null && this.#byKey.get(key) === live) this.#byKey.delete(key)
    return true
  }

  /** How many have a turn that runs, or is decided and not known to be durable yet. */
  get inMotion(): number {
    return this.all.filter(({ inMotion }) => inMotion).length
  }

  /** Resolves when none is in motion any more, or after `ms`. */
  async settle(ms: number): Promise<void> {
    const until = this.#clock.monotonic() + ms
    while (this.inMotion > 0 && this.#clock.monotonic() < until) {
      await new Promise<void>((resolve) => this.#clock.after(MOTION_LOOK_MS, resolve))
    }
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
