/**
 * Reads all logs of a schema for a check. Each session is read as of one moment, in pages; nodes
 * may run. Never writes.
 */
import type { StoredEvent } from '../../core/store.ts'
import { ROW_COLUMNS, sessionRow, type AuditedLog, type StoredRow } from '../rows.ts'
import { Database, pagedRows, type PostgresStoreOptions, type Queryable } from './database.ts'
import { checkCurrent } from './migrations.ts'
import { pageText } from './statements.ts'

const PAGE = 500

export async function* auditPostgres(options: PostgresStoreOptions): AsyncGenerator<AuditedLog> {
  const database = await Database.open({ ...options, pool: 1 })
  try {
    await checkCurrent(database)
    const connection = await database.connect()
    try {
      yield* auditLogs(connection)
    } finally {
      connection.release()
    }
  } finally {
    await database.close()
  }
}

async function* auditLogs(connection: Queryable): AsyncGenerator<AuditedLog> {
  const { schema } = connection
  const numbers = `SELECT number FROM ${schema}.sessions
    WHERE state <> 'erased' AND number > $1 ORDER BY number LIMIT ${PAGE}`
  const log = `SELECT row_to_json(found) AS row,
      (SELECT json_build_object('seq', seq, 'body', body)
        FROM ${schema}.snapshots WHERE session = found.number) AS snapshot
    FROM (SELECT ${ROW_COLUMNS} FROM ${schema}.sessions
      WHERE number = $1 AND state <> 'erased') AS found`
  const blob = `SELECT data FROM ${schema}.blobs WHERE session = $1 AND digest = $2`
  type Found = Pick<AuditedLog, 'snapshot'> & { readonly row: StoredRow }
  const rows = pagedRows<{ number: number }>(connection, numbers, [0], (last) => [last.number])
  for await (const { number } of rows) {
    await connection.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const [found] = await connection.query<Found>(log, [number])
    if (found !== undefined) {
      const events = pagedRows<StoredEvent & { readonly checksum: number | null }>(
        connection,
        pageText(schema, 'checksum', '$1'),
        [number, 0, PAGE],
        ({ seq }) => [number, seq, PAGE],
      )
      const readBlob = async (digest: string): Promise<Uint8Array | null> => {
        const [stored] = await connection.query<{ data: Uint8Array }>(blob, [number, digest])
        return stored?.data ?? null
      }
      yield { row: sessionRow(found.row), events, snapshot: found.snapshot, readBlob }
    }
    await connection.query('COMMIT')
  }
}
