/**
 * The two pipes of a browser that was started with `--remote-debugging-pipe`: messages with a zero
 * byte after each. Faster than a socket, and no port by which anybody could go around us.
 */
import type { Readable, Writable } from 'node:stream'
import type { BrowserConnection, ConnectionEvents } from './connection.ts'
import type { BrowserLimits } from './limits.ts'

const END = Buffer.from([0])

/** What is kept of a message that is too large: enough to tell whose it is. */
const KEPT_BYTES = 1_024

export class PipeConnection implements Pick<BrowserConnection, 'send'> {
  readonly #writable: Writable
  readonly #events: ConnectionEvents
  readonly #limits: BrowserLimits
  /** The beginning of a message whose end has not come. */
  #parts: Buffer[] = []
  #partBytes = 0
  /** The beginning of a message that is too large; the rest is not kept, up to its last bytes. */
  #head: Buffer | null = null
  #isClosed = false

  constructor(
    { writable, readable }: { readonly writable: Writable; readonly readable: Readable },
    events: ConnectionEvents,
    limits: BrowserLimits,
  ) {
    this.#writable = writable
    this.#events = events
    this.#limits = limits
    readable.on('data', (chunk: Buffer) => this.#readableOnData(chunk))
    readable.on('close', () => this.fail('the browser has closed its pipe'))
    // What breaks a pipe closes it, and that is told.
    for (const stream of [readable, writable]) stream.on('error', () => undefined)
  }

  send(...parts: readonly (string | Uint8Array)[]): void {
    if (this.#isClosed) return
    if (parts.every((part) => typeof part === 'string')) {
      return void this.#writable.write(`${parts.join('')}\0`)
    }
    this.#writable.cork()
    for (const part of parts) this.#writable.write(part)
    this.#writable.write(END)
    this.#writable.uncork()
  }

  close(): void {
    this.fail('closed')
  }

  fail(reason: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#writable.destroy()
    this.#events.closed(reason)
  }

  #readableOnData(chunk: Buffer): void {
    let start = 0
    for (let end = chunk.indexOf(0); end !== -1; end = chunk.indexOf(0, start)) {
      const last = chunk.subarray(start, end)
      start = end + 1
      if (this.#isClosed) return
      if (this.#head !== null) this.#tellTooLarge(this.#head, last)
      else this.#events.message(this.#parts.length === 0 ? last : this.#joined(last))
    }
    if (start < chunk.length) this.#keep(start === 0 ? chunk : chunk.subarray(start))
  }

  #keep(part: Buffer): void {
    this.#parts.push(part)
    this.#partBytes += part.length
    if (this.#head === null && this.#partBytes <= this.#limits.messageBytesMax) return
    this.#head ??= firstOf(this.#parts)
    this.#parts = [lastOf(this.#parts)]
  }

  #tellTooLarge(head: Buffer, last: Buffer): void {
    const tail = lastOf([...this.#parts, last])
    this.#parts = []
    this.#partBytes = 0
    this.#head = null
    this.#events.tooLarge(head, tail)
  }

  #joined(last: Buffer): Buffer {
    // Chromium writes the zero byte by itself: often only that was missing.
    const [only] = this.#parts
    if (last.length === 0 && this.#parts.length === 1 && only !== undefined) {
      this.#parts = []
      this.#partBytes = 0
      return only
    }
    const whole = Buffer.concat([...this.#parts, last], this.#partBytes + last.length)
    this.#parts = []
    this.#partBytes = 0
    return whole
  }
}

function firstOf(parts: readonly Buffer[]): Buffer {
  const enough = parts.slice(0, KEPT_BYTES)
  return Buffer.concat(enough.map((part) => part.subarray(0, KEPT_BYTES))).subarray(0, KEPT_BYTES)
}

/** Copied: what is cut from a chunk would keep all of it. */
function lastOf(parts: readonly Buffer[]): Buffer {
  const enough = parts.slice(-KEPT_BYTES).map((part) => part.subarray(-KEPT_BYTES))
  return Buffer.from(Buffer.concat(enough).subarray(-KEPT_BYTES))
}
