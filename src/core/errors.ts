/**
 * Every way Holdfast refuses, and whether the same request may succeed later, unchanged. The code
 * is the contract, the message is for people. `wire/error-table.ts` says how each code is answered
 * over HTTP and WebSocket. `docs/reference/errors.md` is checked against both tables.
 */
export const ERRORS = {
  bad_request: { retry: false },
  unauthorized: { retry: false },
  token_reused: { retry: false },
  forbidden: { retry: false },
  host_refused: { retry: false },
  origin_refused: { retry: false },
  route_unknown: { retry: false },
  browser_unknown: { retry: false },
  target_unknown: { retry: false },
  session_unknown: { retry: false },
  turn_unknown: { retry: false },
  blob_unknown: { retry: false },
  ask_unknown: { retry: false },
  attachment_unknown: { retry: false },
  webhook_unknown: { retry: false },
  method_not_allowed: { retry: false },
  not_acceptable: { retry: false },
  request_timeout: { retry: true },
  agent_mismatch: { retry: false },
  cancelled: { retry: false },
  key_taken: { retry: false },
  session_exists: { retry: false },
  session_open: { retry: false },
  ask_settled: { retry: false },
  ask_approved: { retry: false },
  backend_bound: { retry: false },
  backend_lost: { retry: false },
  in_use: { retry: true },
  superseded: { retry: false },
  ahead: { retry: false },
  work_started: { retry: false },
  session_closed: { retry: false },
  session_erased: { retry: false },
  attachment_ended: { retry: false },
  turn_over: { retry: false },
  changes_gone: { retry: false },
  body_too_large: { retry: false },
  message_too_large: { retry: false },
  unsupported_media_type: { retry: false },
  invalid_field: { retry: false },
  setting_unsupported: { retry: false },
  capability_missing: { retry: false },
  input_unsupported: { retry: false },
  agent_unknown: { retry: false },
  idempotency_mismatch: { retry: false },
  invalid_answer: { retry: false },
  version_unsupported: { retry: false },
  session_busy: { retry: true },
  too_slow: { retry: true },
  too_many: { retry: true },
  quota_exceeded: { retry: true },
  budget_exceeded: { retry: true },
  headers_too_large: { retry: false },
  internal: { retry: false },
  browser_gone: { retry: true },
  auth_unavailable: { retry: true },
  draining: { retry: true },
  lease_lost: { retry: true },
  owner_unreachable: { retry: true },
  not_owner: { retry: true },
  stale_epoch: { retry: true },
  store_locked: { retry: true },
  store_unavailable: { retry: true },
  session_unreadable: { retry: false },
  store_corrupt: { retry: false },
  store_newer: { retry: false },
  store_failed: { retry: false },
  store_full: { retry: true },
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

  /** Whether the same request may succeed later, unchanged. */
  get retry(): boolean {
    return ERRORS[this.code].retry
  }
}

export function invalid(field: string, problem: string): HoldfastError {
  return new HoldfastError('invalid_field', `${field} ${problem}`, { field })
}

/** What was thrown, as an error with a code; an unforeseen one is `internal`. */
export function asHoldfastError(thrown: unknown): HoldfastError {
  if (thrown instanceof HoldfastError) return thrown
  return new HoldfastError('internal', messageOf(thrown))
}

/** Anything can be thrown, also what cannot be converted to a text. */
export function messageOf(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown)
  } catch {
    return 'a value was thrown that cannot be converted to a text'
  }
}
