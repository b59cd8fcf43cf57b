/**
 * How much one client may do: requests, bad tokens and connections. A client is an address, and for
 * its requests the holder of a good token at an address: what others send from there does not count
 * against it. The client that was silent for longest is forgotten first, so that memory is bounded.
 */
import { createHash } from 'node:crypto'
import { HoldfastError, limitsFrom, type Clock } from '../core/index.ts'
import { clientOf, isLoopback } from './addresses.ts'
import { RATE_LIMITS } from './limits.ts'

export type RateLimits = { readonly [Name in keyof typeof RATE_LIMITS]: number }

/** A bucket for each client, which everything takes one from and time fills again. */
class Buckets {
  readonly #levels = new Map<string, { readonly left: number; readonly at: number }>()
  readonly #burst: number
  readonly #perMs: number
  readonly #clientsMax: number

  constructor(burst: number, perMs: number, clientsMax: number) {
    this.#burst = burst
    this.#perMs = perMs
    this.#clientsMax = clientsMax
  }

  /** Takes one; if there is none, throws `too_many`, which says when there is. */
  take(client: string, now: number, message: string): void {
    const level = this.#levels.get(client) ?? { left: this.#burst, at: now }
    const left = Math.min(this.#burst, level.left + (now - level.at) * this.#perMs)
    if (left < 1) {
      const retryAfterMs = Math.ceil((1 - left) / this.#perMs)
      throw new HoldfastError('too_many', message, { retryAfterMs })
    }
    this.#levels.delete(client)
    this.#levels.set(client, { left: left - 1, at: now })
    if (this.#levels.size <= this.#clientsMax) return
    const [oldest] = this.#levels.keys()
    if (oldest !== undefined) this.#levels.delete(oldest)
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
    // A token itself is not kept.
    const digest = token && createHash('sha256').update(token).digest('base64')
    const client = digest === null ? network : `${network} ${digest}`
    const message = 'too many requests from this address'
    this.#requests.take(client, this.#clock.monotonic(), message)
  }

  /** Counts a token that is not good; throws `too_many` if it is one too many. */
  failed(address: string): void {
    const message = 'too many bad tokens from this address'
    this.#failures.take(clientOf(address), this.#clock.monotonic(), message)
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
