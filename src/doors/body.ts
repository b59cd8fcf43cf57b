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
  return readBytes(request, bytesMax)
}

function hasBody({ headers }: IncomingMessage): boolean {
  const length = headers['content-length']
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0')
}

function isJson(type: string | undefined): boolean {
  return type === 'application/json' || /^application\/json *(;|$)/i.test(type ?? '')
}

function readBytes(request: IncomingMessage, bytesMax: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= bytesMax) return void chunks.push(chunk)
      chunks.length = 0
      reject(tooLarge(bytesMax))
    })
    const cut = (): void => {
      if (!request.complete) reject(new HoldfastError('bad_request', 'the body was cut short'))
    }
    request.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)))
    request.on('error', cut)
    request.on('close', cut)
  })
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
