/**
 * Leases of the nodes of one process, in memory. On SQLite they need not outlive the process: the
 * process that opens the file has its lock, so every earlier node is dead.
 */
import type { Clock } from '../core/clock.ts'
import type { Beat } from '../core/store.ts'

export class Leases {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #until = new Map<string, number>()

  constructor(clock: Pick<Clock, 'monotonic'> = { monotonic: () => performance.now() }) {
    this.#clock = clock
  }

  beat(node: string, leaseMs: number): Beat {
    const isLapsed = this.hasLapsed(node)
    if (leaseMs > 0) this.#until.set(node, this.#clock.monotonic() + leaseMs)
    else this.#until.delete(node)
    if (isLapsed) return 'lapsed'
  }

  isAlive(node: string): boolean {
    return (this.#until.get(node) ?? -Infinity) > this.#clock.monotonic()
  }

  /** Its lease ended without being given up. */
  hasLapsed(node: string): boolean {
    return this.#until.has(node) && !this.isAlive(node)
  }

  alive(): readonly string[] {
    return [...this.#until.keys()].filter((node) => this.isAlive(node))
  }
}
