/**
 * Reads all logs of a store's file for a check. Never writes; a server may run.
 */
import { existsSync } from 'node:fs'
import { openSqliteToRead, type SqliteDatabase } from './driver.ts'
import { HoldfastError } from '../../core/errors.ts'
import type { AuditedEvent, AuditedLog } from '../audited-log.ts'
import type { StoredEvent } from '../../core/store.ts'
import { storeError } from './failures.ts'
import { checkMarker } from './marker.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'

const SNAPSHOT = 'SELECT seq, body FROM snapshots WHERE session = ?'
const eventsSql = (checksum: string): string => `WITH RECURSIVE chain (number, previous) AS (
    SELECT number, previous FROM events WHERE number = ?1 AND session = ?2
    UNION ALL
    SELECT events.number, events.previous
      FROM chain JOIN events ON events.number = chain.previous
      WHERE events.session = ?2
  )
  SELECT events.body, ${checksum} AS checksum 
    FROM chain JOIN events ON events.number = chain.number ORDER BY chain.number`

type AuditedRow = StoredRow & { readonly last_event: number }

/** One moment of the file: what is written meanwhile is not seen. */
export function* auditSqlite(file: string): Generator<AuditedLog> {
  if (!existsSync(file)) throw new HoldfastError('store_unavailable', `there is no file ${file}`)
  checkMarker(file)
  let database: SqliteDatabase | undefined
  try {
    database = openSqliteToRead(file)
    database.exec('BEGIN')
    const isOld = isOfFirstSchema(database)
    const events = database.prepare(eventsSql(isOld ? 'NULL' : 'checksum'))
    const snapshots = database.prepare(SNAPSHOT)
    for (const stored of database.prepare(sessionsSql(isOld)).all() as AuditedRow[]) {
      yield {
        row: sessionRow(stored),
        events: events.iterate(stored.last_event, stored.number) as Iterable<AuditedEvent>,
        snapshot: (snapshots.get(stored.number) as StoredEvent | undefined) ?? null,
      }
    }
  } catch (thrown) {
    throw storeError(thrown, file)
  } finally {
    database?.close()
  }
}

/** A file of 0.1.0 has no checksums and no status. */
function isOfFirstSchema(database: SqliteDatabase): boolean {
  const columns = database.prepare('PRAGMA table_info(events)').all()
  return columns.every(({ name }) => name !== 'checksum')
}

function sessionsSql(isOld: boolean): string {
  const old = ROW_COLUMNS.replace('status, queued', `'idle' AS status, 0 AS queued`)
  return `SELECT ${isOld ? old : ROW_COLUMNS}, last_event FROM sessions
    WHERE state <> 'erased' ORDER BY number`
}
