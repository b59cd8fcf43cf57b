/**
 * Opens the file: one process at a time, synced in full, and only if it is sound.
 *
 * Whoever has the file open holds a transaction on `<file>.lock` beside it; the kernel lets go of
 * that lock however the process ends, and the file itself stays readable for a backup.
 */
import { closeSync, existsSync, openSync, realpathSync, statSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { DatabaseSync, type DatabaseSyncInstance } from '@photostructure/sqlite'
import { HoldfastError } from '../../core/errors.ts'
import { DamageError, storeError } from './failures.ts'
import { makeFolder } from './folder.ts'
import type { WriterOptions } from './operations.ts'
import { migrate } from './schema.ts'

/** Below this the WAL-reset bug could damage a file. */
const SQLITE_VERSION_MIN = [3, 51, 3] as const

/**
 * Files up to this size are checked in full when opened; in larger ones damage is met when it is
 * read.
 */
const CHECK_BYTES_MAX = 64 * 1_048_576

/** The WAL is checkpointed by the writer, which sees a failed sync; SQLite's own way hides it. */
const PRAGMAS = `
  PRAGMA busy_timeout = 5000;
  PRAGMA synchronous = FULL;
  PRAGMA fullfsync = ON;
  PRAGMA checkpoint_fullfsync = ON;
  PRAGMA cache_size = -16384;
  PRAGMA foreign_keys = ON;
  PRAGMA temp_store = MEMORY;
  PRAGMA trusted_schema = OFF;
  PRAGMA wal_autocheckpoint = 0;
  PRAGMA journal_size_limit = 67108864;
`

export type OpenFile = {
  readonly file: string
  readonly database: DatabaseSyncInstance
  close(): void
}

/** Opens, locks, checks and migrates the file, or says in one sentence why not. */
export function openFile({ file: given, pagesMax }: WriterOptions): OpenFile {
  const file = located(given)
  const lock = takeLock(file)
  try {
    const database = openDatabase(file, pagesMax)
    return { file, database, close: () => closeAll(database, lock) }
  } catch (thrown) {
    lock.close()
    throw storeError(thrown, file)
  }
}

/** One file has one lock, by whatever path it is opened. */
function located(file: string): string {
  const folder = resolve(dirname(file))
  try {
    makeFolder(folder)
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException
    throw new HoldfastError('store_unavailable', `cannot make the folder of ${file}: ${code}`)
  }
  try {
    if (existsSync(file)) return realpathSync(file)
    return join(realpathSync(folder), basename(file))
  } catch (thrown) {
    const { message } = thrown as Error
    throw new HoldfastError('store_unavailable', `cannot use ${file}: ${message}`)
  }
}

function takeLock(file: string): DatabaseSyncInstance {
  let lock: DatabaseSyncInstance | undefined
  try {
    lock = new DatabaseSync(`${file}.lock`)
    lock.exec('BEGIN EXCLUSIVE')
    return lock
  } catch (thrown) {
    lock?.close()
    const error = storeError(thrown, file)
    if (error.code !== 'store_locked') throw error
    throw new HoldfastError('store_locked', `${file} is in use by another Holdfast: stop it first`)
  }
}

function openDatabase(file: string, pagesMax: number | undefined): DatabaseSyncInstance {
  createPrivately(file)
  const database = new DatabaseSync(file)
  try {
    checkVersion(database)
    database.exec(PRAGMAS)
    if (statSync(file).size <= CHECK_BYTES_MAX) checkPages(database)
    setDurable(database)
    migrate(database, file)
    if (pagesMax !== undefined) database.exec(`PRAGMA max_page_count = ${Math.trunc(pagesMax)}`)
    return database
  } catch (thrown) {
    database.close()
    throw thrown
  }
}

/** Conversations are private: SQLite gives the files it makes beside this one the same mode. */
function createPrivately(file: string): void {
  if (existsSync(file)) return
  closeSync(openSync(file, 'wx', 0o600))
}

function checkVersion(database: DatabaseSyncInstance): void {
  const { version } = database.prepare('SELECT sqlite_version() AS version').get()
  const parts = String(version).split('.').map(Number)
  const differs = SQLITE_VERSION_MIN.findIndex((least, index) => parts[index] !== least)
  if (differs === -1 || parts[differs]! > SQLITE_VERSION_MIN[differs]!) return
  const least = SQLITE_VERSION_MIN.join('.')
  throw new HoldfastError('store_unavailable', `SQLite ${version} is older than ${least}`)
}

/** Reads every page; a backup is checked by it too. */
export function checkPages(database: DatabaseSyncInstance): void {
  const { quick_check: found } = database.prepare('PRAGMA quick_check(1)').get()
  if (found !== 'ok') throw new DamageError(String(found))
}

/**
 * Drivers have been seen to lower `synchronous` in WAL mode, so it is set after it and read back.
 */
function setDurable(database: DatabaseSyncInstance): void {
  const { journal_mode: journal } = database.prepare('PRAGMA journal_mode = WAL').get()
  database.exec('PRAGMA synchronous = FULL')
  const { synchronous } = database.prepare('PRAGMA synchronous').get()
  if (journal === 'wal' && synchronous === 2) return
  throw new HoldfastError(
    'store_unavailable',
    'this file system cannot hold a durable store ' +
      `(journal_mode ${journal}, synchronous ${synchronous})`,
  )
}

/** The lock goes last: nobody opens the file while it is being closed. */
function closeAll(database: DatabaseSyncInstance, lock: DatabaseSyncInstance): void {
  try {
    database.close()
  } finally {
    lock.close()
  }
}
