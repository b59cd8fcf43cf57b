/** What a client is told when it cannot go on: a code, a sentence, and what to do about it. */
import { ERRORS, type ErrorCode, type HoldfastError } from '../../core/index.ts'
import type { Hint, Refuse } from '../../wire/frames.ts'

const HINTS: Partial<Record<ErrorCode, Hint>> = {
  session_closed: 'start_new',
  session_erased: 'start_new',
  session_unknown: 'start_new',
  attachment_ended: 'start_new',
  attachment_unknown: 'start_new',
  work_started: 'start_new',
  token_reused: 'reload',
  version_unsupported: 'reload',
  ahead: 'reload',
  in_use: 'take_over',
  superseded: 'take_over',
  draining: 'wait',
  too_many: 'wait',
}

/** It may succeed later, but that is for a person to decide. */
const NOT_BY_ITSELF: ReadonlySet<ErrorCode> = new Set(['in_use'])

export function refusalOf(error: HoldfastError): Refuse {
  const { code, message } = error
  const hint = HINTS[code]
  const afterMs = Number(error.details['retryAfterMs'] ?? 1_000)
  return {
    type: 'refuse',
    code,
    reason: code === 'internal' ? 'something went wrong inside Holdfast' : message,
    ...(error.retry && !NOT_BY_ITSELF.has(code) ? { retry: 'after', afterMs } : { retry: 'never' }),
    ...(hint === undefined ? {} : { hint }),
  }
}

/** The code to close a socket with. */
export function closeCode(code: ErrorCode): number {
  return ERRORS[code].close ?? 1011
}
