/**
 * Checks a transcript of `holdfast export --transcript`: its numbers grow, every turn begins with a
 * message of the user, and no turn continues after another has begun.
 */
import type { Findings } from '../core/index.ts'

export type CheckedMessage = { readonly seq: number; readonly turn: string; readonly role: string }

export class TranscriptCheck {
  readonly #problems: string[] = []
  /** All turns, and whether they have an answer. */
  readonly #turns = new Map<string, boolean>()
  #current: string | null = null
  #seq = 0
  #messages = 0

  add({ seq, turn, role }: CheckedMessage): void {
    const bad = (problem: string) => this.#problems.push(`message ${seq} ${problem}`)
    this.#messages += 1
    if (seq <= this.#seq) bad(`follows message ${this.#seq}`)
    this.#seq = seq
    if (role === 'user') {
      if (this.#turns.has(turn)) bad(`begins turn ${turn} again`)
      this.#turns.set(turn, false)
      this.#current = turn
    } else if (turn === this.#current) this.#turns.set(turn, true)
    else bad(`is of turn ${turn}, within turn ${this.#current}`)
  }

  /** Turns without an answer have failed, were cancelled or still run: only the log shows which. */
  finish(): Findings {
    const pending = [...this.#turns.keys()].filter((turn) => this.#turns.get(turn) === false)
    const [events, turns] = [this.#messages, this.#turns.size]
    return { events, turns, problems: this.#problems, pending }
  }
}
