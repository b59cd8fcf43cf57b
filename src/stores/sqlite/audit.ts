/**
 * Reads all logs of a store's file for somebody who checks them. Never writes; a server may run.
 */
import { existsSync } from 'node:fs'
import { DatabaseSync, type DatabaseSyncInstance } from '@photostructure/sqlite'
import { HoldfastError } from '../../core/errors.ts'
import type { SessionRow } from '../../core/store.ts'
import { storeError } from './failures.ts'
import { checkMarker } from './marker.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from './rows.ts'

/** A session's row, and its events as they stand in the file, oldest first. */
export type AuditedLog = {
  readonly row: SessionRow
  /** The JSON of each event. */
  readonly bodies: Iterable<string>
}

const SESSIONS = `SELECT ${ROW_COLUMNS} FROM sessions WHERE state <> 'erased' ORDER BY number`
const EVENTS = `WITH RECURSIVE chain (number, previous) AS (
    SELECT number, previous FROM events WHERE number = ?1 AND session = ?2
    UNION ALL
    SELECT events.number, events.previous
      FROM chain JOIN events ON events.number = chain.previous
      WHERE events.session = ?2
  )
  SELECT events.body FROM chain JOIN events ON events.number = chain.number ORDER BY chain.number`

/** One moment of the file: what is written meanwhile is not seen. */
export function* auditSqlite(file: string): Generator<AuditedLog> {
  if (!existsSync(file)) throw new HoldfastError('store_unavailable', `there is no file ${file}`)
  checkMarker(file)
  let database: DatabaseSyncInstance | undefined
  try {
    database = new DatabaseSync(file, { readOnly: true, timeout: 5_000 })
    database.exec('BEGIN')
    const events = database.prepare(EVENTS)
    for (const stored of database.prepare(SESSIONS).all() as unknown as readonly StoredRow[]) {
      const rows = events.all(stored.last_event, stored.number)
      yield { row: sessionRow(stored), bodies: rows.map(({ body }) => String(body)) }
    }
  } catch (thrown) {
    throw storeError(thrown, file)
  } finally {
    database?.close()
  }
}
