/**
 * The framing of the Copilot SDK, that of the Language Server Protocol: `Content-Length: N`, an
 * empty line, and a message of N bytes. Nothing but its own headers is accepted, byte by byte: a
 * web page can make a browser send bytes of its choice to a TCP port, but they begin with a request
 * line of HTTP, which is refused at its first wrong byte (docs/decisions/0037).
 */
import { HoldfastError } from '../../core/index.ts'

/** Longer than any header block that is accepted. */
const HEADER_BYTES_MAX = 256
const HEADER_END = '\r\n\r\n'
const LENGTH = 'Content-Length: '
const TYPE = 'Content-Type: '
const TYPED = 'Content-Type: [\\x20-\\x7e]+'
/** One length, and at most one type; each SDK writes the length alone. */
const HEADERS = new RegExp(`^(?:${TYPED}\r\n)?${LENGTH}(0|[1-9]\\d{0,9})(?:\r\n${TYPED})?$`)

/** The message as it is sent. */
export function frameOf(message: Uint8Array): readonly [string, Uint8Array] {
  return [`${LENGTH}${message.byteLength}${HEADER_END}`, message]
}

/** Cuts the bytes of a connection into messages. What it throws ends the connection. */
export class FrameReader {
  readonly #messageBytesMax: () => number
  /** The header so far, while it is not complete. */
  #header = ''
  /** The message so far, in a buffer that grows; null while its header is read. */
  #body: Buffer | null = null
  #length = 0
  #filled = 0

  /** `messageBytesMax`: of the message that begins now. */
  constructor(messageBytesMax: () => number) {
    this.#messageBytesMax = messageBytesMax
  }

  /** What it keeps of a message that is not complete. */
  get bytes(): number {
    return this.#body?.length ?? 0
  }

  /** A header has come, and nothing of its message. */
  get isAtMessage(): boolean {
    return this.#body !== null && this.#filled === 0
  }

  /** The messages that are complete with these bytes. */
  *push(chunk: Buffer): Generator<string, void> {
    let at = 0
    while (at < chunk.length) {
      if (this.#body === null) {
        at = this.#readHeader(chunk, at)
        continue
      }
      const part = chunk.subarray(at, at + this.#length - this.#filled)
      at += part.length
      this.#body = roomFor(this.#body, this.#filled + part.length, this.#length)
      part.copy(this.#body, this.#filled)
      this.#filled += part.length
      if (this.#filled === this.#length) yield this.#finish(this.#body)
    }
  }

  /** Returns where the rest begins. */
  #readHeader(chunk: Buffer, from: number): number {
    const had = this.#header.length
    this.#header += chunk.toString('latin1', from, from + HEADER_BYTES_MAX)
    const end = this.#header.indexOf(HEADER_END)
    const head = end === -1 ? this.#header : this.#header.slice(0, end)
    if (!mayBeHeader(head, end !== -1)) {
      throw new HoldfastError('bad_request', 'only frames with Content-Length are accepted here')
    }
    if (end === -1) return from + this.#header.length - had
    const length = Number(HEADERS.exec(head)?.[1])
    const most = this.#messageBytesMax()
    if (length > most) {
      throw new HoldfastError('message_too_large', `a message has more than ${most} bytes`)
    }
    this.#header = ''
    this.#body = Buffer.alloc(0)
    this.#filled = 0
    this.#length = length
    if (length === 0) throw new HoldfastError('bad_request', 'a message is empty')
    return from + end + HEADER_END.length - had
  }

  #finish(body: Buffer): string {
    this.#body = null
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body)
    } catch {
      throw new HoldfastError('bad_request', 'a message is not UTF-8')
    }
  }
}

/** How much room a message gets before it has come: a length alone costs its client nothing. */
const ROOM_BYTES = 16_384

/** A buffer with room for so many bytes, and never for more than the whole message. */
function roomFor(body: Buffer, bytes: number, whole: number): Buffer {
  if (bytes <= body.length) return body
  const larger = Buffer.allocUnsafe(Math.min(whole, Math.max(ROOM_BYTES, 2 * body.length, bytes)))
  body.copy(larger)
  return larger
}

/** Whether it is a header, or may become one with the bytes that follow. */
function mayBeHeader(head: string, isWhole: boolean): boolean {
  if (isWhole) return HEADERS.test(head)
  if (head.length > HEADER_BYTES_MAX) return false
  return head.split('\r\n').every((line) => [LENGTH, TYPE].some((name) => begins(line, name)))
}

/** Whether one is the beginning of the other. A `\r` may be followed by its `\n`. */
function begins(line: string, name: string): boolean {
  const text = line.endsWith('\r') ? line.slice(0, -1) : line
  if (text.length <= name.length) return name.startsWith(text)
  const value = name === LENGTH ? /^\d{1,10}$/ : /^[\x20-\x7e]+$/
  return text.startsWith(name) && value.test(text.slice(name.length))
}
