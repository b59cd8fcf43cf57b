/**
 * Reads all logs of a schema for a check. Each session is read as of one moment, in pages; nodes
 * may run. Never writes.
 */
import type { AuditedEvent, AuditedLog } from '../audited-log.ts'
import { Database, type PostgresStoreOptions, type Queryable } from './database.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'
import { checkCurrent } from './migrations.ts'
import { pageText } from './statements.ts'

const PAGE = 500

type Found = {
  readonly row: StoredRow
  readonly snapshot: { readonly seq: number; readonly body: string } | null
}

export async function* auditPostgres(options: PostgresStoreOptions): AsyncGenerator<AuditedLog> {
  const database = await Database.open({ ...options, pool: 1 })
  try {
    await checkCurrent(database)
    for await (const number of numbers(database)) {
      yield* database.atOneMoment((session) => readLog(session, database.schema, number))
    }
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

async function* readLog(
  session: Queryable,
  schema: string,
  number: number,
): AsyncGenerator<AuditedLog> {
  const [found] = await session.query<Found>(logSql(schema), [number])
  if (found === undefined) return
  const { row, snapshot } = found
  yield { row: sessionRow(row), events: readEvents(session, schema, number), snapshot }
}

async function* readEvents(
  session: Queryable,
  schema: string,
  number: number,
): AsyncGenerator<AuditedEvent> {
  const sql = pageText(schema, 'checksum', '$1')
  let after = 0
  for (;;) {
    const page = await session.query<AuditedEvent & { seq: number }>(sql, [number, after, PAGE])
    yield* page
    const last = page.at(-1)
    if (last === undefined) return
    after = last.seq
  }
}

function logSql(schema: string): string {
  return `SELECT row_to_json(found) AS row,
      (SELECT json_build_object('seq', seq, 'body', body)
        FROM ${schema}.snapshots WHERE session = found.number) AS snapshot
    FROM (SELECT ${ROW_COLUMNS} FROM ${schema}.sessions
      WHERE number = $1 AND state <> 'erased') AS found`
}
