/**
 * A refusal as it crosses the wire, never with a stack: a problem document (RFC 9457) with our
 * code, or the frame that refuses a client of a socket.
 */
import { STATUS_CODES } from 'node:http'
import type { HoldfastError } from '../core/index.ts'
import { ERROR_TABLE, httpStatus } from './error-table.ts'
import type { Refuse } from './frames.ts'

export const PROBLEM_TYPE = 'application/problem+json'

/** Node 20 has older names for two of them. */
const TITLES: Readonly<Record<number, string | undefined>> = {
  ...STATUS_CODES,
  413: 'Content Too Large',
  422: 'Unprocessable Content',
}

/** What was not foreseen may say anything, so its own message stays on the server. */
const INTERNAL_DETAIL = 'something went wrong inside Holdfast; its log says what'

export function problemOf(error: HoldfastError) {
  const { code, message, details } = error
  const status = httpStatus(error)
  return {
    ...details,
    type: 'about:blank',
    title: TITLES[status] ?? 'Error',
    status,
    code,
    detail: code === 'internal' ? INTERNAL_DETAIL : message,
  }
}

/** In how many seconds to try again (at least one), or null where trying again does not help. */
export function retryAfterSeconds({ retry, details }: HoldfastError): number | null {
  if (!retry) return null
  const ms = details['retryAfterMs']
  return typeof ms === 'number' ? Math.max(1, Math.ceil(ms / 1_000)) : 1
}

/** A code, a sentence, and what the client can do next. */
export function refusalOf(error: HoldfastError): Refuse {
  const { code, message } = error
  const { hint } = ERROR_TABLE[code]
  const afterMs = Number(error.details['retryAfterMs'] ?? 1_000)
  // It may succeed later, but that is for a person to decide.
  const isFinal = code === 'in_use' || error.details['isOver'] === true
  return {
    type: 'refuse',
    code,
    reason: code === 'internal' ? 'something went wrong inside Holdfast' : message,
    ...(error.retry && !isFinal ? { retry: 'after', afterMs } : { retry: 'never' }),
    hint,
  }
}
