/** Request keys by session: looked up by their text, and forgotten oldest first (I11). */
import { prepareAll, type SqliteDatabase, type SqliteStatement } from './driver.ts'
import { keysInText } from '../../core/request-keys.ts'
import type { AppendedKeys, KeyedTurn, KeyQuery } from '../../core/store.ts'
import { nameFrom, storedName, storedRanges } from '../names.ts'

const SQL = {
  add: `INSERT OR REPLACE INTO request_keys (session, key, number, digest, turn, at)
    VALUES (?1, ?2,
      1 + coalesce((SELECT max(number) FROM request_keys WHERE session = ?1), 0), ?3, ?4, ?5)`,
  prune: `DELETE FROM request_keys WHERE session = ?1 AND number < max(
    (SELECT max(number) FROM request_keys WHERE session = ?1) - ?2 + 1,
    coalesce((SELECT number FROM request_keys INDEXED BY request_keys_by_number
      WHERE session = ?1 AND at >= ?3 ORDER BY number LIMIT 1), 0))`,
  find: `SELECT key, digest, turn, at FROM request_keys
    WHERE session = (SELECT number FROM sessions WHERE id = ?1) AND key = ?2 AND at >= ?3`,
  findAll: `SELECT key, digest, turn, at FROM request_keys
    WHERE session = (SELECT number FROM sessions WHERE id = ?1) AND at >= ?2
      AND (key >= ?4 AND (?5 IS NULL OR key < ?5) OR key >= ?6 AND key < ?7)
    ORDER BY number DESC LIMIT ?3`,
  drop: 'DELETE FROM request_keys WHERE session = ?',
} as const

export class KeyTable {
  readonly #sql: Readonly<Record<keyof typeof SQL, SqliteStatement>>

  constructor(database: SqliteDatabase) {
    this.#sql = prepareAll(database, SQL)
  }

  add(session: number, { added, since, max }: AppendedKeys): void {
    for (const { key, digest, turn, at } of added) {
      this.#sql.add.run(session, storedName(key), digest, turn, at)
    }
    this.#sql.prune.run(session, max, since)
  }

  find(session: string, { key, prefix = '', since, limit }: KeyQuery): readonly KeyedTurn[] {
    const name = storedName(session)
    const found =
      key === undefined
        ? this.#sql.findAll.all(name, since, limit, ...storedRanges(prefix))
        : this.#sql.find.all(name, storedName(key), since)
    return (found as KeyedTurn[]).map((row) => ({ ...row, key: nameFrom(row.key) }))
  }

  drop(session: number): void {
    this.#sql.drop.run(session)
  }
}

/** The keys of the logs that are there, of open sessions: nothing was indexed before. */
export function fillRequestKeys(database: SqliteDatabase): void {
  const add = database.prepare(SQL.add)
  const rows = database.prepare(`SELECT events.session, events.body
    FROM events JOIN sessions ON sessions.number = events.session
    WHERE sessions.state = 'open' AND events.body LIKE '%"keys":[{%' ORDER BY events.number`)
  const kept = new Map<number, KeyedTurn[]>()
  for (const { session, body } of rows.iterate() as Iterable<{ session: number; body: string }>) {
    const keys = kept.get(session) ?? []
    for (const key of keysInText(body)) keys.push(key)
    if (keys.length > 0) kept.set(session, keys)
  }
  for (const [session, keys] of kept) {
    for (const { key, digest, turn, at } of keys) {
      add.run(session, storedName(key), digest, turn, at)
    }
  }
}
