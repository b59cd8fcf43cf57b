/**
 * Which other nodes there are, and which session each owns. Answers of the store are cached for a
 * moment, so that many requests at once cost one query. The list of nodes is also kept after the
 * store is closed, so that a node that stops can still forward late requests.
 */
import type { Cluster, SessionRef } from '../../core/index.ts'
import { FORWARD_LIMITS } from '../limits.ts'

export class Directory {
  readonly #cluster: Cluster
  readonly #self: string
  readonly #urls = new Cache<string | null>()
  readonly #owners = new Cache<string | null>()
  readonly #others = new Cache<readonly string[]>()
  #lastOthers: readonly string[] = []

  constructor(cluster: Cluster, self: string) {
    this.#cluster = cluster
    this.#self = self
  }

  /** The other node that owns a session; null if this one does, or none. */
  async ownerElsewhere(session: SessionRef): Promise<string | null> {
    const name = JSON.stringify(session)
    const owner = await this.#owners.get(name, () => this.#cluster.ownerOf(session))
    if (owner !== null && owner !== this.#self) return owner
    // This node may own it in a moment, and be asked again at once.
    this.#owners.delete(name)
    return null
  }

  /** The node did not answer as the owner. */
  forgetOwner(session: SessionRef): void {
    this.#owners.delete(JSON.stringify(session))
  }

  /** Null if the node is gone, or has given no address. */
  urlOf(node: string): Promise<string | null> {
    return this.#urls.get(node, () => this.#cluster.urlOf(node))
  }

  /** The addresses of all living nodes but this one. */
  others(): Promise<readonly string[]> {
    return this.#others.get('', () => this.#findOthers())
  }

  async #findOthers(): Promise<readonly string[]> {
    try {
      const nodes = await this.#cluster.nodes()
      const others = nodes.filter(({ name, leaseMs }) => name !== this.#self && leaseMs > 0)
      this.#lastOthers = others.flatMap(({ url }) => (url === null ? [] : [url]))
    } catch {
      // The store is closed, or cannot be reached: the nodes that were there last.
    }
    return this.#lastOthers
  }
}

/** Values that are fetched by name, each used for `cacheMs`. Errors are not cached. */
class Cache<Value> {
  readonly #entries = new Map<string, { readonly value: Promise<Value>; readonly at: number }>()

  get(name: string, fetch: () => Promise<Value>): Promise<Value> {
    const cached = this.#entries.get(name)
    if (cached !== undefined && performance.now() - cached.at < FORWARD_LIMITS.cacheMs) {
      return cached.value
    }
    if (this.#entries.size >= FORWARD_LIMITS.cachedMax) this.#entries.clear()
    const value = fetch()
    // The caller handles the error.
    value.catch(() => this.#entries.delete(name))
    this.#entries.set(name, { value, at: performance.now() })
    return value
  }

  delete(name: string): void {
    this.#entries.delete(name)
  }
}
