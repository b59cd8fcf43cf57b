/**
 * How a request of this door becomes a turn.
 *
 * I10: a caller that goes away leaves the queue, an admitted turn goes on. I11: a request that is
 * repeated, by its `Idempotency-Key` or by the mark of a client that retries by itself, finds its
 * turn again.
 */
import type { Input, SessionRef, TurnOptions } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { RetryAttempt, RetryAttempts } from './retries.ts'
import type { AdmittedTurn, TurnTarget } from './turn-targets.ts'

/** A request for a turn, as it was read. */
export type OpenAiTurn<Body> = {
  readonly target: TurnTarget
  readonly input: Input
  /** All of the request, to tell a repetition from another. */
  readonly body: Body
  /** Recorded in the queue, and answered at once. */
  readonly isBackground: boolean
}

const COUNT_HEADER = 'x-stainless-retry-count'
const BUSY_HEADER = 'x-session-busy'
const WAIT_HEADER = 'x-session-wait-ms'
/** Clients retry these by themselves. */
const REFUSED_FOR_NOW = [429, 503, 507]

export class TurnEntry<Body> {
  readonly #attempts = new RetryAttempts()
  readonly #turns: PerExchange<OpenAiTurn<Body>>
  readonly #keys = new PerExchange<string>((exchange) => this.#chooseKey(exchange))

  constructor(read: (exchange: Exchange) => Promise<OpenAiTurn<Body>>) {
    this.#turns = new PerExchange(read)
  }

  /** The session that a request is about. */
  async session(exchange: Exchange): Promise<SessionRef> {
    const { target } = await this.#turns.of(exchange)
    return target.session(() => this.#keys.of(exchange))
  }

  /** Resolves when the turn has started, or was found; throws if it was refused. */
  async admit(exchange: Exchange): Promise<OpenAiTurn<Body> & AdmittedTurn> {
    const turn = await this.#turns.of(exchange)
    const waitMs = exchange.header(WAIT_HEADER)
    const options = {
      idempotencyKey: await this.#keys.of(exchange),
      // The core refuses what is no policy, and what is no number.
      busy: exchange.header(BUSY_HEADER) as TurnOptions['busy'],
      waitMs: waitMs === undefined ? undefined : Number(waitMs),
      get signal() {
        return exchange.signal
      },
    }
    const { input, isBackground } = turn
    const admitted = await turn.target.enter({ input, options, isBackground })
    exchange.isCommitted = true
    return { ...turn, ...admitted }
  }

  /** The key that the turn is known by. */
  async #chooseKey(exchange: Exchange): Promise<string> {
    const given = exchange.header('idempotency-key')
    if (given !== undefined) return given
    const { target, body } = await this.#turns.of(exchange)
    const { url, headers } = exchange.request
    // The caller is a part of it: no caller gets another's answer for having asked the same.
    const facts = [headers.authorization ?? null, url, target.name, body]
    const digest = exchange.holdfast.authority.digest(JSON.stringify(facts))
    const attempt = this.#attempt(exchange, target, digest)
    countCaller(exchange, attempt)
    return attempt.key
  }

  /** The attempt that this request repeats, or a new one. Nothing is awaited before it is known. */
  #attempt(exchange: Exchange, target: TurnTarget, digest: string): RetryAttempt {
    const count = retryCount(exchange)
    const now = exchange.holdfast.authority.clock.monotonic()
    const known = this.#attempts.find(digest, count, now)
    if (known !== null) return known
    const others = this.#attempts.of(digest)
    const key = count === 0 ? target.newKey(digest) : earlierKey(target, digest, others)
    const attempt = new RetryAttempt(key, count)
    this.#attempts.add(digest, attempt, now)
    return attempt
  }
}

/** For a retry that is not remembered, the key of an attempt before a restart, if there is one. */
async function earlierKey(
  target: TurnTarget,
  digest: string,
  others: readonly RetryAttempt[],
): Promise<string> {
  // An attempt that got no key has taken none.
  const known = await Promise.all(others.map(({ key }) => key.catch(() => '')))
  const earlier = await target.earlierKeys(digest)
  return earlier.find((key) => !known.includes(key)) ?? target.newKey(digest)
}

/** How often the client has tried before; 0 if it does not say. */
function retryCount(exchange: Exchange): number {
  const text = exchange.header(COUNT_HEADER) ?? ''
  return /^\d{1,4}$/.test(text) ? Number(text) : 0
}

/** Keeps count of the attempt's callers, and of whether one of them got the whole answer. */
function countCaller(exchange: Exchange, attempt: RetryAttempt): void {
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

/** Made once for each exchange: to find its session, and to answer it. Failures are tried again. */
class PerExchange<Value> {
  readonly #values = new WeakMap<Exchange, Promise<Value>>()
  readonly #make: (exchange: Exchange) => Promise<Value>

  constructor(make: (exchange: Exchange) => Promise<Value>) {
    this.#make = make
  }

  of(exchange: Exchange): Promise<Value> {
    const known = this.#values.get(exchange)
    if (known !== undefined) return known
    const value = this.#make(exchange)
    this.#values.set(exchange, value)
    // The caller handles the error.
    value.catch(() => this.#values.delete(exchange))
    return value
  }
}
