/** Lists of sessions and of asks, by the statements that their filters make. */
import type { AskPage, AskQuery, ListPage, ListQuery } from '../../core/store.ts'
import type { Leases } from '../leases.ts'
import { listing, type ListDialect } from '../lists.ts'
import { storedName } from '../names.ts'
import {
  askListText,
  askPage,
  isSweep,
  listPage,
  sweepConditions,
  type FoundAsk,
} from '../pages.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'
import type { SqliteDatabase, SqliteStatement } from './driver.ts'

/** Statements that are kept: a list with many labels or principals makes one of its own. */
const KEPT_MAX = 200

/** Without statistics SQLite would rather walk all sessions in order: each table has its index. */
const DIALECT: ListDialect = {
  schema: '',
  isPublic: 'internal = 0',
  isPending: 'pending = 1',
  isFailed: `status = 'failed' AND state = 'open' AND internal = 0`,
  by: (index) => `sessions INDEXED BY ${index}`,
  lookUp: (columns, found) => `SELECT ${columns} sessions.* FROM (${found}) AS found
    CROSS JOIN sessions ON sessions.number = found.number`,
  placeholder: (place) => `?${place}`,
}

type Values = readonly (string | number)[]

export class ListStatements {
  readonly #database: SqliteDatabase
  readonly #leases: Leases
  /** By their SQL. */
  readonly #kept = new Map<string, SqliteStatement>()

  constructor(database: SqliteDatabase, leases: Leases) {
    this.#database = database
    this.#leases = leases
  }

  list(query: ListQuery): ListPage {
    if (isSweep(query)) return this.#sweep(query)
    const pages = listing(query, DIALECT)
    let step = pages.next()
    while (step.done !== true) {
      step = pages.next(this.#all(step.value.text, step.value.values as Values))
    }
    return step.value
  }

  #sweep(query: ListQuery): ListPage {
    const values: (string | number)[] = []
    const where = sweepConditions(query, {
      add: (value) => `?${values.push(value)}`,
      isPendingFor: (node) => {
        const others = this.#leases.alive().filter((alive) => alive !== node)
        const owners = `?${values.push(JSON.stringify(others.map(storedName)))}`
        return `pending = 1
          AND (owner IS NULL OR owner NOT IN (SELECT value FROM json_each(${owners})))`
      },
    })
    const sql = `SELECT ${ROW_COLUMNS} FROM sessions INDEXED BY ${sweepIndex(query)} WHERE ${where}
      ORDER BY number DESC LIMIT ?${values.push(query.limit + 1)}`
    return listPage(this.#all(sql, values) as StoredRow[], query.limit, sessionRow)
  }

  listAsks(query: AskQuery): AskPage {
    const values: (string | number)[] = []
    const sql = askListText(query, {
      schema: '',
      isPublic: 'internal = 0',
      add: (value) => `?${values.push(value)}`,
    })
    return askPage(this.#all(sql, values) as FoundAsk[], query.limit)
  }

  #all(sql: string, values: Values): readonly unknown[] {
    const statement = this.#kept.get(sql) ?? this.#database.prepare(sql)
    if (this.#kept.size >= KEPT_MAX) this.#kept.clear()
    this.#kept.set(sql, statement)
    return statement.all(...values)
  }
}

function sweepIndex({ pendingFor, expiredAt }: ListQuery): string {
  if (pendingFor !== undefined) return 'sessions_pending'
  return expiredAt === undefined ? 'sessions_closed' : 'sessions_due'
}
