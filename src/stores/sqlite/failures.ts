/**
 * What SQLite's errors mean for a caller. `store_failed` and `store_corrupt` are for good: after a
 * failed fsync a second one may lie, and what is damaged must not be written to.
 */
import { HoldfastError, messageOf, type ErrorCode } from '../../core/errors.ts'

const SQLITE_CORRUPT = 11
const SQLITE_IOERR_SHMSIZE = 4874

const CODES: Readonly<Record<number, ErrorCode>> = {
  5: 'store_locked', // SQLITE_BUSY
  6: 'store_locked', // SQLITE_LOCKED
  8: 'store_unavailable', // SQLITE_READONLY
  10: 'store_failed', // SQLITE_IOERR
  [SQLITE_CORRUPT]: 'store_corrupt',
  13: 'store_full', // SQLITE_FULL
  14: 'store_unavailable', // SQLITE_CANTOPEN
  26: 'store_corrupt', // SQLITE_NOTADB
}

/** Damage that we saw ourselves; SQLite's own code for it. */
export class DamageError extends Error {
  readonly errcode = SQLITE_CORRUPT
}

/** Whatever was thrown while `file` was used, as an error with a code and a sentence for people. */
export function storeError(thrown: unknown, file: string): HoldfastError {
  if (thrown instanceof HoldfastError) return thrown
  return errorOf(codeOf(thrown), file, messageOf(thrown).replaceAll(/\s+/g, ' '))
}

/**
 * What was thrown when the writes were committed already, always for good: run again, they would
 * find themselves. A message of the file system names a path, so only its code is reported.
 */
export function errorAfterCommit(thrown: unknown): HoldfastError {
  const error = storeError(thrown, 'the store')
  if (isForGood(error)) return error
  const { code = error.code } = thrown as NodeJS.ErrnoException
  return errorOf('store_failed', 'the store', code)
}

function errorOf(code: ErrorCode, file: string, reason: string): HoldfastError {
  return new HoldfastError(code, SENTENCES[code]?.(file, reason) ?? reason)
}

function codeOf(thrown: unknown): ErrorCode {
  const { errcode } = thrown as { errcode?: unknown }
  if (typeof errcode !== 'number') return 'internal'
  // No room to grow the WAL's index is a full disk, not a broken one: nothing was synced.
  if (errcode === SQLITE_IOERR_SHMSIZE) return 'store_full'
  return CODES[errcode & 0xff] ?? 'internal'
}

const SENTENCES: Partial<Record<ErrorCode, (file: string, reason: string) => string>> = {
  store_full: (file) =>
    `no room to write to ${file}: free some space, and Holdfast goes on by itself`,
  store_failed: (file, reason) =>
    `the disk failed under ${file} (${reason}): check the disk, then start Holdfast again`,
  store_corrupt: (file, reason) =>
    `${file} is damaged or not Holdfast's (${reason}): move it away, restore a backup`,
  store_locked: (file, reason) => `${file} is locked by another process (${reason})`,
  store_unavailable: (file, reason) =>
    `cannot open ${file} for writing (${reason}): is its folder there, and writable?`,
}

/** After these the store answers nothing more until the process starts anew. */
export function isForGood({ code }: HoldfastError): boolean {
  return code === 'store_failed' || code === 'store_corrupt'
}
