/** A request's body: never more of it is held in memory than its limit, and the room for all. */
import type { IncomingMessage } from 'node:http'
import { HoldfastError } from '../core/index.ts'

export function hasBody({ headers }: IncomingMessage): boolean {
  const length = headers['content-length']
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0')
}

export function bodyTooLarge(bytesMax: number): HoldfastError {
  return new HoldfastError('body_too_large', `the body is over ${bytesMax} bytes`, { bytesMax })
}

const earlyBodies = new WeakMap<IncomingMessage, BodyReader>()

/** Reads a body before it is asked for; null if there is none. `arrived` counts its bytes. */
export function readEarly(
  request: IncomingMessage,
  arrived: (bytes: number) => void,
): BodyReader | null {
  if (!hasBody(request)) return null
  const reader = new BodyReader(request, arrived)
  earlyBodies.set(request, reader)
  return reader
}

export function readerOf(request: IncomingMessage): BodyReader {
  return earlyBodies.get(request) ?? new BodyReader(request)
}

class BodyReader {
  readonly #request: IncomingMessage
  readonly #whole: Promise<Buffer>
  readonly #chunks: Buffer[] = []
  #bytes = 0
  #bytesMax = Number.POSITIVE_INFINITY
  #admit: (bytes: number) => HoldfastError | null = () => null
  #refuse: (error: HoldfastError) => void = () => undefined

  constructor(request: IncomingMessage, arrived: (bytes: number) => void = () => undefined) {
    this.#request = request
    this.#whole = new Promise((resolve, reject) => {
      this.#refuse = reject
      request.on('data', (chunk: Buffer) => {
        arrived(chunk.length)
        this.#bytes += chunk.length
        this.#chunks.push(chunk)
        this.#check()
      })
      const chunks = this.#chunks
      request.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)))
      // Whatever broke it, the body is cut off: a refusal says so.
      const cut = (): void => {
        if (!request.complete) reject(new HoldfastError('bad_request', 'the body was cut short'))
      }
      request.on('error', cut).on('close', cut)
    })
    // The body may never be read.
    this.#whole.catch(() => undefined)
  }

  /** `admit` is told how many bytes there are so far, and may refuse them. */
  read(bytesMax: number, admit = this.#admit): Promise<Buffer> {
    this.#bytesMax = bytesMax
    this.#admit = admit
    this.#check()
    this.#request.resume()
    return this.#whole
  }

  /** The request begins: the rest is read when the handler reads the body. */
  begin(): void {
    this.#request.pause()
  }

  /** The request is answered: what was not read is thrown away. */
  discard(): void {
    void this.read(0)
  }

  #check(): void {
    const isTooLarge = this.#bytes > this.#bytesMax
    const refusal = isTooLarge ? bodyTooLarge(this.#bytesMax) : this.#admit(this.#bytes)
    if (refusal === null) return
    this.#chunks.length = 0
    this.#refuse(refusal)
  }
}

/** What one body takes of the room for large ones. */
export type BodyRoom = {
  /** It has so many bytes by now; the refusal, if there is no room for them. */
  readonly grow: (bytes: number) => HoldfastError | null
  readonly release: () => void
}

/**
 * The room for bodies that are larger than usual, because they have images or files: many at once
 * could fill the memory. One principal takes at most half of it.
 */
export class LargeBodies {
  readonly #bytesMax: number
  readonly #bytesOf = new Map<string, number>()
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  open(principal: string): BodyRoom {
    let held = 0
    const add = (bytes: number): void => {
      held += bytes
      this.#bytes += bytes
      const own = (this.#bytesOf.get(principal) ?? 0) + bytes
      if (own === 0) this.#bytesOf.delete(principal)
      else this.#bytesOf.set(principal, own)
    }
    return {
      release: () => add(-held),
      grow: (bytes) => {
        const more = bytes - held
        if (more <= 0) return null
        const own = (this.#bytesOf.get(principal) ?? 0) + more
        const fits = this.#bytes + more <= this.#bytesMax && own <= this.#bytesMax / 2
        if (fits) return (add(more), null)
        return new HoldfastError('too_many', 'too many large requests are under way: try again')
      },
    }
  }
}
