/**
 * Answers on their way. One that was sent twice, because the connection was lost before its reply,
 * may be refused as too late although it was the first of the two that settled the ask: the log
 * says which. It says so once: an answer that is sent after that is certainly too late.
 */
import { deferred } from './deferred.ts'
import type { HoldfastClientError } from './errors.ts'
import type { Settle } from './requests.ts'

class PendingAnswer {
  readonly ask: string
  /** What it says, as JSON: a copy of this page may have answered from the same place. */
  readonly #json: string
  readonly #done = deferred<void>()
  readonly #forget: (answer: PendingAnswer) => void
  /** Whether this answer settled the ask; null until the log has said so. */
  #own: boolean | null = null
  #refusal: HoldfastClientError | null = null

  constructor(ask: string, answer: unknown, forget: (answer: PendingAnswer) => void) {
    this.ask = ask
    this.#json = JSON.stringify(answer)
    this.#forget = forget
  }

  get done(): Promise<void> {
    return this.#done.promise
  }

  taken(): void {
    this.#forget(this)
    this.#done.resolve()
  }

  refused(error: HoldfastClientError, again: boolean): void {
    const doubtful = again && error.code === 'ask_settled'
    if (!doubtful || this.#own === false) this.#reject(error)
    else if (this.#own === true) this.taken()
    else this.#refusal = error
  }

  /** `own`: what was answered from this client's place; undefined: another one has settled it. */
  settled(own: unknown): void {
    this.#own = own !== undefined && JSON.stringify(own) === this.#json
    if (this.#refusal === null) return
    if (this.#own) this.taken()
    else this.#reject(this.#refusal)
  }

  /** The log will not say which of the two settled the ask. */
  end(error: HoldfastClientError): void {
    if (this.#refusal !== null) this.#reject(error)
  }

  #reject(error: HoldfastClientError): void {
    this.#forget(this)
    this.#done.reject(error)
  }
}

/** Asks whose end is remembered: the newest. Far fewer can wait at one time. */
const SETTLED_MAX = 1_024

export class Answers {
  readonly #waiting = new Set<PendingAnswer>()
  /** Asks that the log has settled. */
  readonly #settled = new Set<string>()

  add(ask: string, said: unknown): { readonly done: Promise<void>; readonly settle: Settle } {
    const answer = new PendingAnswer(ask, said, (over) => this.#waiting.delete(over))
    this.#waiting.add(answer)
    if (this.#settled.has(ask)) answer.settled(undefined)
    const settle: Settle = {
      taken: () => answer.taken(),
      refused: (error, again) => answer.refused(error, again),
    }
    return { done: answer.done, settle }
  }

  /** The log says what settled an ask; `own`: the answer, if it came from this client's place. */
  settled(ask: string, own: unknown): void {
    for (const answer of [...this.#waiting]) if (answer.ask === ask) answer.settled(own)
    this.#settled.add(ask)
    const [oldest] = this.#settled
    if (this.#settled.size > SETTLED_MAX && oldest !== undefined) this.#settled.delete(oldest)
  }

  end(error: HoldfastClientError): void {
    for (const answer of [...this.#waiting]) answer.end(error)
    this.#settled.clear()
  }
}
