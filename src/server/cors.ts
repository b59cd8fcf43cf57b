/** CORS headers, for pages of other origins that the operator has allowed. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { METHODS } from '../doors/route.ts'

/** The last two lines are for what OpenAI's client sends by itself. */
const REQUEST_HEADERS = [
  'authorization, content-type, idempotency-key, prefer, last-event-id',
  'x-session-key, x-session-busy, x-session-wait-ms, acp-connection-id, acp-session-id',
  'x-stainless-retry-count, x-stainless-timeout, x-stainless-lang, x-stainless-os',
  'x-stainless-package-version, x-stainless-runtime, x-stainless-runtime-version, x-stainless-arch',
].join(', ')
const ANSWER_HEADERS = [
  'Location, Content-Location, Retry-After, Retry-After-Ms, X-Should-Retry, X-Request-Id',
  'X-Next-Before, Acp-Connection-Id',
].join(', ')

/** How long a browser may remember the answer to a preflight, in seconds. */
const REMEMBER_S = 600

/**
 * Marks the answer as one that a page of this origin may read. True if that was all: a browser asks
 * what a page may do before it does it (a preflight).
 */
export function answerPage(
  { method, headers }: IncomingMessage,
  response: ServerResponse,
  origin: string,
): boolean {
  response.setHeader('Access-Control-Allow-Origin', origin)
  response.setHeader('Access-Control-Expose-Headers', ANSWER_HEADERS)
  response.setHeader('Vary', 'Origin')
  const isPreflight = method === 'OPTIONS' && 'access-control-request-method' in headers
  if (!isPreflight) return false
  response.writeHead(204, {
    'Access-Control-Allow-Methods': METHODS.join(', '),
    'Access-Control-Allow-Headers': REQUEST_HEADERS,
    'Access-Control-Max-Age': REMEMBER_S,
    'Cache-Control': 'no-store',
  })
  response.end()
  return true
}
