/**
 * Reads all logs of a schema for a check. Each session is read as of one moment, in pages; nodes
 * may run. Never writes.
 */
import {
  ROW_COLUMNS,
  sessionRow,
  type AuditedEvent,
  type AuditedLog,
  type StoredRow,
} from '../rows.ts'
import { Database, type Connection, type PostgresStoreOptions } from './database.ts'
import { checkCurrent } from './migrations.ts'
import { pageText } from './statements.ts'

const PAGE = 500

export async function* auditPostgres(options: PostgresStoreOptions): AsyncGenerator<AuditedLog> {
  const database = await Database.open({ ...options, pool: 1 })
  try {
    await checkCurrent(database)
    for await (const number of numbers(database)) yield* auditLog(database, number)
  } finally {
    await database.close()
  }
}

async function* numbers(database: Database): AsyncGenerator<number> {
  let last = 0
  for (;;) {
    const page = await database.query<{ number: number }>(
      `SELECT number FROM ${database.schema}.sessions WHERE state <> 'erased' AND number > $1
        ORDER BY number LIMIT ${PAGE}`,
      [last],
    )
    for (const { number } of page) yield (last = number)
    if (page.length < PAGE) return
  }
}

async function* auditLog(database: Database, number: number): AsyncGenerator<AuditedLog> {
  const { schema } = database
  const connection = await database.connect()
  try {
    await connection.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const [found] = await connection.query<Pick<AuditedLog, 'snapshot'> & { row: StoredRow }>(
      `SELECT row_to_json(found) AS row,
          (SELECT json_build_object('seq', seq, 'body', body)
            FROM ${schema}.snapshots WHERE session = found.number) AS snapshot
        FROM (SELECT ${ROW_COLUMNS} FROM ${schema}.sessions
          WHERE number = $1 AND state <> 'erased') AS found`,
      [number],
    )
    if (found !== undefined) {
      const events = readEvents(connection, pageText(schema, 'checksum', '$1'), number)
      yield { row: sessionRow(found.row), events, snapshot: found.snapshot }
    }
    await connection.commit()
  } finally {
    connection.release()
  }
}

async function* readEvents(
  connection: Connection,
  sql: string,
  number: number,
): AsyncGenerator<AuditedEvent> {
  let after = 0
  for (;;) {
    const page = await connection.query<AuditedEvent & { seq: number }>(sql, [number, after, PAGE])
    yield* page
    const last = page.at(-1)
    if (last === undefined) return
    after = last.seq
  }
}
