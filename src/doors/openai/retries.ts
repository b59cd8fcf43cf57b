/**
 * Retries that OpenAI's clients make by themselves. They name no idempotency key; they only mark a
 * retry as one (`x-stainless-retry-count`), with the very same body. So every first attempt is
 * given a key of its own, and a retry takes over the key of an earlier attempt: the core then joins
 * the turn, returns it finished, or runs it if it was never admitted (I11).
 *
 * Which attempt is meant is a guess only among requests with the same caller, session and body:
 * first one that was left without an answer just now, then one that was answered just now (its
 * answer may have been lost on the way), then whatever else there is; of several the one that was
 * left last.
 */

/** How long after its caller left an attempt may be retried, if it got no answer. */
const UNANSWERED_MS = 600_000
/** And if it got one. Clients retry within seconds, so this is also what "just now" means. */
const JUST_NOW_MS = 60_000
/** RetryAttempts remembered in all, and with one body. */
const ATTEMPTS_MAX = 10_000
const SAME_MAX = 32
/** How many of the oldest are checked for expiry with every new one. */
const EXPIRY_LOOKS = 4

export class RetryAttempt {
  /** What the core knows the turn by; to find one may take a moment. */
  readonly key: Promise<string>
  /** The highest retry count that was seen. */
  count: number
  /** Requests that wait for its answer. */
  callers = 0
  /** When the last of them left, on a clock that only goes forward. */
  leftAt = 0
  /** Somebody was sent all of its answer, and has no reason to try again. */
  isAnswered = false

  constructor(key: Promise<string>, count: number) {
    this.key = key
    this.count = count
  }

  isExpired(now: number): boolean {
    const window = this.isAnswered ? JUST_NOW_MS : UNANSWERED_MS
    return this.callers === 0 && now - this.leftAt > window
  }
}

export class RetryAttempts {
  /** By caller, session and body, as one digest; the oldest first. */
  readonly #known = new Map<string, readonly RetryAttempt[]>()
  #size = 0

  /** All that are remembered. */
  of(digest: string): readonly RetryAttempt[] {
    return this.#known.get(digest) ?? []
  }

  /** The attempt that this is a retry of, if it is remembered. */
  find(digest: string, count: number, now: number): RetryAttempt | null {
    const found = this.of(digest)
      .filter((attempt) => attempt.count < count && !attempt.isExpired(now))
      .toSorted((one, other) => rank(one, now) - rank(other, now) || other.leftAt - one.leftAt)
    return found[0] ?? null
  }

  add(digest: string, attempt: RetryAttempt, now: number): void {
    this.#forgetExpired(now)
    const same = this.of(digest).filter((other) => !other.isExpired(now))
    this.#set(digest, [...same, attempt].slice(-SAME_MAX))
    // What could not be begun cannot be joined.
    attempt.key.catch(() => {
      const others = this.of(digest).filter((other) => other !== attempt)
      this.#set(digest, others)
    })
  }

  #set(digest: string, attempts: readonly RetryAttempt[]): void {
    this.#size += attempts.length - this.of(digest).length
    if (attempts.length === 0) this.#known.delete(digest)
    else this.#known.set(digest, attempts)
  }

  #forgetExpired(now: number): void {
    let looks = EXPIRY_LOOKS
    for (const [digest, attempts] of this.#known) {
      const isFull = this.#size >= ATTEMPTS_MAX
      looks -= 1
      if (looks < 0 && !isFull) return
      if (isFull || attempts.every((attempt) => attempt.isExpired(now))) this.#set(digest, [])
    }
  }
}

/** The likelier one first. */
function rank({ isAnswered, callers, leftAt }: RetryAttempt, now: number): number {
  if (callers > 0) return 2
  if (isAnswered) return 1
  return now - leftAt <= JUST_NOW_MS ? 0 : 3
}
