/**
 * SQLite for Node: `node:sqlite` where it is stable and recent enough, else the package
 * `@photostructure/sqlite`, which has the same API and brings its own SQLite. Loaded when the first
 * file is opened, so that programs with another store need neither.
 */
import { createRequire } from 'node:module'
import { unavailable } from '../failures.ts'
import { storeError } from './failures.ts'

type SqlValue = string | number | Uint8Array | null

// oxlint-disable-next-line no-explicit-any -- a column's type is the caller's word
type AnyRow = any

/** This and the next: the part of the driver that is used here. */
export interface SqliteStatement {
  get(...values: SqlValue[]): AnyRow
  all(...values: SqlValue[]): AnyRow[]
  iterate(...values: SqlValue[]): Iterable<AnyRow>
  run(...values: SqlValue[]): { changes: number | bigint; lastInsertRowid: number | bigint }
}

export interface SqliteDatabase {
  readonly isTransaction: boolean
  exec(sql: string): void
  prepare(sql: string): SqliteStatement
  close(): void
}

type OpenMode = { readonly readOnly?: boolean; readonly timeout?: number }
type Driver = { readonly DatabaseSync: new (file: string, mode?: OpenMode) => SqliteDatabase }

/** Below this version a bug in resetting the WAL could damage a file. */
const SQLITE_VERSION_MIN = '3.51.3'
/** Older versions of Node print a warning when `node:sqlite` is loaded. */
const NODE_MAJOR_MIN = 24

let driver: Driver | null = null

export function openSqlite(file: string, mode: OpenMode = {}): SqliteDatabase {
  driver ??= loadDriver()
  return new driver.DatabaseSync(file, mode)
}

/** Beside a server that may use the file. */
export function openSqliteToRead(file: string): SqliteDatabase {
  return openSqlite(file, { readOnly: true, timeout: 5_000 })
}

/** Uses it so. Errors name the file. */
export function readSqlite<Found>(file: string, read: (database: SqliteDatabase) => Found): Found {
  let database: SqliteDatabase | undefined
  try {
    database = openSqliteToRead(file)
    return read(database)
  } catch (thrown) {
    throw storeError(thrown, file)
  } finally {
    database?.close()
  }
}

function loadDriver(): Driver {
  const { node, sqlite } = process.versions
  const isRecent = sqlite !== undefined && isRecentEnough(sqlite)
  if (isRecent && Number.parseInt(node) >= NODE_MAJOR_MIN) return builtIn()
  try {
    return createRequire(import.meta.url)('@photostructure/sqlite') as Driver
  } catch (thrown) {
    if (isRecent) return builtIn()
    const { code, message } = thrown as NodeJS.ErrnoException
    throw unavailable(
      `SQLite cannot be loaded (${code ?? message}): Node ${node} brings none that is recent ` +
        'enough; use Node 24, or install the package @photostructure/sqlite',
    )
  }
}

function builtIn(): Driver {
  return process.getBuiltinModule('node:sqlite' as 'node:fs') as unknown as Driver
}

export function checkSqliteVersion(database: SqliteDatabase): void {
  const { version } = database.prepare('SELECT sqlite_version() AS version').get()
  if (isRecentEnough(version)) return
  throw unavailable(`SQLite ${version} is older than ${SQLITE_VERSION_MIN}`)
}

function isRecentEnough(version: string): boolean {
  return version.localeCompare(SQLITE_VERSION_MIN, 'en', { numeric: true }) >= 0
}

export type Prepared<Name extends string> = Readonly<Record<Name, SqliteStatement>>

export function prepareAll<Name extends string>(
  database: SqliteDatabase,
  texts: Readonly<Record<Name, string>>,
): Prepared<Name> {
  const entries = Object.entries<string>(texts).map(([name, sql]) => [name, database.prepare(sql)])
  return Object.fromEntries(entries) as Record<Name, SqliteStatement>
}
