/** Lists sessions; what sweeps look for stands in small indexes of its own. */
import type { ListPage, ListQuery } from '../../core/store.ts'
import { storedName } from '../names.ts'
import type { Database } from './database.ts'
import { isSweep, listPage, numberBelow, ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'

/** Collects the values of a statement while its text is written. */
class SqlParameters {
  readonly all: unknown[] = []

  /** The text that stands for the value. */
  add(value: unknown, type: 'bigint' | 'text'): string {
    this.all.push(value)
    return `$${this.all.length}::${type}`
  }
}

export async function listSessions(database: Database, query: ListQuery): Promise<ListPage> {
  const values = new SqlParameters()
  const where = [...conditions(database.schema, query, values)].join(' AND ')
  const text = `SELECT ${ROW_COLUMNS} FROM ${database.schema}.sessions WHERE ${where}
    ORDER BY number DESC LIMIT ${values.add(query.limit + 1, 'bigint')}`
  const found = await database.rideOut(() => database.query<StoredRow>(text, values.all))
  return listPage(found, query.limit, sessionRow)
}

function* conditions(schema: string, query: ListQuery, values: SqlParameters): Generator<string> {
  const { state, key, label, pendingFor, expiredAt, closedBefore } = query
  yield `number < ${values.add(numberBelow(query.cursor), 'bigint')}`
  if (!isSweep(query)) yield 'NOT internal'
  yield state === undefined ? `state <> 'erased'` : `state = '${stateOf(state)}'`
  if (key !== undefined) yield `key = ${values.add(storedName(key), 'text')}`
  if (label !== undefined) {
    const name = values.add(storedName(label.name), 'text')
    const value = values.add(storedName(label.value), 'text')
    yield `number IN (
      SELECT session FROM ${schema}.labels WHERE name = ${name} AND value = ${value}
    )`
  }
  if (pendingFor !== undefined) {
    yield `flagged AND pending AND (owner = ${values.add(storedName(pendingFor), 'text')}
      OR NOT EXISTS (
        SELECT FROM ${schema}.nodes WHERE name = owner AND lease_ends > clock_timestamp()
      ))`
  }
  if (expiredAt !== undefined) {
    const at = values.add(expiredAt, 'bigint')
    yield `due_at <= ${at} AND expires_at <= ${at}`
  }
  if (closedBefore !== undefined) yield `closed_at <= ${values.add(closedBefore, 'bigint')}`
}

/** Only these two ever become part of a statement. */
function stateOf(state: NonNullable<ListQuery['state']>): string {
  return state === 'open' ? 'open' : 'closed'
}
