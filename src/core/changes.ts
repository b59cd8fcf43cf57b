/**
 * Following the store's change feed: which sessions changed, on whichever node.
 *
 * A follower is only a position. It reads on shortly after this node has committed something, and
 * otherwise looks now and then for what other nodes have committed. Followers at the same position
 * share one read. So the feed costs nothing without followers, and little under load.
 */
import type { CoreContext } from './context.ts'
import type { StopSignal } from './feed.ts'
import type { ChangePage } from './store.ts'

/** From a commit of this node to the next read: what is committed meanwhile is in the same page. */
const COALESCE_MS = 100
/** Between two looks for what other nodes have committed. */
const LOOK_MS = 500

export type FollowChangesOptions = {
  /** The position of the last page that was seen; without it, only what changes from now on. */
  readonly after?: number
  readonly signal?: StopSignal
}

export class ChangeFeed {
  readonly #context: Pick<CoreContext, 'store' | 'clock' | 'limits'>
  readonly #reads = new Map<number, ReturnType<ChangeFeed['read']>>()
  readonly #waiting = new Set<() => void>()
  /** Counts commits, so that none between a read and the wait after it is missed. */
  #commits = 0
  #cancelLook: (() => void) | null = null
  #isSoon = false
  #isClosed = false

  constructor(context: Pick<CoreContext, 'store' | 'clock' | 'limits'>) {
    this.#context = context
  }

  /** Pages without internal sessions, until the signal is aborted or Holdfast is closed. */
  async *follow({ after, signal }: FollowChangesOptions): AsyncGenerator<ChangePage, void> {
    let position = after ?? (await this.read(null, 0)).position
    while (!this.#isClosed && signal?.aborted !== true) {
      const commits = this.#commits
      const { hasMore, ...page } = await this.#shared(position)
      position = page.position
      if (page.changes.length > 0) yield page
      if (!hasMore && commits === this.#commits) await this.#news(signal)
    }
  }

  /** One page without internal sessions; after null: the feed's end. */
  async read(after: number | null, limit: number): Promise<ChangePage & { hasMore: boolean }> {
    const { changes, position } = await this.#context.store.changes(after, limit)
    const shown = changes.filter(({ row }) => !row.internal)
    return { changes: shown, position, hasMore: changes.length > 0 }
  }

  #shared(position: number): ReturnType<ChangeFeed['read']> {
    const underWay = this.#reads.get(position)
    if (underWay !== undefined) return underWay
    const { listMax } = this.#context.limits
    const reading = this.read(position, listMax).finally(() => this.#reads.delete(position))
    this.#reads.set(position, reading)
    return reading
  }

  #news(signal: StopSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal?.removeEventListener('abort', done)
        this.#waiting.delete(done)
        resolve()
      }
      this.#waiting.add(done)
      signal?.addEventListener('abort', done)
      if (this.#cancelLook === null) this.#lookAfter(LOOK_MS)
    })
  }

  #lookAfter(ms: number): void {
    this.#cancelLook?.()
    this.#cancelLook = this.#context.clock.after(ms, () => this.#look())
  }

  #look(): void {
    this.#cancelLook?.()
    this.#cancelLook = null
    this.#isSoon = false
    for (const wake of [...this.#waiting]) wake()
  }

  /** This node has committed something. */
  committed(): void {
    this.#commits += 1
    if (this.#isSoon || this.#waiting.size === 0) return
    this.#isSoon = true
    this.#lookAfter(COALESCE_MS)
  }

  close(): void {
    this.#isClosed = true
    this.#look()
  }
}
