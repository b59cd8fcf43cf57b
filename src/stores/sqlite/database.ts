/**
 * Opens the file: one process at a time (`lock.ts`), synced in full, and only if it is sound and
 * what the process before had (`marker.ts`).
 */
import fs from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { HoldfastError, messageOf } from '../../core/errors.ts'
import { unavailable } from '../failures.ts'
import { checkPages, copyTo } from './backup.ts'
import { openSqlite, checkSqliteVersion, type SqliteDatabase } from './driver.ts'
import { storeError } from './failures.ts'
import { takeLock } from './lock.ts'
import { checkMarker, OpenMarker } from './marker.ts'
import { dueMigration, migrate, type Migration } from './migrations.ts'

/** Files up to this size are checked in full when opened; larger ones only where they are read. */
const CHECK_BYTES_MAX = 64 * 1_048_576

/** With less room than this the store is not ready: one input may have a mebibyte. */
const FREE_BYTES_MIN = 2 * 1_048_576

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
  PRAGMA secure_delete = FAST;
  PRAGMA wal_autocheckpoint = 0;
  PRAGMA journal_size_limit = 67108864;
`

/** What the writer's thread is started with. */
export type WriterOptions = {
  readonly file: string
  /** The file may not grow past this many pages: a quota, and how a full disk is tried out. */
  readonly pagesMax?: number
}

export type OpenFile = ReturnType<typeof openFile>

/** Opens, locks, checks and migrates the file, or throws an error with a sentence for people. */
export function openFile(
  { file: given, pagesMax }: WriterOptions,
  onMigration: (migration: Migration) => void = () => undefined,
) {
  const file = located(given)
  const lock = takeLock(file)
  let database: SqliteDatabase | undefined
  try {
    checkLinks(file)
    checkMarker(file)
    // Conversations are private: SQLite gives the files it makes beside this one the same mode.
    if (!fs.existsSync(file)) fs.closeSync(fs.openSync(file, 'wx', 0o600))
    database = openSqlite(file)
    prepareDatabase(database, file, onMigration)
    if (pagesMax !== undefined) database.exec(`PRAGMA max_page_count = ${Math.trunc(pagesMax)}`)
    return { file, lock, database, marker: new OpenMarker(file, database) }
  } catch (thrown) {
    database?.close()
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
    throw unavailable(`cannot make the folder of ${file}: ${code}`)
  }
  try {
    if (fs.existsSync(file)) return fs.realpathSync(file)
    return join(fs.realpathSync(folder), basename(file))
  } catch (thrown) {
    throw unavailable(`cannot use ${file}: ${messageOf(thrown)}`)
  }
}

/** With what is missing above it. Node's `recursive` never ends where a folder cannot be made. */
function makeFolder(path: string): void {
  try {
    fs.mkdirSync(path, { mode: 0o700 })
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException
    if (code === 'EEXIST' && isFolder(path)) return
    const above = dirname(path)
    if (code !== 'ENOENT' || isFolder(above)) throw thrown
    makeFolder(above)
    makeFolder(path)
  }
}

function isFolder(path: string): boolean {
  return fs.statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}

function prepareDatabase(
  database: SqliteDatabase,
  file: string,
  onMigration: (migration: Migration) => void,
): void {
  checkSqliteVersion(database)
  database.exec(PRAGMAS)
  // Of a new file only: what is erased later makes it smaller.
  if (fs.statSync(file).size === 0) database.exec('PRAGMA auto_vacuum = INCREMENTAL')
  if (fs.statSync(file).size <= CHECK_BYTES_MAX) checkPages(database)
  setDurable(database)
  const due = dueMigration(database, file)
  if (due === null) return migrate(database, file)
  onMigration(due)
  migrateWithCopy(database, file, due.backup)
}

/** After a checked copy, which takes its name only when it is whole. */
function migrateWithCopy(database: SqliteDatabase, file: string, backup: string): void {
  const part = `${backup}.part`
  try {
    fs.rmSync(part, { force: true })
    copyTo(database, part)
    sync(part, 'r+')
    fs.renameSync(part, backup)
    // The name too must outlast the machine. Windows opens no folder.
    if (process.platform !== 'win32') sync(dirname(backup), 'r')
    migrate(database, file)
  } catch (thrown) {
    fs.rmSync(part, { force: true })
    // What was rolled back needs no copy: else each start that fails leaves another. After a failed
    // sync it is not known what a later start finds: the copy stays.
    if (storeError(thrown, file).code !== 'store_failed') fs.rmSync(backup, { force: true })
    throw thrown
  }
}

function sync(path: string, flags: 'r' | 'r+'): void {
  const descriptor = fs.openSync(path, flags)
  try {
    fs.fsyncSync(descriptor)
  } finally {
    fs.closeSync(descriptor)
  }
}

/** Drivers have been seen to lower `synchronous` in WAL mode: it is set after it, and read back. */
function setDurable(database: SqliteDatabase): void {
  const { journal_mode: journal } = database.prepare('PRAGMA journal_mode = WAL').get()
  database.exec('PRAGMA synchronous = FULL')
  const { synchronous } = database.prepare('PRAGMA synchronous').get()
  if (journal === 'wal' && synchronous === 2) return
  throw unavailable(
    'this file system cannot hold a durable store ' +
      `(journal_mode ${journal}, synchronous ${synchronous})`,
  )
}

/** Throws `store_full` if the file system has too little room for one large request. */
export function checkRoom({ file }: OpenFile): void {
  const { blocks, bavail, bfree, bsize } = fs.statfsSync(dirname(file))
  const free = (process.getuid?.() === 0 ? bfree : bavail) * bsize
  // Some file systems tell nothing.
  if (blocks === 0 || free >= FREE_BYTES_MIN) return
  throw new HoldfastError('store_full', 'the disk of the store is full: free some space')
}

/**
 * `isSound`: nothing has failed, so that what was acknowledged is in the file. The lock is released
 * last: no process opens the file while it is being closed.
 */
export function closeFile({ database, marker, lock }: OpenFile, isSound: boolean): void {
  let isComplete = false
  try {
    isComplete = isSound && emptyWal(database)
    database.close()
  } finally {
    marker.close(isComplete)
    lock.close()
  }
}

/**
 * Copies the `-wal` into the file, which SQLite may do as late as the last statement is collected.
 * False if a reader is in the way: then the `-wal` stays, with what the file does not have.
 */
function emptyWal(database: SqliteDatabase): boolean {
  try {
    database.exec('PRAGMA busy_timeout = 0')
    const { log, checkpointed } = database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get()
    return log === checkpointed
  } catch {
    // A full disk, most likely: the `-wal` stays, and the next start finds everything in it.
    return false
  }
}

/** By another name the file has another lock, and SQLite another `-wal` for it. */
function checkLinks(file: string): void {
  if ((fs.statSync(file, { throwIfNoEntry: false })?.nlink ?? 1) <= 1) return
  const why = 'it has several names (hard links), and another process may use it by another'
  throw unavailable(`cannot use ${file}: ${why}; make it a copy`)
}
