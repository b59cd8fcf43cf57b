/**
 * Reads all logs of a store's file for somebody who checks them. Never writes; a server may run.
 */
import { existsSync } from 'node:fs'
import { openSqliteToRead, type SqliteDatabase } from './driver.ts'
import { HoldfastError } from '../../core/errors.ts'
import type { AuditedEvent, AuditedLog } from '../audited-log.ts'
import type { StoredEvent } from '../../core/store.ts'
import { storeError } from './failures.ts'
import { checkMarker } from './marker.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'

const SESSIONS = `SELECT ${ROW_COLUMNS}, last_event FROM sessions
  WHERE state <> 'erased' ORDER BY number`
const SNAPSHOT = 'SELECT seq, body FROM snapshots WHERE session = ?'
/** A file of 0.1.0 has no checksums. */
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
    const events = database.prepare(eventsSql(hasChecksums(database) ? 'checksum' : 'NULL'))
    const snapshots = database.prepare(SNAPSHOT)
    for (const stored of database.prepare(SESSIONS).all() as AuditedRow[]) {
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

function hasChecksums(database: SqliteDatabase): boolean {
  const columns = database.prepare('PRAGMA table_info(events)').all()
  return columns.some(({ name }) => name === 'checksum')
}
