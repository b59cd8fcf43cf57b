/**
 * How a connection or a request ends: what the end of a connection means, how long to wait before
 * the next, and the error of what was pending. Pure.
 */
import { ERROR_TABLE } from '../wire/error-table.ts'
import type { Hint, Refuse } from '../wire/frames.ts'

/** Why a session ended for this client, and what to offer a person. */
export type Ending = {
  readonly code: string
  readonly reason: string
  readonly hint: Hint | null
}

/** A refusal of the server, or the end of the session while something was pending. */
export class HoldfastClientError extends Error {
  override readonly name = 'HoldfastClientError'
  /** One of the server's codes, or `left`, `connection_lost`, `unreachable`. */
  readonly code: string
  /** Whether the same call may succeed later, unchanged. */
  readonly retry: boolean
  readonly hint: Hint | null

  constructor(
    code: string,
    message: string,
    { retry = false, hint = null }: { readonly retry?: boolean; readonly hint?: Hint | null } = {},
  ) {
    super(message)
    this.code = code
    this.retry = retry
    this.hint = hint
  }
}

export function errorOf({ code, reason, hint }: Ending): HoldfastClientError {
  return new HoldfastClientError(code, reason, { hint })
}

/** Every time the client waits for something, named with its unit. */
export const CLIENT_LIMITS = {
  /** Between opening a socket and its welcome. */
  welcomeMs: 10_000,
  /** How long the first welcome is tried for; after it the session's grace time counts. */
  firstWelcomeMs: 30_000,
  /** A connection that held this long was good: the next loss starts with no wait again. */
  stableMs: 5_000,
  /** How long a connection has to show that it is alive when the network has changed. */
  probeMs: 2_000,
  /** How long to stay away from a server that asks for it without saying how long. */
  laterMs: 1_000,
  /** One message, as the server accepts it. */
  messageBytesMax: 1_048_576,
} as const

const BACKOFF_MS = [0, 250, 500, 1_000, 2_000, 5_000] as const

/** Full jitter: many clients that lost one server do not come back in step. */
export function backoffMs(attempt: number, random: number): number {
  return (BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length) - 1] ?? 0) * random
}

/** Whether to come back, and if not, what to tell. */
export type Verdict = Ending & { readonly back: boolean; readonly afterMs: number }

/** By the server's table; after what the client itself ends a connection with, to reload. */
function hintOf(code: string): Hint | null {
  if (code === 'connection_lost' || code === 'unreachable') return 'reload'
  return (ERROR_TABLE as Readonly<Record<string, { hint?: Hint }>>)[code]?.hint ?? null
}

/** The error code that a close code stands for, where the server did not say: the first such. */
function codeOf(number: number): string | undefined {
  if (number < 4_000) return number === 1000 ? 'left' : undefined
  const row = Object.entries(ERROR_TABLE).find(([, { close }]) => close === number)
  return row?.[0]
}

/** The numbers below 4000 after which the same words would only fail again. */
const FINAL_NUMBERS: ReadonlySet<number> = new Set([1000, 1002, 1003, 1007, 1008, 1009])
const PASSING_NUMBERS: ReadonlySet<number> = new Set([4413, 4429, 4503])

export function endingOf(code: string, reason: string, hint: Hint | null = null): Ending {
  return { code, reason, hint: hint ?? hintOf(code) }
}

/** `said`: why, if the server said so before it closed. */
export function readClose(
  number: number,
  reason: string,
  said: { readonly code: string; readonly reason: string } | null,
): Verdict {
  const final = number < 4_000 ? FINAL_NUMBERS.has(number) : !PASSING_NUMBERS.has(number)
  const code = said?.code ?? codeOf(number) ?? (final ? 'bad_request' : 'connection_lost')
  const unsaid =
    number === 1006 ? 'the connection was lost' : `the connection was closed (${number})`
  const words = said?.reason ?? (reason === '' ? unsaid : reason)
  const afterMs = number === 4_429 ? CLIENT_LIMITS.laterMs : 0
  return { ...endingOf(code, words), back: !final, afterMs }
}

/** What only a person may decide is not tried again by itself, whatever the server says. */
export function readRefusal({ code, reason, retry, afterMs, hint }: Refuse): Verdict {
  const back = retry !== 'never' && code !== 'in_use' && code !== 'superseded'
  const laterMs = afterMs ?? CLIENT_LIMITS.laterMs
  return { ...endingOf(code, reason, hint), back, afterMs: retry === 'after' ? laterMs : 0 }
}

/** What a place remembered from before a reload may be refused with while its session goes on. */
export const PLACE_LOST = [
  'attachment_ended',
  'attachment_unknown',
  'unauthorized',
  'token_reused',
  'superseded',
]
