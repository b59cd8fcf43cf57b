/**
 * Where the other nodes are. What the store said is believed for a moment, so that a crowd of
 * requests asks it once; and after the store is closed, so that a node that stops can still pass on
 * what comes late.
 */
import type { Cluster } from '../../core/index.ts'

const CACHE_MS = 1_000

type Cached<Value> = { readonly value: Promise<Value>; readonly at: number }

export class Directory {
  readonly #cluster: Cluster
  readonly #self: string
  readonly #urls = new Map<string, Cached<string | null>>()
  #others: Cached<readonly string[]> | null = null
  #lastOthers: readonly string[] = []

  constructor(cluster: Cluster, self: string) {
    this.#cluster = cluster
    this.#self = self
  }

  /** Null if the node is gone, or did not say where it is. */
  urlOf(node: string): Promise<string | null> {
    const known = this.#urls.get(node)
    if (known !== undefined && isFresh(known)) return known.value
    // As many as there are nodes: old ones are swept out with the first that is asked for again.
    for (const [name, cached] of this.#urls) if (!isFresh(cached)) this.#urls.delete(name)
    const value = this.#cluster.urlOf(node)
    // The caller is told; what failed is not remembered.
    value.catch(() => this.#urls.delete(node))
    this.#urls.set(node, { value, at: performance.now() })
    return value
  }

  /** The addresses of all living nodes but this one. */
  async others(): Promise<readonly string[]> {
    if (this.#others === null || !isFresh(this.#others)) {
      this.#others = { value: this.#askOthers(), at: performance.now() }
    }
    return this.#others.value
  }

  async #askOthers(): Promise<readonly string[]> {
    try {
      const nodes = await this.#cluster.nodes()
      const others = nodes.filter(({ name, leaseMs }) => name !== this.#self && leaseMs > 0)
      this.#lastOthers = others.flatMap(({ url }) => (url === null ? [] : [url]))
    } catch {
      // The store is closed, or away: those who were there last.
    }
    return this.#lastOthers
  }
}

function isFresh({ at }: Cached<unknown>): boolean {
  return performance.now() - at < CACHE_MS
}
