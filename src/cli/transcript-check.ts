/**
 * Checks a transcript of `holdfast export --transcript`: its numbers grow, every turn begins with a
 * message of the user, and no turn continues after another has begun.
 */
import type { Findings } from '../core/index.ts'

export type CheckedMessage = { readonly seq: number; readonly turn: string; readonly role: string }

export class TranscriptCheck {
  readonly #problems: string[] = []
  readonly #turns = new Set<string>()
  #current: string | null = null
  #hasAnswer = true
  readonly #unanswered: string[] = []
  #seq = 0
  #messages = 0

  add({ seq, turn, role }: CheckedMessage): void {
    this.#messages += 1
    if (seq <= this.#seq) this.#bad(`message ${seq} follows message ${this.#seq}`)
    this.#seq = seq
    if (role === 'user') this.#begin(seq, turn)
    else if (turn === this.#current) this.#hasAnswer = true
    else this.#bad(`message ${seq} is of turn ${turn}, within turn ${this.#current}`)
  }

  #begin(seq: number, turn: string): void {
    if (this.#turns.has(turn)) this.#bad(`message ${seq} begins turn ${turn} again`)
    this.#leave()
    this.#turns.add(turn)
    this.#current = turn
    this.#hasAnswer = false
  }

  #leave(): void {
    if (this.#current !== null && !this.#hasAnswer) this.#unanswered.push(this.#current)
  }

  #bad(problem: string): void {
    this.#problems.push(problem)
  }

  /** Turns without an answer have failed, were cancelled or still run: only the log shows which. */
  finish(): Findings {
    this.#leave()
    const [events, turns] = [this.#messages, this.#turns.size]
    return { events, turns, problems: this.#problems, pending: this.#unanswered }
  }
}
