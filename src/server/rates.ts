/**
 * How much one client may do: requests, bad tokens and connections. A client is an address, and for
 * its requests the holder of a good token at an address: what others send from there does not count
 * against it. The client that was silent for longest is forgotten first, so that memory is bounded.
 */
import { createHash } from 'node:crypto'
import { HoldfastError, limitsFrom, type Clock } from '../core/index.ts'
import { clientOf, isLoopback } from './addresses.ts'
import { SERVER_LIMITS } from './limits.ts'

export type RateLimits = {
  /** Requests of one client: how many at once, and how many per second after that. */
  readonly requestsBurst: number
  readonly requestsPerSecond: number
  /** Bad tokens of one client. */
  readonly failuresPerMinute: number
  readonly connectionsPerClientMax: number
  /** How many clients are remembered. */
  readonly clientsMax: number
}

const { requestsBurst, requestsPerSecond, failuresPerMinute, connectionsPerClientMax, clientsMax } =
  SERVER_LIMITS
const RATE_LIMITS: RateLimits = {
  ...{ requestsBurst, requestsPerSecond, failuresPerMinute, connectionsPerClientMax, clientsMax },
}

type Level = { left: number; at: number }

/** A bucket for each client, which everything takes one from and time fills again. */
class Buckets {
  readonly #levels = new Map<string, Level>()
  readonly #burst: number
  readonly #perMs: number
  readonly #clientsMax: number

  constructor(burst: number, perMs: number, clientsMax: number) {
    this.#burst = burst
    this.#perMs = perMs
    this.#clientsMax = clientsMax
  }

  /** In how many milliseconds there is one to take; 0: now. */
  waitMs(client: string, now: number): number {
    const { left } = this.#level(client, now)
    return left >= 1 ? 0 : Math.ceil((1 - left) / this.#perMs)
  }

  /** Takes one, if there is one. */
  take(client: string, now: number): void {
    const level = this.#level(client, now)
    this.#levels.delete(client)
    this.#levels.set(client, { left: Math.max(0, level.left - 1), at: now })
    if (this.#levels.size <= this.#clientsMax) return
    const [oldest] = this.#levels.keys()
    if (oldest !== undefined) this.#levels.delete(oldest)
  }

  #level(client: string, now: number): Level {
    const level = this.#levels.get(client)
    if (level === undefined) return { left: this.#burst, at: now }
    return { left: Math.min(this.#burst, level.left + (now - level.at) * this.#perMs), at: now }
  }
}

export class Rates {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #requests: Buckets
  readonly #failures: Buckets
  readonly #connections = new Map<string, number>()
  readonly #connectionsMax: number

  constructor(clock: Pick<Clock, 'monotonic'>, limits: Partial<RateLimits> = {}) {
    const all = limitsFrom(RATE_LIMITS, limits, 'rates')
    const { requestsBurst, requestsPerSecond, failuresPerMinute, clientsMax } = all
    this.#clock = clock
    this.#requests = new Buckets(requestsBurst, requestsPerSecond / 1_000, clientsMax)
    this.#failures = new Buckets(failuresPerMinute, failuresPerMinute / 60_000, clientsMax)
    this.#connectionsMax = all.connectionsPerClientMax
  }

  /**
   * Counts a request; throws `too_many` if it is one too many. Loopback is not counted. `goodToken`
   * tells the one that it shows, if that is good.
   */
  admit(address: string, goodToken: () => string | null = () => null): void {
    const network = clientOf(address)
    if (isLoopback(network)) return
    const token = goodToken()
    const client = token === null ? network : `${network} ${digestOf(token)}`
    const now = this.#clock.monotonic()
    const waitMs = this.#requests.waitMs(client, now)
    if (waitMs > 0) throw tooMany('too many requests from this address', waitMs)
    this.#requests.take(client, now)
  }

  /** Counts a token that is not good; throws `too_many` if it is one too many. */
  failed(address: string): void {
    const client = clientOf(address)
    const now = this.#clock.monotonic()
    const waitMs = this.#failures.waitMs(client, now)
    if (waitMs > 0) throw tooMany('too many bad tokens from this address', waitMs)
    this.#failures.take(client, now)
  }

  /** Counts a connection, which `disconnected` must end; false if it is one too many. */
  connected(address: string): boolean {
    const client = clientOf(address)
    const count = this.#connections.get(client) ?? 0
    if (count >= this.#connectionsMax && !isLoopback(client)) return false
    this.#connections.set(client, count + 1)
    return true
  }

  disconnected(address: string): void {
    const client = clientOf(address)
    const count = this.#connections.get(client) ?? 0
    if (count > 1) this.#connections.set(client, count - 1)
    else this.#connections.delete(client)
  }
}

/** A token itself is not kept. */
function digestOf(token: string): string {
  return createHash('sha256').update(token).digest('base64')
}

function tooMany(message: string, retryAfterMs: number): HoldfastError {
  return new HoldfastError('too_many', message, { retryAfterMs })
}
