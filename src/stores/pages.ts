/** Pages of sessions and asks, as all stores have them alike: of lists, and of the change feed. */
import { HoldfastError, invalid } from '../core/errors.ts'
import {
  PAGE_CHARS,
  type AskPage,
  type AskQuery,
  type ChangePage,
  type ListPage,
  type ListQuery,
  type SessionRow,
} from '../core/store.ts'
import { storedName } from './names.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from './rows.ts'

/** A page of `limit` rows, of which one more was read if there is one. */
export function listPage<Row extends { readonly number: number }>(
  found: readonly Row[],
  limit: number,
  toRow: (row: Row) => SessionRow,
): ListPage {
  const page = found.slice(0, limit)
  const last = page.at(-1)
  const isMore = last !== undefined && found.length > page.length
  return { sessions: page.map(toRow), nextCursor: isMore ? cursorAt(last.number) : null }
}

export function cursorAt(number: number): string {
  return `c${number.toString(36)}`
}

const CURSOR = /^c[1-9a-z][0-9a-z]{0,10}$/

/**
 * The creation number that every session of the page is below: lists are by creation number,
 * newest first, so that pages neither repeat nor skip a session while others are created.
 */
export function numberBelow(cursor: string | undefined): number {
  return cursor === undefined ? Number.MAX_SAFE_INTEGER : numberAt(cursor)
}

/** The number that every ask of the page is above: asks are listed oldest first. */
export function numberAbove(cursor: string | undefined): number {
  return cursor === undefined ? 0 : numberAt(cursor)
}

function numberAt(cursor: string): number {
  const number = CURSOR.test(cursor) ? Number.parseInt(cursor.slice(1), 36) : Number.NaN
  if (Number.isSafeInteger(number)) return number
  throw invalid('cursor', 'is not one that a list gave out')
}

/** Sweeps see internal sessions too. */
export function isSweep({ pendingFor, expiredAt, closedBefore }: ListQuery): boolean {
  return pendingFor !== undefined || expiredAt !== undefined || closedBefore !== undefined
}

/** How a database says what its SQL has of its own. */
export type ListDialect = {
  /** Before the name of a table. */
  readonly schema: string
  readonly isPublic: string
  /** Takes a value of the statement, and returns the text that stands for it. */
  readonly add: (value: string | number, type: 'bigint' | 'text') => string
}

export function listConditions(
  query: ListQuery,
  dialect: ListDialect & { isPendingFor(node: string): string },
): string {
  const { state, key, principal, visibleTo, label } = query
  const { pendingFor, expiredAt, closedBefore } = query
  const text = (name: string): string => dialect.add(storedName(name), 'text')
  const all = [`number < ${dialect.add(numberBelow(query.cursor), 'bigint')}`]
  if (!isSweep(query)) all.push(dialect.isPublic)
  if (state === undefined) all.push(`state <> 'erased'`)
  else all.push(state === 'open' ? `state = 'open'` : `state = 'closed'`)
  if (principal !== undefined) all.push(`principal = ${text(principal)}`)
  if (visibleTo !== undefined) all.push(visibility(query, visibleTo.map(text), dialect, all))
  if (key !== undefined) all.push(`key = ${text(key)}`)
  if (label !== undefined) {
    const isLabel = `name = ${text(label.name)} AND value = ${text(label.value)}`
    all.push(`number IN (SELECT session FROM ${dialect.schema}labels WHERE ${isLabel})`)
  }
  if (pendingFor !== undefined) all.push(dialect.isPendingFor(pendingFor))
  if (expiredAt !== undefined) {
    const at = dialect.add(expiredAt, 'bigint')
    all.push(`due_at <= ${at} AND expires_at <= ${at}`)
  }
  if (closedBefore !== undefined) all.push(`closed_at <= ${dialect.add(closedBefore, 'bigint')}`)
  return all.join(' AND ')
}

/**
 * The sessions of these principals, and those that are shared with them. Of each principal only a
 * page of its newest is looked at, unless another filter may leave some of them out.
 */
function visibility(
  { limit, key, label }: ListQuery,
  principals: readonly string[],
  { schema }: ListDialect,
  conditions: readonly string[],
): string {
  const where = conditions.join(' AND ')
  const newest = key === undefined && label === undefined
  const page = newest ? `ORDER BY number DESC LIMIT ${limit + 1}` : ''
  const parts = principals.flatMap((principal) => [
    `SELECT number FROM (
      SELECT number FROM ${schema}sessions WHERE principal = ${principal} AND ${where} ${page}
    ) AS own`,
    `SELECT session FROM ${schema}shares WHERE principal = ${principal}`,
  ])
  return parts.length === 0 ? '1 = 0' : `number IN (${parts.join(' UNION ALL ')})`
}

export type FoundAsk = StoredRow & {
  /** Asks are numbered in the order in which they were opened. */
  readonly place: number
  readonly at: number
  readonly body: string
  /** How many there are, up to one more than the page may have. */
  readonly found: number
}

/**
 * The asks of a page. All that wait are looked through in their order: they are few beside the
 * sessions, each of which waits with its turn. The last two columns find what is too much.
 */
export function askListText(query: AskQuery, dialect: ListDialect): string {
  const { schema, add } = dialect
  const columns = ROW_COLUMNS.split(', ').map((column) => `sessions.${column}`)
  const asks = `SELECT asks.number AS place, asks.at, asks.body, ${columns.join(', ')}
      FROM ${schema}asks AS asks CROSS JOIN ${schema}sessions AS sessions
      WHERE sessions.number = asks.session AND ${askConditions(query, dialect)}
      ORDER BY asks.number LIMIT ${add(query.limit + 1, 'bigint')}`
  return `SELECT * FROM (
      SELECT page.*, count(*) OVER () AS found,
        sum(octet_length(body)) OVER (ORDER BY place) - octet_length(body) AS before
      FROM (${asks}) AS page
    ) AS measured WHERE before < ${PAGE_CHARS} ORDER BY place`
}

function askConditions(query: AskQuery, { schema, isPublic, add }: ListDialect): string {
  const { session, kind, visibleTo, label } = query
  const text = (name: string): string => add(storedName(name), 'text')
  const number = add(numberAbove(query.cursor), 'bigint')
  const all = [`asks.number > ${number}`, `sessions.state = 'open'`, isPublic]
  if (kind !== undefined) all.push(`asks.kind = ${text(kind)}`)
  if (session !== undefined) {
    all.push(`asks.session = (SELECT number FROM ${schema}sessions WHERE id = ${text(session)})`)
  }
  if (visibleTo !== undefined) {
    const principals = visibleTo.map(text).join(', ') || 'NULL'
    all.push(`(sessions.principal IN (${principals}) OR EXISTS (
      SELECT 1 FROM ${schema}shares AS shares
        WHERE shares.session = sessions.number AND shares.principal IN (${principals})))`)
  }
  if (label !== undefined) {
    const isLabel = `name = ${text(label.name)} AND value = ${text(label.value)}`
    all.push(`asks.session IN (SELECT session FROM ${schema}labels WHERE ${isLabel})`)
  }
  return all.join(' AND ')
}

export function askPage(found: readonly FoundAsk[], limit: number): AskPage {
  const page = found.slice(0, limit)
  const last = page.at(-1)
  const asks = page.map((ask) => ({ row: sessionRow(ask), body: ask.body, openedAt: ask.at }))
  const isMore = last !== undefined && last.found > page.length
  return { asks, nextCursor: isMore ? cursorAt(last.place) : null }
}

/** The events of a session after `after` up to `seq`, at a position of the change feed. */
export type ChangeRecord<Session> = {
  readonly position: number
  readonly session: Session
  readonly after: number
  readonly seq: number
}

/** The records after a position: one change for each session, in the order of the last of each. */
export function changePage<Session, Found extends ChangeRecord<Session>>(
  records: readonly Found[],
  position: number,
  rowOf: (last: Found) => SessionRow,
): ChangePage {
  const bySession = new Map<Session, { readonly after: number; readonly last: Found }>()
  for (const last of records) {
    const after = bySession.get(last.session)?.after ?? last.after
    bySession.delete(last.session)
    bySession.set(last.session, { after, last })
  }
  const changes = Array.from(bySession.values(), ({ after, last }) => {
    return { after, seq: last.seq, row: rowOf(last) }
  })
  return { changes, position: records.at(-1)?.position ?? position }
}

export function changesGone(after: number): HoldfastError {
  return new HoldfastError(
    'changes_gone',
    `the change feed has no position ${after} (any more): list the sessions, then follow anew`,
  )
}
