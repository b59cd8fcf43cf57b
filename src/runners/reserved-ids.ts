/**
 * The session ids that a runner chooses for a program that stores the conversation itself. An id is
 * recorded before the program that uses it starts; after any failure the next start uses the same.
 */
import { randomUUID } from 'node:crypto'
import type { RunnerContext } from '../core/index.ts'

/** How the program is started: with a new session of its own, or with an existing one. */
export type Start = { readonly backend: string; readonly isFirst: boolean }

/** How many sessions are remembered whose program has answered; the oldest are forgotten. */
const KNOWN_MAX = 10_000

export class ReservedIds {
  readonly #known = new Set<string>()

  /** Reserves an id if there is none yet. */
  async start(context: RunnerContext): Promise<Start> {
    const { id, backend } = context.session
    if (backend !== null) return { backend, isFirst: !(await this.hasAnswered(id, context)) }
    const reserved = randomUUID()
    await context.bind(reserved)
    return { backend: reserved, isFirst: true }
  }

  /**
   * Whether the program has answered in this session before. A first turn that ended early may not
   * have created the program's session; if it has, the program refuses to create it again.
   */
  async hasAnswered(session: string, context: RunnerContext): Promise<boolean> {
    if (this.#known.has(session)) return true
    const { origin, backend } = context.session
    for await (const { role, turn } of context.history()) {
      // Messages of another conversation, from which this one is a fork.
      if (turn === '' && origin?.backend !== backend) continue
      if (role !== 'assistant') continue
      this.remember(session)
      return true
    }
    return false
  }

  remember(session: string): void {
    this.#known.delete(session)
    this.#known.add(session)
    const [oldest] = this.#known
    if (this.#known.size > KNOWN_MAX && oldest !== undefined) this.#known.delete(oldest)
  }

  /** Whether it was known. */
  forget(session: string): boolean {
    return this.#known.delete(session)
  }
}
