/**
 * Reads all logs of a schema for a check. Each session is read by one statement, which sees one
 * moment; nodes may run. Never writes.
 */
import type { AuditedEvent, AuditedLog } from '../audited-log.ts'
import { Database, type PostgresStoreOptions } from './database.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from './rows.ts'
import { checkCurrent } from './schema.ts'

const PAGE = 500

type Found = {
  readonly row: StoredRow
  readonly events: readonly AuditedEvent[] | null
  readonly snapshot: { readonly seq: number; readonly body: string } | null
}

export async function* auditPostgres(options: PostgresStoreOptions): AsyncGenerator<AuditedLog> {
  const database = await Database.open({ ...options, pool: 1 })
  try {
    await checkCurrent(database)
    for await (const number of numbers(database)) {
      const [found] = await database.query<Found>(logSql(database.schema), [number])
      if (found === undefined) continue
      const { row, events, snapshot } = found
      yield { row: sessionRow(row), events: events ?? [], snapshot }
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

function logSql(schema: string): string {
  return `SELECT row_to_json(found) AS row,
      (SELECT json_agg(json_build_object('body', body, 'checksum', checksum) ORDER BY seq)
        FROM ${schema}.events WHERE session = found.number) AS events,
      (SELECT json_build_object('seq', seq, 'body', body)
        FROM ${schema}.snapshots WHERE session = found.number) AS snapshot
    FROM (SELECT ${ROW_COLUMNS} FROM ${schema}.sessions
      WHERE number = $1 AND state <> 'erased') AS found`
}
