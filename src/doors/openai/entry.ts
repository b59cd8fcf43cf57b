/**
 * How a request of this door becomes a turn.
 *
 * I10: a caller that goes away leaves the queue, an admitted turn goes on. I11: a request that is
 * repeated, by its `Idempotency-Key` or by the mark of a client that retries by itself, finds its
 * turn again.
 */
import { HoldfastError, type Input, type TurnOptions } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { RetryAttempt, RetryAttempts } from './attempts.ts'
import type { Admitted, Place, Visit } from './places.ts'

/** A request, ready to be a turn. */
export type Wish = {
  readonly place: Place
  readonly input: Input
  /** All of the request, to tell a repetition from another. */
  readonly body: unknown
  readonly isBackground?: boolean
}

const COUNT_HEADER = 'x-stainless-retry-count'
const BUSY_HEADER = 'x-session-busy'
const WAIT_HEADER = 'x-session-wait-ms'
/** Whoever gets these comes again. */
const REFUSED_FOR_NOW = [429, 503, 507]

export class Entry {
  readonly #attempts = new RetryAttempts()

  /** Resolves when the turn has started, or was found; throws if it was refused. */
  async admit(exchange: Exchange, wish: Wish): Promise<Admitted> {
    const { place, input, isBackground = false } = wish
    const key = exchange.header('idempotency-key') ?? (await this.#retryKey(exchange, wish))
    const visit: Visit = { input, options: new Caller(exchange, key), isBackground }
    return place.enter(visit)
  }

  async #retryKey(exchange: Exchange, { place, body }: Wish): Promise<string> {
    const { authority } = exchange.holdfast
    const { url, headers } = exchange.request
    // Who asks is a part of it: nobody gets another's answer for having asked the same.
    const facts = [headers.authorization ?? null, url, place.name, body]
    const digest = authority.digest(JSON.stringify(facts))
    const attempt = this.#attempt(exchange, place, digest)
    accompany(exchange, attempt)
    return attempt.key
  }

  /** The attempt that this request repeats, or a new one. Nothing is awaited before it is known. */
  #attempt(exchange: Exchange, place: Place, digest: string): RetryAttempt {
    const { clock } = exchange.holdfast.authority
    const count = retryCount(exchange)
    const now = clock.monotonic()
    const known = this.#attempts.find(digest, count, now)
    if (known !== null) return known
    const others = this.#attempts.of(digest)
    const attempt = new RetryAttempt(chooseKey(place, digest, count === 0 ? null : others), count)
    this.#attempts.add(digest, attempt, now)
    return attempt
  }
}

/**
 * What is told after the admission. If the session has moved to another node meanwhile, the request
 * must not be begun there as if nothing had happened: whoever repeats it finds its turn (I11).
 */
export async function afterAdmission(work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (thrown) {
    if (!(thrown instanceof HoldfastError) || thrown.code !== 'not_owner') throw thrown
    const message = 'the session has moved to another node while the turn ran: ask again'
    throw new HoldfastError('owner_unreachable', message)
  }
}

/** For a retry that is not remembered, the key of an attempt of before a new start, if there is. */
async function chooseKey(
  place: Place,
  digest: string,
  others: readonly RetryAttempt[] | null,
): Promise<string> {
  if (others === null) return place.newKey(digest)
  // An attempt that got no key has taken none.
  const known = await Promise.all(others.map(({ key }) => key.catch(() => '')))
  const earlier = await place.earlierKeys(digest)
  return earlier.find((key) => !known.includes(key)) ?? place.newKey(digest)
}

/** How often the client has tried before; one that does not tell is taken for new. */
function retryCount(exchange: Exchange): number {
  const text = exchange.header(COUNT_HEADER) ?? ''
  return /^\d{1,4}$/.test(text) ? Number(text) : 0
}

/** Keeps count of the attempt's callers, and of whether one of them was told everything. */
function accompany(exchange: Exchange, attempt: RetryAttempt): void {
  const { response, holdfast } = exchange
  const { clock } = holdfast.authority
  attempt.callers += 1
  attempt.count = Math.max(attempt.count, retryCount(exchange))
  response.once('close', () => {
    attempt.callers -= 1
    attempt.leftAt = clock.monotonic()
    const isRefused = REFUSED_FOR_NOW.includes(response.statusCode)
    if (response.writableFinished && !isRefused) attempt.isAnswered = true
  })
}

/** What the caller wants of the lane; whether it is still there is asked only if it has to wait. */
class Caller implements TurnOptions {
  readonly idempotencyKey: string
  readonly busy: TurnOptions['busy']
  readonly waitMs: TurnOptions['waitMs']
  readonly #exchange: Exchange

  constructor(exchange: Exchange, idempotencyKey: string) {
    this.#exchange = exchange
    this.idempotencyKey = idempotencyKey
    // The core refuses what is no policy, and what is no number.
    this.busy = exchange.header(BUSY_HEADER) as TurnOptions['busy']
    const waitMs = exchange.header(WAIT_HEADER)
    this.waitMs = waitMs === undefined ? undefined : Number(waitMs)
  }

  get signal(): AbortSignal {
    return this.#exchange.signal
  }
}
