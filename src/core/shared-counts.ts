/**
 * Counts that the nodes of a cluster share: what principals use of their quotas, and failed
 * attempts of clients.
 *
 * 1. Nothing waits for it. A node decides by its own counts and by what the other living nodes had
 *    told at the last exchange.
 * 2. An exchange comes every second: it publishes the counts of this node that are not 0, and reads
 *    those of the others. So a node knows after two seconds what another has counted.
 * 3. The counts of a node end with its lease. A node that cannot reach the store for a while counts
 *    by itself.
 * 4. Without other nodes (`store.cluster`) there is no timer, and every count of others is 0.
 */
import type { Clock } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { messageOf } from './errors.ts'
import type { NodeCounts, Store } from './store.ts'

/** Between two exchanges. */
const EXCHANGE_MS = 1_000
/** Counts of others that are older are not used. */
const STALE_MS = 10_000
/** What one source may publish: its largest counts. */
const PUBLISHED_MAX = 1_000
/** How exactly a rate is told: of one that is nearly given back nothing is. */
const PARTS = 1_000

/** What has counts to share. */
export interface CountSource {
  /** Its counts now, by names that say nothing to a reader of the store. */
  counts(): Iterable<readonly [name: string, count: number]>
}

type CountingNode = {
  readonly node: string
  readonly store: Pick<Store, 'cluster'>
  readonly clock: Pick<Clock, 'monotonic' | 'after'>
  readonly diagnose: Diagnose
}

export class SharedCounts {
  readonly #node: CountingNode
  /** Whether there may be other nodes at all. */
  readonly isShared: boolean
  readonly #sources = new Set<CountSource>()
  /** The sums of the other nodes, and when they were asked for. */
  #others: ReadonlyMap<string, number> = new Map()
  #askedAt = Number.NEGATIVE_INFINITY
  /** There may be counts of this node in the store. */
  #hasPublished = false
  #isStopped = false
  #cancelTimer: () => void = () => undefined

  constructor(node: CountingNode) {
    this.#node = node
    this.isShared = node.store.cluster?.exchangeCounts !== undefined
  }

  /** The store is asked while there is a source. */
  add(source: CountSource): void {
    this.#sources.add(source)
  }

  remove(source: CountSource): void {
    this.#sources.delete(source)
  }

  /** What the other living nodes have counted under this name, as far as is known. */
  others(name: string): number {
    if (this.#node.clock.monotonic() - this.#askedAt > STALE_MS) return 0
    return this.#others.get(name) ?? 0
  }

  start(): void {
    if (!this.isShared || this.#isStopped) return
    this.#cancelTimer = this.#node.clock.after(EXCHANGE_MS, () => {
      // One at a time: a slow store is asked less often.
      void this.#exchange()
        .catch((error: unknown) =>
          this.#node.diagnose('counts_not_exchanged', 'each node counts by itself meanwhile', {
            error: messageOf(error),
          }),
        )
        .finally(() => this.start())
    })
  }

  stop(): void {
    this.#isStopped = true
    this.#cancelTimer()
  }

  async #exchange(): Promise<void> {
    const { store, node, clock } = this.#node
    const own = Object.fromEntries([...this.#sources].flatMap(publishedOf))
    const hasCounts = Object.keys(own).length > 0
    if (this.#sources.size === 0 && !this.#hasPublished) return
    const askedAt = clock.monotonic()
    const published = hasCounts || this.#hasPublished ? own : null
    const others = (await store.cluster?.exchangeCounts?.(node, published)) ?? []
    this.#hasPublished = hasCounts
    this.#others = sumOf(others)
    this.#askedAt = askedAt
  }
}

function publishedOf(source: CountSource): readonly (readonly [string, number])[] {
  const rounded = [...source.counts()].map(([name, count]) => {
    return [name, Math.round(count * PARTS) / PARTS] as const
  })
  const found = rounded.filter(([, count]) => count > 0)
  if (found.length <= PUBLISHED_MAX) return found
  return found.toSorted(([, one], [, other]) => other - one).slice(0, PUBLISHED_MAX)
}

function sumOf(nodes: readonly NodeCounts[]): ReadonlyMap<string, number> {
  const sums = new Map<string, number>()
  for (const [name, count] of nodes.flatMap((counts) => Object.entries(counts))) {
    sums.set(name, (sums.get(name) ?? 0) + count)
  }
  return sums
}

/**
 * How much of a rate is used: what was taken, less what time has given back. If other nodes have
 * used some of it too, each gives back its part, so that together they give back as much as one.
 */
export class UsedRate {
  #used = 0
  #at = 0

  /** `others`: how much of it other nodes have used. */
  usedAt(now: number, perMs: number, others = 0): number {
    if (this.#used === 0) return 0
    const part = this.#used / (this.#used + others)
    return Math.max(0, this.#used - (now - this.#at) * perMs * part)
  }

  set(used: number, now: number): void {
    this.#used = used
    this.#at = now
  }
}
