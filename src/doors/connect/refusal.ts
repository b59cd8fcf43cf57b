/** The frame that refuses a client: a code, a sentence, and what it can do next. */
import type { ErrorCode, HoldfastError } from '../../core/index.ts'
import { ERROR_TABLE } from '../../wire/error-table.ts'
import type { Refuse } from '../../wire/frames.ts'

/** It may succeed later, but that is for a person to decide. */
const NOT_BY_ITSELF: ReadonlySet<ErrorCode> = new Set(['in_use'])

export function refusalOf(error: HoldfastError): Refuse {
  const { code, message } = error
  const { hint } = ERROR_TABLE[code]
  const afterMs = Number(error.details['retryAfterMs'] ?? 1_000)
  const isFinal = NOT_BY_ITSELF.has(code) || error.details['isOver'] === true
  return {
    type: 'refuse',
    code,
    reason: code === 'internal' ? 'something went wrong inside Holdfast' : message,
    ...(error.retry && !isFinal ? { retry: 'after', afterMs } : { retry: 'never' }),
    ...(hint === undefined ? {} : { hint }),
  }
}
