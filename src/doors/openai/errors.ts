/** Refusals as OpenAI's clients read them: `{error: {message, type, code, param}}`. */
import type { ErrorCode, HoldfastError } from '../../core/index.ts'
import type { TurnOutcome } from '../../wire/answer-text.ts'
import { httpStatus } from '../../wire/error-table.ts'
import { problemOf, retryAfterSeconds } from '../../wire/problem.ts'
import type { Static } from '../../schema/typebox.ts'
import type { Headers } from '../refusals.ts'
import type { OpenAiError } from './schemas.ts'

type ErrorBody = Static<typeof OpenAiError>

/** Also paths that we do not serve: their clients expect errors in this form too. */
const PATH = /^\/v1\/(chat|completions|responses|conversations|models|embeddings)(\/|\?|$)/

export function isOpenAiPath(target: string): boolean {
  return PATH.test(target)
}

/** Where OpenAI's own API answers with another status than ours. */
const STATUS: Partial<Record<ErrorCode, number>> = {
  invalid_field: 400,
  unsupported_media_type: 400,
  agent_unknown: 404,
  session_closed: 404,
  session_erased: 404,
  turn_over: 404,
  // A client would come again by itself after a 409.
  cancelled: 400,
}

export function openAiRefusal(error: HoldfastError) {
  const status = STATUS[error.code] ?? httpStatus(error)
  return {
    status,
    type: 'application/json',
    body: { error: openAiError(error, status) },
    headers: retryHeaders(error, status),
  }
}

export function openAiError(error: HoldfastError, status = httpStatus(error)): ErrorBody['error'] {
  const { detail, code } = problemOf(error)
  const { field } = error.details
  const param = code === 'agent_unknown' ? 'model' : typeof field === 'string' ? field : null
  return { message: detail, type: typeOf(status), code, param }
}

function typeOf(status: number): string {
  if (status >= 500) return 'server_error'
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  return status === 429 ? 'rate_limit_error' : 'invalid_request_error'
}

/** OpenAI's clients retry some statuses by themselves: headers say whether that helps, and when. */
function retryHeaders(error: HoldfastError, status: number): Headers {
  const seconds = retryAfterSeconds(error)
  const isRepeated = status === 409 || status === 429 || status >= 500
  if (seconds === null) return isRepeated ? NO_RETRY : []
  const { retryAfterMs } = error.details
  const ms = typeof retryAfterMs === 'number' ? retryAfterMs : seconds * 1_000
  return ['Retry-After', String(seconds), 'Retry-After-Ms', String(ms)]
}

const NO_RETRY: Headers = ['X-Should-Retry', 'false']

/**
 * A turn that was admitted and did not end well, or null if it did. To repeat the request would
 * only find that turn again, so a retry is discouraged.
 */
export function turnFailure(end: TurnOutcome) {
  if (end.state === 'done') return null
  const status = end.state === 'cancelled' ? 409 : 500
  const { code, message } = end.error ?? {
    code: `turn_${end.state}`,
    message: `the turn was ${end.state}${end.reason === null ? '' : `: ${end.reason}`}`,
  }
  const body: ErrorBody = { error: { message, type: typeOf(status), code, param: null } }
  return { status, body, headers: NO_RETRY }
}
