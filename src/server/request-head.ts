/**
 * A request's head, checked before anything is read from it. Node drops headers beyond a count and
 * repeated ones without a word, and a proxy in front may have read the others: so such a request is
 * refused instead of half read.
 */
import type { IncomingMessage } from 'node:http'
import { HoldfastError } from '../core/index.ts'
import { SEAL_HEADER } from './forwarding/seal.ts'
import { SERVER_LIMITS } from './limits.ts'

/** Of these Node keeps the first and drops the rest, or joins them to one that means nothing. */
const ONCE: readonly string[] = ['host', 'authorization', 'sec-fetch-site']

/** A target that names its host itself, as clients send it to a proxy (RFC 9112, 3.2.2). */
const ABSOLUTE = /^https?:\/\/([^/?#]*)(.*)$/i

/** Throws unless the head is within its bounds and means one thing. Makes its target a path. */
export function checkHead(request: IncomingMessage): void {
  const { rawHeaders, headers, url = '' } = request
  let bytes = url.length
  const seen = new Set<string>()
  for (const [index, text] of rawHeaders.entries()) {
    bytes += text.length
    if (index % 2 === 1) continue
    const name = text.toLowerCase()
    if (seen.has(name) && ONCE.includes(name)) {
      throw new HoldfastError('bad_request', `the header ${name} must be there only once`)
    }
    seen.add(name)
  }
  // What another node passes on has a few headers more than what its client sent.
  const { headersMax, headerBytesMax, forwardedHeaders, forwardedBytes } = SERVER_LIMITS
  const isPassedOn = headers[SEAL_HEADER] !== undefined
  const countMax = headersMax + (isPassedOn ? forwardedHeaders : 0)
  const bytesMax = headerBytesMax + (isPassedOn ? forwardedBytes : 0)
  if (rawHeaders.length > 2 * countMax || bytes > bytesMax) {
    throw headTooLarge()
  }
  makePath(request)
}

export function headTooLarge(): HoldfastError {
  const { headersMax, headerBytesMax } = SERVER_LIMITS
  const bounds = `${headersMax} headers, ${headerBytesMax} bytes with the path`
  return new HoldfastError('headers_too_large', `the request's head is over its bound: ${bounds}`)
}

function makePath(request: IncomingMessage): void {
  const { url = '', headers } = request
  const [, host = '', rest = ''] = ABSOLUTE.exec(url) ?? []
  if (host === '') return
  if (host.toLowerCase() !== headers.host?.toLowerCase()) {
    throw new HoldfastError('bad_request', 'the target and the Host header name different hosts')
  }
  request.url = rest.startsWith('/') ? rest : `/${rest}`
}
