/**
 * The events of all sessions, in one table that only grows at its end.
 *
 * An index on (session, seq) would be written to at one place per session and commit, and that
 * costs more than all the rest. So each event points to the one before it in its log, the
 * session's row to the last one, and only every 64th event is indexed: a page of a log is found by
 * going back from the nearest mark after it, or from the end. Numbers are given out here: this
 * process is the only writer.
 */
import { crc32 } from 'node:zlib'
import { prepareAll, type Prepared, type SqliteDatabase, type SqliteStatement } from './driver.ts'
import type { StoredEvent } from '../../core/store.ts'
import { DamageError } from './failures.ts'

/** Events inserted by one statement. */
const INSERT_MAX = 8

/** Must be the same as in the index `events_marked`. */
const IS_MARKED = 'seq % 64 = 0'

/** The numbers of all events of a log: ?1 is that of its last one, ?2 the session. */
export const CHAIN = `WITH RECURSIVE chain (number, previous) AS (
    SELECT number, previous FROM events WHERE number = ?1 AND session = ?2
    UNION ALL
    SELECT events.number, events.previous
      FROM chain JOIN events ON events.number = chain.previous
      WHERE events.session = ?2
  )`

const SQL = {
  lastNumber: 'SELECT coalesce(max(number), 0) AS number FROM events',
  after: `WITH RECURSIVE chain (number, seq, previous) AS (
      SELECT number, seq, previous FROM events
        WHERE seq > ?3 AND session = ?1 AND number = coalesce(
          (SELECT number FROM events INDEXED BY events_marked
            WHERE session = ?1 AND seq >= ?4 AND ${IS_MARKED} ORDER BY seq LIMIT 1), ?2)
      UNION ALL
      SELECT events.number, events.seq, events.previous
        FROM chain JOIN events ON events.number = chain.previous
        WHERE events.seq > ?3 AND events.session = ?1
    ),
    page AS MATERIALIZED (SELECT number, seq FROM chain WHERE seq <= ?4 ORDER BY seq)
    SELECT page.seq, events.body FROM page CROSS JOIN events ON events.number = page.number`,
  // What an erasure has left, if it is in the way of an event at the same place.
  clear: `DELETE FROM events INDEXED BY events_marked WHERE session = ? AND ${IS_MARKED}`,
  drop: `DELETE FROM events WHERE number IN (${CHAIN} SELECT number FROM chain)`,
} as const

/** A log's place in the table: its session, its last event's number, and how many events it has. */
export type LogEnd = { readonly session: number; readonly last: number; readonly seq: number }

export class EventLog {
  readonly #sql: Prepared<keyof typeof SQL>
  readonly #inserts: readonly SqliteStatement[]
  #lastNumber = 0

  constructor(database: SqliteDatabase) {
    this.#sql = prepareAll(database, SQL)
    this.#inserts = Array.from({ length: INSERT_MAX }, (_, index) =>
      database.prepare(insertSql(index + 1)),
    )
    this.forget()
  }

  /** Numbers that were given out may have been rolled back. */
  forget(): void {
    this.#lastNumber = this.#sql.lastNumber.get().number
  }

  /** The number that the last of `count` events will have if they are inserted next. */
  numberAfter(count: number): number {
    return this.#lastNumber + count
  }

  insert({ session, last, seq }: LogEnd, bodies: readonly string[]): void {
    let previous = last
    for (let from = 0; from < bodies.length; from += INSERT_MAX) {
      const some = bodies.length <= INSERT_MAX ? bodies : bodies.slice(from, from + INSERT_MAX)
      const insert = this.#inserts[some.length - 1]!
      const values: (string | number)[] = [this.#lastNumber + 1, session, seq + from + 1, previous]
      for (const body of some) values.push(body, crc32(body))
      insert.run(...values)
      this.#lastNumber += some.length
      previous = this.#lastNumber
    }
  }

  /**
   * Up to `limit` events after a position, oldest first, but not many more characters than
   * `charsMax`. I4: a gap is damage, never an answer.
   */
  after({ session, last, seq }: LogEnd, after: number, limit: number, charsMax = Infinity) {
    const from = Math.max(0, after)
    const until = Math.min(from + limit, seq)
    const events: StoredEvent[] = []
    if (until <= from) return events
    let chars = 0
    for (const event of this.#sql.after.iterate(session, last, from, until)) {
      if (event.seq !== from + events.length + 1) break
      events.push(event)
      chars += event.body.length
      if (chars >= charsMax) return events
    }
    if (events.length === until - from) return events
    throw new DamageError(`the log of session number ${session} has a gap after ${from}`)
  }

  /** Writes the whole log of a session that has none, and returns the number of its last event. */
  restore(session: number, bodies: readonly string[]): number {
    this.#sql.clear.run(session)
    this.insert({ session, last: 0, seq: 0 }, bodies)
    return this.#lastNumber
  }

  /**
   * Removes a log and leaves one row without a body: it is the session's last change in the feed,
   * and numbers of the feed are never given out twice.
   */
  erase({ session, last, seq }: LogEnd): void {
    this.#sql.drop.run(last, session)
    this.insert({ session, last: 0, seq: seq - 1 }, [''])
  }
}

/** ?1 first number, ?2 session, ?3 first seq, ?4 number before, then each body and its checksum. */
function insertSql(count: number): string {
  const rows = Array.from({ length: count }, (_, index) => {
    const previous = index === 0 ? '?4' : `?1 + ${index - 1}`
    const body = 2 * index + 5
    return `(?1 + ${index}, ?2, ?3 + ${index}, ${previous}, ?${body}, ?${body + 1})`
  })
  const columns = 'number, session, seq, previous, body, checksum'
  return `INSERT INTO events (${columns}) VALUES ${rows.join(', ')}`
}
