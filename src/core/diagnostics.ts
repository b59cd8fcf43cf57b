/**
 * Diagnostics: what an operator, or a program that uses the library, has to know although no
 * request is answered with it. A diagnostic never holds a secret, an input or an answer.
 * `docs/reference/diagnostics.md` is checked against this table.
 */
export const DIAGNOSTICS = {
  accept_failed: 'error',
  agent_ended: 'info',
  agent_files_left: 'warn',
  agent_started: 'info',
  agents_unisolated: 'warn',
  archive_failed: 'error',
  ask_unanswered: 'debug',
  audit_failed: 'error',
  browser_ended: 'info',
  browser_listening: 'info',
  browser_shared: 'warn',
  browser_started: 'info',
  budget_reached: 'warn',
  budgets_not_stored: 'warn',
  client_refused: 'warn',
  clock_jumped: 'warn',
  closed: 'debug',
  commit_slow: 'warn',
  config_read: 'info',
  config_unusable: 'error',
  conversation_changed: 'warn',
  copilot_listening: 'info',
  counts_not_exchanged: 'warn',
  crashed: 'error',
  descriptors_low: 'warn',
  draining: 'info',
  egress_refused: 'warn',
  forward_failed: 'warn',
  jwks_read: 'info',
  jwks_unavailable: 'error',
  jwt_refused: 'debug',
  lease_lost: 'error',
  lease_not_renewed: 'warn',
  lease_taken: 'info',
  limit_reached: 'warn',
  link_used: 'debug',
  listener_failed: 'error',
  listening: 'info',
  opened: 'debug',
  readable_by_others: 'warn',
  request_failed: 'error',
  runner_failed: 'warn',
  session_erased: 'debug',
  session_lost: 'warn',
  session_recovered: 'info',
  session_taken_over: 'info',
  session_unreadable: 'error',
  snapshot_damaged: 'warn',
  snapshot_outdated: 'info',
  start_failed: 'error',
  stop_failed: 'error',
  stopped: 'info',
  store_disconnected: 'warn',
  store_migrating: 'info',
  store_failed: 'error',
  sweep_failed: 'warn',
  tokens_read: 'info',
  tokens_unusable: 'error',
  webhook_failed: 'warn',
  webhook_gap: 'error',
  webhook_paused: 'error',
  webhook_recovered: 'info',
} as const satisfies Readonly<Record<string, DiagnosticLevel>>

export type DiagnosticLevel = 'debug' | 'info' | 'warn' | 'error'
export type DiagnosticCode = keyof typeof DIAGNOSTICS

/** Facts for programs: ids, counts, codes and durations. */
export type Facts = Readonly<Record<string, string | number | boolean | null>>

/** The code is the contract, the message is for people. */
export type Diagnostic = {
  readonly code: DiagnosticCode
  readonly level: DiagnosticLevel
  readonly message: string
  readonly facts: Facts
}

export type DiagnosticListener = (diagnostic: Diagnostic) => void

/** What the parts of Holdfast are given to report with. */
export type Diagnose = (code: DiagnosticCode, message: string, facts?: Facts) => void

/** A listener that throws must not disturb what it listens to. */
export function diagnoseTo(...listeners: readonly DiagnosticListener[]): Diagnose {
  return diagnoseToAll(listeners)
}

/** The same for listeners that come and go. */
export function diagnoseToAll(listeners: Iterable<DiagnosticListener>): Diagnose {
  return (code, message, facts = {}) => {
    for (const listener of listeners) {
      try {
        listener({ code, level: DIAGNOSTICS[code], message, facts })
      } catch {
        // There is nothing left to report it to.
      }
    }
  }
}
