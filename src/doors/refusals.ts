/**
 * Refusals: as answers, and those that are reported as diagnostics. A wrong field, or a request for
 * what is not there, is reported to the client only.
 */
import type { IncomingHttpHeaders } from 'node:http'
import type { Diagnose, ErrorCode, HoldfastError } from '../core/index.ts'
import { httpStatus } from '../wire/error-table.ts'
import { PROBLEM_TYPE, problemOf, retryAfterSeconds } from '../wire/problem.ts'

/** Header names and values in turn, as Node takes them without copying. */
export type Headers = readonly string[]

export type Refusal = {
  readonly status: number
  readonly type: string
  readonly body: object
  readonly headers: Headers
}

/** Ours, unless a door says otherwise: a problem document. */
export function problemRefusal(error: HoldfastError) {
  const retryAfter = retryAfterSeconds(error)
  const headers = retryAfter === null ? [] : ['Retry-After', String(retryAfter)]
  return { status: httpStatus(error), type: PROBLEM_TYPE, body: problemOf(error), headers }
}

const TOLD: ReadonlySet<ErrorCode> = new Set([
  'bad_request',
  'unauthorized',
  'token_reused',
  'attachment_unknown',
  'forbidden',
  'host_refused',
  'origin_refused',
  'body_too_large',
  'message_too_large',
  'headers_too_large',
  'too_slow',
  'too_many',
])

export type RefusedClient = {
  readonly door: 'http' | 'connect' | 'cdp' | 'acp' | 'copilot'
  readonly address: string
  readonly headers?: IncomingHttpHeaders
  /** The id of its principal, if it showed a good token. */
  readonly principal?: string | undefined
}

export function reportRefusal(
  diagnose: Diagnose,
  { code, message }: HoldfastError,
  { door, address, headers = {}, principal }: RefusedClient,
): void {
  if (code === 'internal') {
    return diagnose('request_failed', 'a request failed unexpectedly', { door, error: message })
  }
  if (!TOLD.has(code)) return
  const shown = shownBy(code, headers)
  if (principal !== undefined) shown['principal'] = principal
  diagnose('client_refused', message, { reason: code, door, address, ...shown })
}

/** What the client showed that was refused; never a secret. */
function shownBy(code: ErrorCode, headers: IncomingHttpHeaders): Record<string, string> {
  const { host, origin, 'sec-fetch-site': site } = headers
  if (code === 'host_refused') return { host: host ?? '' }
  if (code !== 'origin_refused') return {}
  return origin === undefined ? { site: site ?? '' } : { origin }
}
