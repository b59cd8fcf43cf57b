/**
 * Who wants to hear of appends. A listener that throws fails by itself, never the append it hears
 * of.
 */
import type { Append, AppendOutcome, Store } from '../core/store.ts'

export type Listener = Parameters<Store['watch']>[0]

export class Watchers {
  readonly #listeners = new Set<{ readonly tell: Listener }>()

  add(listener: Listener): () => void {
    const entry = { tell: listener }
    this.#listeners.add(entry)
    return () => void this.#listeners.delete(entry)
  }

  tell(appends: readonly Append[], outcomes: readonly AppendOutcome[]): void {
    if (this.#listeners.size === 0) return
    for (const [index, { session, after, events }] of appends.entries()) {
      if (outcomes[index] === 'appended') this.#tellOne(session, after + events.length)
    }
  }

  #tellOne(session: string, seq: number): void {
    for (const entry of this.#listeners) {
      queueMicrotask(() => {
        if (this.#listeners.has(entry)) entry.tell(session, seq)
      })
    }
  }

  clear(): void {
    this.#listeners.clear()
  }
}
