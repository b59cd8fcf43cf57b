/** Reading a request's body: never more of it than the limit is held in memory. */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { HoldfastError } from '../core/index.ts'

/** How long the rest of a refused body is thrown away, so that its sender reads the refusal. */
const DISCARD_MS = 2_000

const NO_BYTES = Buffer.alloc(0)

/** A body that is JSON; an empty one is an object without fields. `read` gives its bytes. */
export async function readJson(
  request: IncomingMessage,
  read: () => Promise<Buffer>,
): Promise<unknown> {
  if (!hasBody(request)) return {}
  if (!isJson(request.headers['content-type'])) {
    throw new HoldfastError(
      'unsupported_media_type',
      'send the body as JSON, with the header content-type: application/json',
    )
  }
  const text = textOf(await read())
  return text === '' ? {} : parse(text)
}

/** The whole body, as it came. */
export async function readBody(request: IncomingMessage, bytesMax: number): Promise<Buffer> {
  if (!hasBody(request)) return NO_BYTES
  if (Number(request.headers['content-length']) > bytesMax) throw tooLarge(bytesMax)
  return (early.get(request) ?? new BodyReader(request)).read(bytesMax)
}

/** A body that arrives while its request waits for its turn. */
export type EarlyBody = {
  /** The request begins: the rest is read when the handler reads the body. */
  readonly begin: () => void
  /** The request is answered: what was not read is thrown away. */
  readonly discard: () => void
}

const early = new WeakMap<IncomingMessage, BodyReader>()

/** Reads a body before anybody asks for it; null if there is none. `arrived` counts its bytes. */
export function readEarly(
  request: IncomingMessage,
  arrived: (bytes: number) => void,
): EarlyBody | null {
  if (!hasBody(request)) return null
  const reader = new BodyReader(request, arrived)
  early.set(request, reader)
  return reader
}

function hasBody({ headers }: IncomingMessage): boolean {
  const length = headers['content-length']
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0')
}

function isJson(type: string | undefined): boolean {
  return type === 'application/json' || /^application\/json *(;|$)/i.test(type ?? '')
}

class BodyReader implements EarlyBody {
  readonly #request: IncomingMessage
  readonly #whole: Promise<Buffer>
  readonly #chunks: Buffer[] = []
  #bytes = 0
  #bytesMax = Number.POSITIVE_INFINITY
  #refuse: (error: HoldfastError) => void = () => undefined

  constructor(request: IncomingMessage, arrived: (bytes: number) => void = () => undefined) {
    this.#request = request
    this.#whole = new Promise((resolve, reject) => {
      this.#refuse = reject
      request.on('data', (chunk: Buffer) => {
        arrived(chunk.length)
        this.#take(chunk)
      })
      request.on('end', () => resolve(this.#all()))
      // Whatever broke it, the body is cut off: a refusal says so.
      request.on('error', () => this.#cut())
      request.on('close', () => this.#cut())
    })
    // The body may never be read.
    this.#whole.catch(() => undefined)
  }

  read(bytesMax: number): Promise<Buffer> {
    this.#bytesMax = bytesMax
    this.#check()
    this.#request.resume()
    return this.#whole
  }

  begin(): void {
    this.#request.pause()
  }

  discard(): void {
    this.#bytesMax = 0
    this.#check()
    this.#request.resume()
  }

  #take(chunk: Buffer): void {
    this.#bytes += chunk.length
    this.#chunks.push(chunk)
    this.#check()
  }

  #check(): void {
    if (this.#bytes <= this.#bytesMax) return
    this.#chunks.length = 0
    this.#refuse(tooLarge(this.#bytesMax))
  }

  #all(): Buffer {
    return this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks)
  }

  #cut(): void {
    if (this.#request.complete) return
    this.#refuse(new HoldfastError('bad_request', 'the body was cut short'))
  }
}

function textOf(bytes: Buffer): string {
  if (!isUtf8(bytes)) throw new HoldfastError('bad_request', 'the body is not UTF-8')
  return bytes.toString()
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new HoldfastError('bad_request', 'the body is not JSON')
  }
}

function tooLarge(bytesMax: number): HoldfastError {
  return new HoldfastError('body_too_large', `the body is over ${bytesMax} bytes`, { bytesMax })
}

/** Throws the rest of a body away for a while, then calls `done`. */
export function discardBody(request: IncomingMessage, done: () => void): void {
  const timer = setTimeout(finish, DISCARD_MS)
  function finish(): void {
    clearTimeout(timer)
    request.off('end', finish).off('close', finish)
    done()
  }
  if (request.complete || request.destroyed) return finish()
  request.on('end', finish).on('close', finish).resume()
}
