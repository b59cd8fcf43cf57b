/** Reads all logs of a store's file for a check. Never writes; a server may run. */
import { openSqliteToRead, type SqliteDatabase, type SqliteStatement } from './driver.ts'
import { checkThere } from './backup.ts'
import { storeError } from './failures.ts'
import { CHAIN } from './log.ts'
import { ROW_COLUMNS, sessionRow, type AuditedLog, type StoredRow } from '../rows.ts'

/** One moment of the file: what is written meanwhile is not seen. */
export function* auditSqlite(file: string): Generator<AuditedLog> {
  checkThere(file)
  let database: SqliteDatabase | undefined
  try {
    database = openSqliteToRead(file)
    database.exec('BEGIN')
    const sessions = database.prepare(`SELECT ${columns(database, 'sessions', ROW_COLUMNS)},
      last_event FROM sessions WHERE state <> 'erased' ORDER BY number`)
    const events = database.prepare(`${CHAIN}
      SELECT events.body, ${columns(database, 'events', 'checksum')}
        FROM chain JOIN events ON events.number = chain.number ORDER BY chain.number`)
    const snapshots = database.prepare('SELECT seq, body FROM snapshots WHERE session = ?')
    const blobs = blobStatement(database)
    for (const stored of sessions.all() as (StoredRow & { last_event: number })[]) {
      yield {
        row: sessionRow(stored),
        events: events.iterate(stored.last_event, stored.number),
        snapshot: snapshots.get(stored.number) ?? null,
        readBlob: (digest) => blobs?.get(stored.number, digest)?.data ?? null,
      }
    }
  } catch (thrown) {
    throw storeError(thrown, file)
  } finally {
    database?.close()
  }
}

/** Null: the file is of a version that had no blobs. */
function blobStatement(database: SqliteDatabase): SqliteStatement | null {
  const isThere = database.prepare('PRAGMA table_info(blobs)').all().length > 0
  return isThere
    ? database.prepare('SELECT data FROM blobs WHERE session = ? AND digest = ?')
    : null
}

/** What columns are that files of older versions lack. */
const MISSING = new Map([
  ['checksum', 'NULL'],
  ['status', `'idle'`],
  ['queued', '0'],
  ['attached', '0'],
  ['bytes', '0'],
  ['principal', `'default'`],
  ['shares', `'[]'`],
])

function columns(database: SqliteDatabase, table: string, names: string): string {
  const found = database.prepare(`PRAGMA table_info(${table})`).all()
  const isThere = (column: string): boolean => found.some(({ name }) => name === column)
  return names
    .split(', ')
    .map((name) => (isThere(name) ? name : `${MISSING.get(name)} AS ${name}`))
    .join(', ')
}
