/**
 * What was sent and has not left this process, because its reader does not take it. Each reader has
 * a bound of its own; this is the one for all of them together, so that many readers that read
 * nothing cannot fill the memory. Beyond it the reader that has waited longest is cut off.
 */

type UnreadData = { readonly data: Uint8Array; readonly cut: () => void }

export class Unread {
  readonly #bytesMax: number
  /** The one that waits for longest first. */
  readonly #waiting = new Set<UnreadData>()
  /** By how many readers each is waited for: what many are sent is in memory once. */
  readonly #readers = new Map<Uint8Array, number>()
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  /** `cut` closes the reader's connection. The returned function is for when the data has left. */
  add(data: Uint8Array, cut: () => void): () => void {
    const waiting = { data, cut }
    const readers = this.#readers.get(data) ?? 0
    this.#readers.set(data, readers + 1)
    if (readers === 0) this.#bytes += data.byteLength
    this.#waiting.add(waiting)
    this.#makeRoom()
    return () => this.#remove(waiting)
  }

  #makeRoom(): void {
    for (const waiting of this.#waiting) {
      if (this.#bytes <= this.#bytesMax) return
      this.#remove(waiting)
      waiting.cut()
    }
  }

  #remove(waiting: UnreadData): void {
    if (!this.#waiting.delete(waiting)) return
    const { data } = waiting
    const readers = (this.#readers.get(data) ?? 0) - 1
    if (readers > 0) return void this.#readers.set(data, readers)
    this.#readers.delete(data)
    this.#bytes -= data.byteLength
  }
}
