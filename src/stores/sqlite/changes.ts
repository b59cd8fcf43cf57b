/**
 * The change feed is the table of events itself: its numbers only grow, commits are in their
 * order, and a log that is erased leaves one row behind. So an append writes nothing more for it.
 */
import type { ChangePage } from '../../core/store.ts'
import { changesGone, coalesced, type ChangeRecord } from '../changes.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'
import { prepareAll, type SqliteDatabase, type SqliteStatement } from './driver.ts'

const SQL = {
  page: `SELECT number AS position, session, seq - 1 AS after, seq FROM events
    WHERE number > ? ORDER BY number LIMIT ?`,
  row: `SELECT ${ROW_COLUMNS} FROM sessions WHERE number = ?`,
} as const

export class Changes {
  readonly #sql: Readonly<Record<keyof typeof SQL, SqliteStatement>>

  constructor(database: SqliteDatabase) {
    this.#sql = prepareAll(database, SQL)
  }

  /** `last`: the number of the last event. */
  after(after: number | null, limit: number, last: number): ChangePage {
    if (after === null) return { changes: [], position: last }
    if (after < 0 || after > last) throw changesGone(after)
    const records = this.#sql.page.all(after, limit) as ChangeRecord<number>[]
    const changes = coalesced(records).map(({ session, after: from, seq }) => {
      const row = sessionRow(this.#sql.row.get(session) as StoredRow)
      return { after: row.state === 'erased' ? seq : from, seq, row }
    })
    return { changes, position: records.at(-1)?.position ?? after }
  }
}
