/**
 * Every way Holdfast refuses. The code is the contract, the message is for people.
 * `docs/reference/errors.md` is checked against this table.
 */
export const ERRORS = {
  bad_request: { status: 400, close: 4400, retry: false },
  unauthorized: { status: 401, close: 4401, retry: false },
  token_reused: { status: 401, close: 4425, retry: false },
  forbidden: { status: 403, close: 4403, retry: false },
  host_refused: { status: 403, close: 4403, retry: false },
  origin_refused: { status: 403, close: 4403, retry: false },
  route_unknown: { status: 404, close: 4400, retry: false },
  browser_unknown: { status: 404, close: 4404, retry: false },
  target_unknown: { status: 404, close: 4404, retry: false },
  session_unknown: { status: 404, close: 4404, retry: false },
  turn_unknown: { status: 404, close: null, retry: false },
  ask_unknown: { status: 404, close: null, retry: false },
  attachment_unknown: { status: 404, close: 4401, retry: false },
  method_not_allowed: { status: 405, close: null, retry: false },
  not_acceptable: { status: 406, close: null, retry: false },
  request_timeout: { status: 408, close: null, retry: true },
  agent_mismatch: { status: 409, close: 4409, retry: false },
  cancelled: { status: 409, close: null, retry: false },
  key_taken: { status: 409, close: 4409, retry: false },
  ask_settled: { status: 409, close: null, retry: false },
  backend_bound: { status: 409, close: null, retry: false },
  backend_lost: { status: 409, close: null, retry: false },
  in_use: { status: 409, close: 4409, retry: true },
  superseded: { status: 409, close: 4408, retry: false },
  ahead: { status: 409, close: 4412, retry: false },
  work_started: { status: 409, close: 4423, retry: false },
  session_closed: { status: 410, close: 4410, retry: false },
  session_erased: { status: 410, close: 4410, retry: false },
  attachment_ended: { status: 410, close: 4410, retry: false },
  turn_over: { status: 410, close: null, retry: false },
  body_too_large: { status: 413, close: 4400, retry: false },
  message_too_large: { status: 413, close: 1009, retry: false },
  unsupported_media_type: { status: 415, close: null, retry: false },
  invalid_field: { status: 422, close: 4400, retry: false },
  agent_unknown: { status: 422, close: 4400, retry: false },
  idempotency_mismatch: { status: 422, close: null, retry: false },
  invalid_answer: { status: 422, close: null, retry: false },
  version_unsupported: { status: 426, close: 4426, retry: false },
  session_busy: { status: 429, close: 4429, retry: true },
  too_slow: { status: 429, close: 4413, retry: true },
  too_many: { status: 429, close: 4429, retry: true },
  headers_too_large: { status: 431, close: 4400, retry: false },
  internal: { status: 500, close: 1011, retry: false },
  browser_gone: { status: 503, close: 4520, retry: true },
  draining: { status: 503, close: 4503, retry: true },
  lease_lost: { status: 503, close: 1012, retry: true },
  owner_unreachable: { status: 503, close: 1012, retry: true },
  not_owner: { status: 503, close: 1012, retry: true },
  stale_epoch: { status: 503, close: 1012, retry: true },
  store_locked: { status: 503, close: 1012, retry: true },
  store_unavailable: { status: 503, close: 1012, retry: true },
  session_unreadable: { status: 503, close: 1011, retry: false },
  store_corrupt: { status: 503, close: 1011, retry: false },
  store_newer: { status: 503, close: 1011, retry: false },
  store_failed: { status: 503, close: 1011, retry: false },
  store_full: { status: 507, close: 1013, retry: true },
} as const

export type ErrorCode = keyof typeof ERRORS

/** The one error class: a code from the table, a sentence for people, and facts for programs. */
export class HoldfastError extends Error {
  override readonly name = 'HoldfastError'
  readonly code: ErrorCode
  readonly details: Readonly<Record<string, unknown>>

  constructor(code: ErrorCode, message: string, details: Readonly<Record<string, unknown>> = {}) {
    super(message)
    this.code = code
    this.details = details
  }

  get status(): number {
    return ERRORS[this.code].status
  }

  /** Whether the same request may succeed later, unchanged. */
  get retry(): boolean {
    return ERRORS[this.code].retry
  }
}

export function invalid(field: string, problem: string): HoldfastError {
  return new HoldfastError('invalid_field', `${field} ${problem}`, { field })
}

/** Whatever was thrown, as an error with a code; what we did not foresee is `internal`. */
export function asHoldfastError(thrown: unknown): HoldfastError {
  if (thrown instanceof HoldfastError) return thrown
  return new HoldfastError('internal', messageOf(thrown))
}

/** Anything can be thrown, also what cannot be told. */
export function messageOf(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown)
  } catch {
    return 'something was thrown that cannot be told'
  }
}
