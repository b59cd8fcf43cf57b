/** Vitest's list of runner pages, by session: a page stays on it while it may come back. */
import type { Orchestrator } from './internals.ts'
import type { Seat } from './seat.ts'
import type { Seats } from './seats.ts'

export class Orchestrators extends Map<string, Orchestrator> {
  readonly #seats: Seats

  constructor(seats: Seats) {
    super()
    this.#seats = seats
  }

  /** A connection was set up: Vitest gets the seat's page, which outlives it. */
  override set(id: string, page: Orchestrator): this {
    const seat = this.#seats.get(id)
    if (seat === undefined) return super.set(id, page)
    seat.connected(page)
    return super.set(id, heldPage(seat))
  }

  override has(id: string): boolean {
    return super.has(id) && (this.#seats.get(id)?.canServe ?? true)
  }

  /** A connection closed, which decides nothing here: `destroySession` follows. */
  override delete(id: string): boolean {
    const seat = this.#seats.get(id)
    return seat === undefined || seat.over !== null ? super.delete(id) : this.has(id)
  }
}

/** The page as Vitest sees it: the same, whichever connection it has. */
function heldPage(seat: Seat): Orchestrator {
  return {
    createTesters(options) {
      const files = options.files.map(({ filepath }) => filepath).join(', ')
      return seat.call(files, (page) => page.createTesters(options))
    },
    cleanupTesters: () => seat.call('clean up', (page) => page.cleanupTesters()),
    $close: (error) => seat.hangUp(error),
    get $closed() {
      return !seat.canServe
    },
  }
}
