/** Where a webhook stands: what the store keeps of it, as JSON with a version. */

export type WebhookState = {
  readonly v: 1
  /** A digest of its address: another one is not paused for the failures of this one. */
  readonly url: string
  /** All changes of the feed up to here have been handled. */
  position: number
  /** Of changes after that: up to which event of a session its receiver has confirmed. */
  done: Record<string, number>
  /** When the receiver confirmed last; null: never. */
  confirmedAt: number | null
  /** Attempts since then that failed, when the first did, and why the last did. */
  failures: number
  failingSince: number | null
  error: { readonly reason: string; readonly status: number | null } | null
  /** The next attempt is not before this. */
  retryAt: number | null
  pausedAt: number | null
  /** Events of this time were left out, which the receiver is still to be told. */
  gap: { readonly since: number | null; readonly until: number } | null
}

export function newState(url: string, position: number): WebhookState {
  return {
    ...{ v: 1, url, position, done: {}, confirmedAt: null, failures: 0, failingSince: null },
    ...{ error: null, retryAt: null, pausedAt: null, gap: null },
  }
}

/** Null: a newer version has written it. */
export function readState(body: string): WebhookState | null {
  const state = JSON.parse(body) as WebhookState
  return state.v === 1 ? state : null
}

/** It tries again, as if it had not failed. */
export function unpaused(state: WebhookState, url: string): WebhookState {
  const fresh = { failures: 0, failingSince: null, error: null, retryAt: null, pausedAt: null }
  return { ...state, ...fresh, url }
}
