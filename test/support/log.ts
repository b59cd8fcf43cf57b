/** What every log must be, whatever happened to the server that wrote it. */
import { checkLog, type CheckedEvent } from '../../src/core/log-check.ts'

export type LoggedEvent = CheckedEvent & { readonly text?: string; readonly input?: unknown }

/**
 * The invariants that one log can break by itself. `isAtRest`: nothing may be left running or
 * waiting.
 */
export function brokenInLog(events: readonly LoggedEvent[], isAtRest: boolean): readonly string[] {
  const violations = checkLog(events, { isAtRest, hasUniqueKeys: true })
  return violations.map(({ invariant, message }) => `${invariant}: ${message}`)
}
