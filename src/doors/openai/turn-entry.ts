/**
 * How a request of this door becomes a turn.
 *
 * I10: a caller that goes away leaves the queue, an admitted turn goes on. I11: a request that is
 * repeated, by its `Idempotency-Key` or by the mark of a client that retries by itself, finds its
 * turn again.
 *
 * OpenAI's clients name no idempotency key when they retry; they only mark a retry as one
 * (`x-stainless-retry-count`), with the very same body. So every first attempt is given a key of
 * its own, and a retry takes over the key of an earlier attempt: the core then joins the turn,
 * returns it finished, or runs it if it was never admitted.
 *
 * Which attempt is meant is a guess only among requests with the same caller, session and body:
 * first one that was left without an answer just now, then one that was answered just now (its
 * answer may have been lost on the way), then whatever else there is; of several the one that was
 * left last.
 */
import { HoldfastError, type Settings, type TurnOptions } from '../../core/index.ts'
import { CallerOptions, type Exchange } from '../exchange.ts'
import { jsonOrEvents, type Route } from '../route.ts'
import { KEY_HEADER, type AdmittedTurn, type TargetedTurn, type TurnTarget } from './targets.ts'

export type OpenAiTurn<Body> = Omit<TargetedTurn, 'options'> & {
  readonly target: TurnTarget
  /** What its system messages say. */
  readonly instructions: string | null
  /** All of the request, to tell a repetition from another. */
  readonly body: Body
}

const object = { type: 'object' }
const COUNT_HEADER = 'x-stainless-retry-count'
const BUSY_HEADER = 'x-session-busy'
const WAIT_HEADER = 'x-session-wait-ms'
const NOBODY_HEADER = 'x-session-on-nobody'
/** Stock clients send the whole conversation with every message, needed or not. */
const HISTORY_BYTES_MAX = 8_388_608
/** Clients retry these by themselves. */
const REFUSED_FOR_NOW = [429, 503, 507]
const TURN_HEADERS = [
  {
    name: KEY_HEADER,
    description: 'The key of the session; without it the request is its own session.',
  },
  {
    name: BUSY_HEADER,
    description: 'If another turn runs: queue, reject, interrupt or collect.',
  },
  { name: WAIT_HEADER, description: 'How long to wait for it.' },
  {
    name: NOBODY_HEADER,
    description: 'If the agent asks, and no client can answer: wait, or deny (the default).',
  },
  { name: 'Idempotency-Key', description: 'The same key and body join the same turn.' },
  { name: COUNT_HEADER, description: 'From 1 on: joins the turn of an earlier attempt.' },
]
/** How long after its caller left an attempt may be retried, if it got no answer. */
const UNANSWERED_MS = 600_000
/** And if it got one. Clients retry within seconds, so this is also what "just now" means. */
const JUST_NOW_MS = 60_000
/** Attempts remembered in all, and with one body. */
const ATTEMPTS_MAX = 10_000
const SAME_MAX = 32

export class TurnEntry<Body> {
  readonly #attempts = new RetryAttempts()
  readonly #turn: (exchange: Exchange) => Promise<OpenAiTurn<Body>>
  readonly #key = oncePerExchange((exchange) => this.#chooseKey(exchange))

  constructor(read: (exchange: Exchange) => Promise<OpenAiTurn<Body>>) {
    this.#turn = oncePerExchange(read)
  }

  get route() {
    return {
      operation: 'turn.run',
      headers: TURN_HEADERS,
      historyBytesMax: HISTORY_BYTES_MAX,
      takesParts: true,
      answers: {
        200: jsonOrEvents("As OpenAI's: when it is over, or with `stream` as it comes.", object),
      },
      refusals: [404, 409, 413, 429],
      session: async (exchange) => {
        const { target } = await this.#turn(exchange)
        return target.session(() => this.#key(exchange))
      },
    } satisfies Partial<Route>
  }

  /** Resolves when the turn has started, or was found; throws if it was refused. */
  async admit(exchange: Exchange): Promise<OpenAiTurn<Body> & AdmittedTurn> {
    const turn = await this.#turn(exchange)
    const waitMs = exchange.header(WAIT_HEADER)
    const options = new CallerOptions(exchange, {
      idempotencyKey: await this.#key(exchange),
      // The core refuses what is no policy, and what is no number.
      busy: exchange.header(BUSY_HEADER) as TurnOptions['busy'],
      waitMs: waitMs === undefined ? undefined : Number(waitMs),
      settings: settingsOf(turn, exchange.header(NOBODY_HEADER)),
      // Its caller cannot answer.
      onNobody: 'deny',
    })
    const { input, isBackground } = turn
    const entering = turn.target.enter({ input, options, isBackground })
    const admitted = await entering.catch((error: unknown) => {
      throw namedByDoor(error)
    })
    exchange.isCommitted = true
    return { ...turn, ...admitted }
  }

  async #chooseKey(exchange: Exchange): Promise<string> {
    const given = exchange.header('idempotency-key')
    if (given !== undefined) return given
    const { target, body } = await this.#turn(exchange)
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

function settingsOf(
  { instructions }: Pick<OpenAiTurn<unknown>, 'instructions'>,
  onNobody: string | undefined,
): Settings | undefined {
  if (instructions === null && onNobody === undefined) return undefined
  return {
    ...(instructions === null ? {} : { instructions }),
    // The core refuses what is none of its values.
    ...(onNobody === undefined ? {} : { onNobody: onNobody as Settings['onNobody'] }),
  }
}

/** A refusal of the turn's settings, with the name that they have in the request. */
function namedByDoor(error: unknown): unknown {
  if (!(error instanceof HoldfastError)) return error
  const { field, setting } = error.details
  const name = error.code === 'setting_unsupported' ? setting : String(field).split('settings.')[1]
  if (name === undefined) return error
  const named = name === 'onNobody' ? NOBODY_HEADER : name
  return new HoldfastError(error.code, error.message, { ...error.details, field: named })
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
export function retryCount(exchange: Exchange): number {
  const text = exchange.header(COUNT_HEADER) ?? ''
  return /^\d{1,4}$/.test(text) ? Number(text) : 0
}

/** Keeps count of the attempt's callers, and of whether one of them got the whole answer. */
function countCaller(exchange: Exchange, attempt: RetryAttempt): void {
  const { response, holdfast } = exchange
  attempt.callers += 1
  attempt.count = Math.max(attempt.count, retryCount(exchange))
  response.once('close', () => {
    attempt.callers -= 1
    attempt.leftAt = holdfast.authority.clock.monotonic()
    const isRefused = REFUSED_FOR_NOW.includes(response.statusCode)
    if (response.writableFinished && !isRefused) attempt.isAnswered = true
  })
}

/** Made once for each exchange: to find its session, and to answer it. Failures are tried again. */
function oncePerExchange<Value>(
  make: (exchange: Exchange) => Promise<Value>,
): (exchange: Exchange) => Promise<Value> {
  const values = new WeakMap<Exchange, Promise<Value>>()
  return (exchange) => {
    const known = values.get(exchange)
    if (known !== undefined) return known
    const value = make(exchange)
    values.set(exchange, value)
    // The caller handles the error.
    value.catch(() => values.delete(exchange))
    return value
  }
}

export class RetryAttempt {
  /** What the core knows the turn by; to find one may take a moment. */
  readonly key: Promise<string>
  /** The highest retry count that was seen. */
  count: number
  callers = 0
  /** When the last of them left, on a clock that only goes forward. */
  leftAt = 0
  /** A caller was sent all of its answer, and has no reason to try again. */
  isAnswered = false

  constructor(key: Promise<string>, count: number) {
    this.key = key
    this.count = count
  }

  isExpired(now: number): boolean {
    const window = this.isAnswered ? JUST_NOW_MS : UNANSWERED_MS
    return this.callers === 0 && now - this.leftAt > window
  }

  /** The likelier of two has the lower rank. */
  rank(now: number): number {
    if (this.callers > 0) return 2
    if (this.isAnswered) return 1
    return now - this.leftAt <= JUST_NOW_MS ? 0 : 3
  }
}

export class RetryAttempts {
  /** By caller, session and body, as one digest; the oldest first. */
  readonly #known = new Map<string, readonly RetryAttempt[]>()
  #size = 0

  of(digest: string): readonly RetryAttempt[] {
    return this.#known.get(digest) ?? []
  }

  find(digest: string, count: number, now: number): RetryAttempt | null {
    const found = this.of(digest)
      .filter((attempt) => attempt.count < count && !attempt.isExpired(now))
      .toSorted((one, other) => one.rank(now) - other.rank(now) || other.leftAt - one.leftAt)
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
    for (const [digest, attempts] of this.#known) {
      const isExpired = attempts.every((attempt) => attempt.isExpired(now))
      if (!isExpired && this.#size < ATTEMPTS_MAX) return
      this.#set(digest, [])
    }
  }
}
