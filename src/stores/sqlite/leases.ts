/**
 * The nodes that live. One process has the file, so its leases need not outlive it: whoever opens
 * the file knows that every node before it is dead.
 */
import type { Beat } from '../../core/store.ts'

export class Leases {
  readonly #until = new Map<string, number>()

  beat(node: string, leaseMs: number): Beat {
    const isLapsed = this.#until.has(node) && !this.isAlive(node)
    if (leaseMs > 0) this.#until.set(node, performance.now() + leaseMs)
    else this.#until.delete(node)
    if (isLapsed) return 'lapsed'
  }

  isAlive(node: string): boolean {
    return (this.#until.get(node) ?? -Infinity) > performance.now()
  }

  alive(): readonly string[] {
    return [...this.#until.keys()].filter((node) => this.isAlive(node))
  }
}
