/**
 * How a refusal is answered: the HTTP status, the code that a WebSocket is closed with, and what a
 * client should do next. Every code of the core has a row. A client that knows no more takes a
 * close code for the first row that has it.
 */
import type { ErrorCode } from '../core/index.ts'
import type { Hint } from './frames.ts'

type ErrorAnswer = {
  readonly status: number
  /** Null: the error never ends a socket. */
  readonly close: number | null
  readonly hint?: Hint
}

export const ERROR_TABLE: Readonly<Record<ErrorCode, ErrorAnswer>> = {
  bad_request: { status: 400, close: 4400 },
  unauthorized: { status: 401, close: 4401 },
  token_reused: { status: 401, close: 4425, hint: 'reload' },
  forbidden: { status: 403, close: 4403 },
  host_refused: { status: 403, close: 4403 },
  origin_refused: { status: 403, close: 4403 },
  route_unknown: { status: 404, close: 4400 },
  session_unknown: { status: 404, close: 4404, hint: 'start_new' },
  browser_unknown: { status: 404, close: 4404 },
  target_unknown: { status: 404, close: 4404 },
  turn_unknown: { status: 404, close: null },
  blob_unknown: { status: 404, close: null },
  ask_unknown: { status: 404, close: null },
  attachment_unknown: { status: 404, close: 4401, hint: 'start_new' },
  webhook_unknown: { status: 404, close: null },
  method_not_allowed: { status: 405, close: null },
  not_acceptable: { status: 406, close: null },
  request_timeout: { status: 408, close: null },
  in_use: { status: 409, close: 4409, hint: 'take_over' },
  agent_mismatch: { status: 409, close: 4409 },
  cancelled: { status: 409, close: null },
  key_taken: { status: 409, close: 4409 },
  session_exists: { status: 409, close: null },
  session_open: { status: 409, close: null },
  ask_settled: { status: 409, close: null },
  ask_approved: { status: 409, close: null },
  backend_bound: { status: 409, close: null },
  backend_lost: { status: 409, close: null },
  superseded: { status: 409, close: 4408, hint: 'take_over' },
  ahead: { status: 409, close: 4412, hint: 'reload' },
  work_started: { status: 409, close: 4423, hint: 'start_new' },
  session_closed: { status: 410, close: 4410, hint: 'start_new' },
  session_erased: { status: 410, close: 4410, hint: 'start_new' },
  attachment_ended: { status: 410, close: 4410, hint: 'start_new' },
  turn_over: { status: 410, close: null },
  changes_gone: { status: 410, close: null },
  body_too_large: { status: 413, close: 4400 },
  message_too_large: { status: 413, close: 1009 },
  unsupported_media_type: { status: 415, close: null },
  invalid_field: { status: 422, close: 4400 },
  agent_unknown: { status: 422, close: 4400 },
  setting_unsupported: { status: 422, close: 4400 },
  capability_missing: { status: 422, close: null },
  input_unsupported: { status: 422, close: null },
  idempotency_mismatch: { status: 422, close: null },
  invalid_answer: { status: 422, close: null },
  version_unsupported: { status: 426, close: 4426, hint: 'reload' },
  too_many: { status: 429, close: 4429, hint: 'wait' },
  session_busy: { status: 429, close: 4429 },
  quota_exceeded: { status: 429, close: 4429, hint: 'wait' },
  budget_exceeded: { status: 429, close: 4429, hint: 'wait' },
  too_slow: { status: 429, close: 4413 },
  headers_too_large: { status: 431, close: 4400 },
  internal: { status: 500, close: 1011 },
  browser_gone: { status: 503, close: 4520 },
  draining: { status: 503, close: 4503, hint: 'wait' },
  lease_lost: { status: 503, close: 1012 },
  owner_unreachable: { status: 503, close: 1012 },
  not_owner: { status: 503, close: 1012 },
  stale_epoch: { status: 503, close: 1012 },
  store_locked: { status: 503, close: 1012 },
  store_unavailable: { status: 503, close: 1012 },
  session_unreadable: { status: 503, close: 1011 },
  store_corrupt: { status: 503, close: 1011 },
  store_newer: { status: 503, close: 1011 },
  store_failed: { status: 503, close: 1011 },
  auth_unavailable: { status: 503, close: 1013 },
  store_full: { status: 507, close: 1013 },
}

export function httpStatus({ code }: { readonly code: ErrorCode }): number {
  return ERROR_TABLE[code].status
}

export function closeCode(code: ErrorCode): number {
  return ERROR_TABLE[code].close ?? 1011
}
