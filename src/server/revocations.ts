/**
 * What was let in by a token and still goes on: requests, streams and sockets of every door. This
 * is the one place that ends them when their token is taken back or expires.
 */
import { SERVER_LIMITS } from './limits.ts'

/** Something that goes on by a token's leave. */
type Revocable = {
  readonly isGood: () => boolean
  readonly end: () => void
}

export class Revocations {
  readonly #held = new Set<Revocable>()
  readonly #revision: () => number | null
  readonly #timer: NodeJS.Timeout
  #seen: number | null
  #checkedAt = performance.now()

  /** `revision` is another number whenever a token may have lost something; null: it cannot say. */
  constructor(revision: () => number | null) {
    this.#revision = revision
    this.#seen = revision()
    this.#timer = setInterval(() => this.#look(), SERVER_LIMITS.revocationMs).unref()
  }

  /** Ends it, once, when it is no longer good. The returned function is for when it is over. */
  add(isGood: () => boolean, end: () => void): () => void {
    const revocable = { isGood, end }
    this.#held.add(revocable)
    return () => void this.#held.delete(revocable)
  }

  close(): void {
    clearInterval(this.#timer)
    this.#held.clear()
  }

  #look(): void {
    const seen = this.#revision()
    const now = performance.now()
    const isDue = now - this.#checkedAt >= SERVER_LIMITS.revocationBlindMs
    if (seen === null ? !isDue : seen === this.#seen) return
    this.#seen = seen
    this.#checkedAt = now
    for (const revocable of [...this.#held]) {
      if (revocable.isGood()) continue
      this.#held.delete(revocable)
      revocable.end()
    }
  }
}
