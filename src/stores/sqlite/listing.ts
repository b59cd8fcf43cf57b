/**
 * Lists sessions. Each filter that can be rare among many sessions names the index that finds it:
 * without statistics SQLite would rather walk all sessions in order.
 */
import type { SqliteDatabase, SqliteStatement } from './driver.ts'
import type { ListPage, ListQuery } from '../../core/store.ts'
import type { Leases } from '../leases.ts'
import { storedName } from '../names.ts'
import { isSweep, listPage, numberBelow, ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'

type Condition = { readonly sql: string; readonly values: readonly (string | number)[] }

export class Listing {
  readonly #database: SqliteDatabase
  readonly #leases: Leases
  /** By its SQL: as many as there are combinations of filters. */
  readonly #statements = new Map<string, SqliteStatement>()

  constructor(database: SqliteDatabase, leases: Leases) {
    this.#database = database
    this.#leases = leases
  }

  list(query: ListQuery): ListPage {
    const conditions = [...this.#conditions(query)]
    const where = conditions.map(({ sql }) => sql).join(' AND ')
    const sql = `SELECT ${ROW_COLUMNS} FROM sessions ${indexFor(query)} WHERE ${where}
      ORDER BY number DESC LIMIT ?`
    const values = conditions.flatMap((condition) => condition.values)
    const found = this.#prepared(sql).all(...values, query.limit + 1) as StoredRow[]
    return listPage(found, query.limit, sessionRow)
  }

  *#conditions(query: ListQuery): Generator<Condition> {
    const { state, key, label, pendingFor, expiredAt, closedBefore } = query
    yield { sql: 'number < ?', values: [numberBelow(query.cursor)] }
    if (!isSweep(query)) yield { sql: 'internal = 0', values: [] }
    if (state === undefined) yield { sql: `state <> 'erased'`, values: [] }
    else yield { sql: state === 'open' ? `state = 'open'` : `state = 'closed'`, values: [] }
    if (key !== undefined) yield { sql: 'key = ?', values: [storedName(key)] }
    if (label !== undefined) yield labelled(label.name, label.value)
    if (pendingFor !== undefined) yield this.#pendingFor(pendingFor)
    if (expiredAt !== undefined) {
      yield { sql: 'due_at <= ? AND expires_at <= ?', values: [expiredAt, expiredAt] }
    }
    if (closedBefore !== undefined) yield { sql: 'closed_at <= ?', values: [closedBefore] }
  }

  #pendingFor(node: string): Condition {
    const others = this.#leases.alive().filter((alive) => alive !== node)
    return {
      sql: `pending = 1 AND (owner IS NULL OR owner NOT IN (SELECT value FROM json_each(?)))`,
      values: [JSON.stringify(others.map(storedName))],
    }
  }

  #prepared(sql: string): SqliteStatement {
    const known = this.#statements.get(sql)
    if (known !== undefined) return known
    const statement = this.#database.prepare(sql)
    this.#statements.set(sql, statement)
    return statement
  }
}

function labelled(name: string, value: string): Condition {
  return {
    sql: 'number IN (SELECT session FROM labels WHERE name = ? AND value = ?)',
    values: [storedName(name), storedName(value)],
  }
}

function indexFor(query: ListQuery): string {
  if (query.pendingFor !== undefined) return 'INDEXED BY sessions_pending'
  if (query.expiredAt !== undefined) return 'INDEXED BY sessions_due'
  if (query.closedBefore !== undefined) return 'INDEXED BY sessions_closed'
  if (query.key !== undefined) return 'INDEXED BY sessions_by_key'
  if (query.label === undefined && query.state === 'open') return 'INDEXED BY sessions_open'
  return ''
}
