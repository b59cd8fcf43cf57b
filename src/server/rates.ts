/**
 * How much one client may do, and what one client is. Requests and connections are counted by each
 * node for itself; failed attempts by all nodes together (`shared-counts.ts`).
 */
import { createHmac, hash } from 'node:crypto'
import { HoldfastError, limitsFrom, type Clock } from '../core/index.ts'
import { UsedRate, type CountSource, type SharedCounts } from '../core/shared-counts.ts'
import { RATE_LIMITS } from './limits.ts'

export type RateLimits = { readonly [Name in keyof typeof RATE_LIMITS]: number }

/** Counts that other nodes have of the same clients; `key` hides the addresses in the store. */
export type SharedRates = { readonly counts: SharedCounts; readonly key: Buffer }

/** What a client has used, and the name of it among the nodes. */
type ClientRate = { readonly rate: UsedRate; readonly name: string }

/** A rate for each client. The one that was silent for longest is forgotten first. */
class ClientRates implements CountSource {
  readonly #clients = new Map<string, ClientRate>()
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #burst: number
  readonly #perMs: number
  readonly #clientsMax: number
  /** Null: no other node counts it. */
  readonly #shared: SharedRates | null

  constructor(
    clock: Pick<Clock, 'monotonic'>,
    [burst, perMs, clientsMax]: readonly [burst: number, perMs: number, clientsMax: number],
    shared: SharedRates | null = null,
  ) {
    this.#clock = clock
    this.#burst = burst
    this.#perMs = perMs
    this.#clientsMax = clientsMax
    this.#shared = shared
    shared?.counts.add(this)
  }

  /** Throws `too_many`, which says when to come back, if the client has used all. */
  take(client: string, message: string): void {
    const now = this.#clock.monotonic()
    const known = this.#clients.get(client) ?? { rate: new UsedRate(), name: this.#nameOf(client) }
    const others = this.#othersOf(known)
    const used = known.rate.usedAt(now, this.#perMs, others)
    const left = this.#burst - used - others
    if (left < 1) {
      const retryAfterMs = Math.ceil((1 - left) / this.#perMs)
      throw new HoldfastError('too_many', message, { retryAfterMs })
    }
    known.rate.set(used + 1, now)
    this.#clients.delete(client)
    this.#clients.set(client, known)
    if (this.#clients.size <= this.#clientsMax) return
    const [oldest] = this.#clients.keys()
    if (oldest !== undefined) this.#clients.delete(oldest)
  }

  /** Forgets clients that have everything back. */
  *counts(): Iterable<readonly [string, number]> {
    const now = this.#clock.monotonic()
    for (const [client, known] of this.#clients) {
      const used = known.rate.usedAt(now, this.#perMs, this.#othersOf(known))
      known.rate.set(used, now)
      if (used > 0) yield [known.name, used]
      else this.#clients.delete(client)
    }
  }

  close(): void {
    this.#shared?.counts.remove(this)
  }

  #othersOf({ name }: ClientRate): number {
    return this.#shared?.counts.others(name) ?? 0
  }

  #nameOf(client: string): string {
    if (this.#shared === null) return ''
    return createHmac('sha256', this.#shared.key).update(client).digest('base64url')
  }
}

/**
 * How much one client may do: requests, bad tokens and connections. A client is an address, and for
 * its requests the holder of a good token at an address: what others send from there does not count
 * against it.
 */
export class Rates {
  readonly #requests: ClientRates
  readonly #failures: ClientRates
  readonly #connections = new Map<string, number>()
  readonly #connectionsMax: number

  /** `shared`: null where no other node counts failed attempts. */
  constructor(
    clock: Pick<Clock, 'monotonic'>,
    limits: Partial<RateLimits> = {},
    shared: SharedRates | null = null,
  ) {
    const all = limitsFrom(RATE_LIMITS, limits, 'rates')
    const { requestsBurst, requestsPerSecond, failuresPerMinute, clientsMax } = all
    const perMs = failuresPerMinute / 60_000
    this.#requests = new ClientRates(clock, [requestsBurst, requestsPerSecond / 1_000, clientsMax])
    this.#failures = new ClientRates(clock, [failuresPerMinute, perMs, clientsMax], shared)
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
    const digest = token && hash('sha256', token)
    const client = digest === null ? network : `${network} ${digest}`
    this.#requests.take(client, 'too many requests from this address')
  }

  /** Counts a token that is not good; throws `too_many` if it is one too many. */
  failed(address: string): void {
    this.#failures.take(clientOf(address), 'too many bad tokens from this address')
  }

  close(): void {
    this.#failures.close()
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

/** Loopback as an address that a server may be bound to, or that a client comes from. */
export function isLoopback(address: string): boolean {
  if (address === '127.0.0.1' || address === '::1' || address === 'localhost') return true
  return /^127(\.\d{1,3}){3}$/.test(address)
}

/** An IPv4 address that came in over an IPv6 socket is that IPv4 address. */
export function plainAddress(address: string): string {
  if (!address.startsWith('::')) return address
  return /^::ffff:(\d+(?:\.\d+){3})$/i.exec(address)?.[1] ?? address
}

/** What counts as one client: an IPv4 address, or the whole /64 network of an IPv6 address. */
export function clientOf(address: string): string {
  const plain = plainAddress(address)
  if (!plain.includes(':') || isLoopback(plain)) return plain
  const [head = '', tail] = (plain.split('%')[0] ?? '').toLowerCase().split('::')
  const before = head.split(':').filter((group) => group !== '')
  const after = tail === undefined ? [] : tail.split(':').filter((group) => group !== '')
  const zeros = Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => '0')
  return [...before, ...zeros, ...after].slice(0, 4).join(':')
}
