/**
 * What PostgreSQL's errors mean for a caller. Whatever may pass by itself, a lost connection, a
 * restart, a failover, is `store_unavailable`: the outcome is unknown, and trying again may help.
 */
import { HoldfastError, messageOf, type ErrorCode } from '../../core/errors.ts'

/** By SQLSTATE, or by its first two characters, its class. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  '08': 'store_unavailable', // connection exceptions
  '0A': 'store_unavailable', // a prepared plan that a migration has made invalid
  '25006': 'store_unavailable', // read-only: a standby that is not promoted yet
  '26': 'store_unavailable', // a pooler has lost our prepared statement
  '28': 'store_unavailable', // authentication failed
  '3D': 'store_unavailable', // there is no such database
  '40': 'store_unavailable', // rolled back: deadlock, serialization
  '42501': 'store_unavailable', // not permitted
  '42P05': 'store_unavailable', // a pooler's connection has our prepared statement already
  '53': 'store_unavailable', // out of connections or memory
  '53100': 'store_full',
  '55P03': 'store_unavailable', // lock not available
  '57': 'store_unavailable', // cancelled, shut down, cannot connect now
  '58': 'store_unavailable', // the server's own system failed
  HF001: 'store_newer', // our own: see `check_step`
  XX001: 'store_corrupt',
  XX002: 'store_corrupt',
}

/** Whatever was thrown while the database was used, as an error with a code. */
export function storeError(thrown: unknown): HoldfastError {
  if (thrown instanceof HoldfastError) return thrown
  const reason = reasonOf(thrown)
  const code = codeOf(thrown)
  return new HoldfastError(code, SENTENCES[code]?.(reason) ?? reason, { reason })
}

/** A prepared statement was not where we had prepared it: it was not carried out. */
export function isUnprepared(thrown: unknown): boolean {
  const { code } = thrown as { code?: unknown }
  return code === '26000' || code === '42P05'
}

/** A path on the database's machine or on ours, quoted or not. */
const PATHS = /"[^"]*\/[^"]*"|(?<![\w.:/])\/[^\s,;)]+/g

/** The driver's message, which names no password. Clients see it too, so paths are removed. */
function reasonOf(thrown: unknown): string {
  if (thrown instanceof AggregateError) return reasonOf(thrown.errors[0])
  return messageOf(thrown).replaceAll(/\s+/g, ' ').replaceAll(PATHS, '…').trim()
}

function codeOf(thrown: unknown): ErrorCode {
  const { code, severity } = thrown as { code?: unknown; severity?: unknown }
  if (typeof severity === 'string' && typeof code === 'string') {
    return CODES[code] ?? CODES[code.slice(0, 2)] ?? 'internal'
  }
  // Only the server's own answers have a severity. What the driver throws without a server is about
  // the connection, unless we called it wrongly.
  const isOurFault = thrown instanceof TypeError || thrown instanceof RangeError
  return isOurFault ? 'internal' : 'store_unavailable'
}

const SENTENCES: Partial<Record<ErrorCode, (reason: string) => string>> = {
  store_unavailable: (reason) => `the database cannot be used for now (${reason})`,
  store_full: (reason) =>
    `the database has no room (${reason}): free some, and Holdfast goes on by itself`,
  store_newer: () =>
    'a newer Holdfast has changed the database: this one writes no more, update it',
  store_corrupt: (reason) => `the database is damaged (${reason}): restore a backup`,
}
