/**
 * The watchers of a session: clients that only read. They are in the memory of the session's owner
 * and end with their connection. They do not keep the session open and do not count as clients to
 * ask. They have limits of their own, so that they take no driver's place, and those of one
 * principal take no other principal's. The log has no trace of them but `link.used`, where a link
 * counts its uses.
 */
import { HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import { groupByPrincipal, type Principal } from './state.ts'

export type Watcher = {
  /** Fresh and unguessable (I6). */
  readonly id: string
  /** The link that it came in by, if any: they end together. */
  readonly link: string | null
  /** Which use of the link: one that counts them lets its watcher back without another. */
  readonly use: string
  readonly by: Principal
}

/** No attachment's id has a dot: what a client shows on coming back tells the two apart. */
const PREFIX = 'w.'

export function watcherId(id: string): string {
  return PREFIX + id
}

export function isWatcherId(id: string): boolean {
  return id.startsWith(PREFIX)
}

export class Watchers {
  readonly #session: string
  readonly #limits: Pick<Limits, 'watchersMax' | 'watchersPerLinkMax'>
  readonly #watchers = new Map<string, Watcher>()

  constructor(session: string, limits: Pick<Limits, 'watchersMax' | 'watchersPerLinkMax'>) {
    this.#session = session
    this.#limits = limits
  }

  get count(): number {
    return this.#watchers.size
  }

  has(id: string): boolean {
    return this.#watchers.has(id)
  }

  /**
   * Returns the watcher that loses its place to it, if any. Throws `too_many` if there is no such
   * watcher beyond the bounds, and `in_use` for a use whose watcher is there.
   */
  add(watcher: Watcher): Watcher | null {
    const { id, link, use } = watcher
    const { watchersMax, watchersPerLinkMax } = this.#limits
    if (use !== id && this.byUse(use) !== null) {
      throw new HoldfastError('in_use', 'this use of the link is taken by another connection')
    }
    const isCrowd = link !== null && this.#of(link).length >= watchersPerLinkMax
    const isFullOfGuests = link !== null && this.#guests.length >= Math.ceil(watchersMax / 2)
    const isFull = isFullOfGuests || this.count >= watchersMax
    const leaver = isFull ? this.#leaver(watcher) : null
    if (isCrowd || (isFull && leaver === null)) {
      throw new HoldfastError('too_many', `session ${this.#session} has too many watchers`)
    }
    if (leaver !== null) this.remove(leaver.id)
    this.#watchers.set(id, watcher)
    return leaver
  }

  /**
   * The last that came of the principal that has most, if that has more than the newcomer's will
   * have. A guest, which came in by a link, never takes the place of a client that did not.
   */
  #leaver(newcomer: Watcher): Watcher | null {
    const pool = newcomer.link === null ? [...this.#watchers.values()] : this.#guests
    const groups = groupByPrincipal([...pool, newcomer])
    const own = groups.find((group) => group.includes(newcomer)) ?? []
    const [largest = own] = groups.toSorted((one, other) => other.length - one.length)
    return largest.length > own.length ? (largest.at(-1) ?? null) : null
  }

  remove(id: string): void {
    this.#watchers.delete(id)
  }

  /** The watcher that came in by this use of a link, if it is there. */
  byUse(use: string): Watcher | null {
    return [...this.#watchers.values()].find((watcher) => watcher.use === use) ?? null
  }

  /** Removes and returns those that came in by a link. */
  removeBy(link: string): readonly Watcher[] {
    const gone = this.#of(link)
    for (const { id } of gone) this.remove(id)
    return gone
  }

  clear(): void {
    this.#watchers.clear()
  }

  /** Those that came in by a link: half of the places are for clients that did not. */
  get #guests(): readonly Watcher[] {
    return [...this.#watchers.values()].filter(({ link }) => link !== null)
  }

  #of(link: string): readonly Watcher[] {
    return [...this.#watchers.values()].filter((watcher) => watcher.link === link)
  }
}
