/**
 * The bytes of requests that are not admitted. They are stored before a request enters the queue,
 * and go again with the last request that needs them. What an event names is kept by the append of
 * that event; after a crash the next claim of the session removes the rest.
 */
import type { GivenBlob } from './store.ts'

type LooseBlobsSession = {
  /** Whether it is known what became of all appends: only then may bytes go. */
  readonly isSettled: boolean
  dropBlobs(digests: readonly string[]): Promise<void>
}

export class LooseBlobs {
  readonly #session: LooseBlobsSession
  /** How many requests need a blob, by its digest. */
  readonly #needed = new Map<string, number>()
  /** The last removal that is under way: what is stored must not be removed by it. */
  #dropping: Promise<void> = Promise.resolve()

  constructor(session: LooseBlobsSession) {
    this.#session = session
  }

  /** Until the returned function is called these blobs are not removed. */
  need(blobs: readonly GivenBlob[]): (isKept: boolean) => void {
    const digests = blobs.map(({ digest }) => digest)
    for (const digest of digests) this.#needed.set(digest, (this.#needed.get(digest) ?? 0) + 1)
    return (isKept) => this.#leave(digests, isKept)
  }

  /** Resolves when bytes may be stored. */
  ready(): Promise<void> {
    return this.#dropping
  }

  #leave(digests: readonly string[], isKept: boolean): void {
    const unneeded = digests.filter((digest) => {
      const left = (this.#needed.get(digest) ?? 0) - 1
      if (left > 0) this.#needed.set(digest, left)
      else this.#needed.delete(digest)
      return left <= 0
    })
    if (isKept || unneeded.length === 0 || !this.#session.isSettled) return
    const dropping = this.#dropping.then(() => {
      // A request that has come meanwhile waits for this, and will store them again.
      const still = unneeded.filter((digest) => !this.#needed.has(digest))
      return still.length === 0 ? undefined : this.#session.dropBlobs(still)
    })
    // If it fails, the next claim of the session removes them.
    this.#dropping = dropping.catch(() => undefined)
  }
}
