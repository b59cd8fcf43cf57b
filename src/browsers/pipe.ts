/**
 * The two pipes of a browser that was started with `--remote-debugging-pipe`: messages with a zero
 * byte after each. Faster than a socket, and there is no port by which clients could bypass us.
 */
import type { Readable, Writable } from 'node:stream'
import type { ConnectionEvents, MessageParts } from './connection.ts'

const END = Buffer.from([0])

/** What is kept of the beginning and the end of a message that is too large. */
const KEPT_BYTES = 1_024

export class BrowserPipe {
  readonly #writable: Writable
  readonly #events: ConnectionEvents
  readonly #messageBytesMax: number
  /** The beginning of a message whose end has not been read. */
  #parts: Buffer[] = []
  #partBytes = 0
  /** The beginning of a message that is too large; `#parts` has only its last bytes then. */
  #head: Buffer | null = null
  #isClosed = false

  constructor(
    writable: Writable,
    readable: Readable,
    events: ConnectionEvents,
    messageBytesMax: number,
  ) {
    this.#writable = writable
    this.#events = events
    this.#messageBytesMax = messageBytesMax
    readable.on('data', (chunk: Buffer) => this.#readableOnData(chunk))
    readable.on('close', () => this.close('the browser has closed its pipe'))
    // An error of a pipe closes it, which is handled.
    for (const stream of [readable, writable]) stream.on('error', () => undefined)
  }

  send(...parts: MessageParts): void {
    if (this.#isClosed) return
    if (parts.every((part) => typeof part === 'string')) {
      return void this.#writable.write(`${parts.join('')}\0`)
    }
    this.#writable.cork()
    for (const part of parts) this.#writable.write(part)
    this.#writable.write(END)
    this.#writable.uncork()
  }

  close(reason: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#writable.destroy()
    this.#events.closed(reason)
  }

  #readableOnData(chunk: Buffer): void {
    let start = 0
    for (let end = chunk.indexOf(0); end !== -1; end = chunk.indexOf(0, start)) {
      if (this.#isClosed) return
      this.#finish(chunk.subarray(start, end))
      start = end + 1
    }
    if (start < chunk.length) this.#keep(start === 0 ? chunk : chunk.subarray(start))
  }

  #keep(part: Buffer): void {
    this.#parts.push(part)
    this.#partBytes += part.length
    if (this.#head === null && this.#partBytes <= this.#messageBytesMax) return
    this.#head ??= firstOf(this.#parts)
    this.#parts = [lastOf(this.#parts)]
  }

  #finish(last: Buffer): void {
    const [parts, bytes, head] = [this.#parts, this.#partBytes, this.#head]
    if (parts.length === 0) return this.#events.message(last)
    this.#parts = []
    this.#partBytes = 0
    this.#head = null
    if (head !== null) return this.#events.tooLarge(head, lastOf([...parts, last]))
    // Chromium writes the zero byte by itself: often only that was missing.
    const [only] = parts
    const isWhole = last.length === 0 && parts.length === 1 && only !== undefined
    this.#events.message(isWhole ? only : Buffer.concat([...parts, last], bytes + last.length))
  }
}

function firstOf(parts: readonly Buffer[]): Buffer {
  const enough = parts.slice(0, KEPT_BYTES)
  return Buffer.concat(enough.map((part) => part.subarray(0, KEPT_BYTES))).subarray(0, KEPT_BYTES)
}

/** Copied, since a part of a chunk keeps all of the chunk in memory. */
function lastOf(parts: readonly Buffer[]): Buffer {
  const enough = parts.slice(-KEPT_BYTES).map((part) => part.subarray(-KEPT_BYTES))
  return Buffer.from(Buffer.concat(enough).subarray(-KEPT_BYTES))
}
