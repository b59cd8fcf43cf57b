/** Pages of sessions and asks, as all stores have them alike: of lists, and of the change feed. */
import { HoldfastError, invalid } from '../core/errors.ts'
import {
  COUNT_MAX,
  PAGE_CHARS,
  type AskPage,
  type AskQuery,
  type ChangePage,
  type ListCount,
  type ListPage,
  type ListQuery,
  type SessionRow,
} from '../core/store.ts'
import { storedName } from './names.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from './rows.ts'

/** A sweep's page of `limit` rows, of which one more was read if there is one. */
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
const ACTIVITY_CURSOR = /^a([0-9a-z]{1,11})-([0-9a-z]{1,11})$/

/** Where a page of sessions ends: the time is 0 in a list by creation number. */
export type ListPosition = { readonly at: number; readonly number: number }

type Sorted = Pick<ListQuery, 'sort' | 'cursor'>

export function cursorAfter({ at, number }: ListPosition, { sort }: Sorted): string {
  if (sort !== 'activity') return cursorAt(number)
  return `a${at.toString(36)}-${number.toString(36)}`
}

/** What a list goes on after; null: it begins. */
export function positionOf({ sort, cursor }: Sorted): ListPosition | null {
  if (cursor === undefined) return null
  if (sort !== 'activity') return { at: 0, number: numberAt(cursor) }
  const [, ...parts] = ACTIVITY_CURSOR.exec(cursor) ?? []
  const [at = Number.NaN, number = Number.NaN] = parts.map((part) => Number.parseInt(part, 36))
  if (Number.isSafeInteger(at) && Number.isSafeInteger(number)) return { at, number }
  throw invalid('cursor', 'is not one that a list in this order gave out')
}

export function listCount(matching: number, isAll = true): ListCount {
  const isExact = isAll && matching <= COUNT_MAX
  return { atLeast: Math.min(matching, COUNT_MAX), isExact }
}

/** The creation number that every session of a sweep's page is below. */
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
type PageDialect = {
  /** Before the name of a table. */
  readonly schema: string
  readonly isPublic: string
  /** Takes a value of the statement, and returns the text that stands for it. */
  readonly add: (value: string | number, type: 'bigint' | 'text') => string
}

/** What sessions have to match that a sweep finds, the newest first. */
export function sweepConditions(
  { cursor, state, pendingFor, expiredAt, closedBefore }: ListQuery,
  {
    add,
    isPendingFor,
  }: Pick<PageDialect, 'add'> & { readonly isPendingFor: (node: string) => string },
): string {
  const all = [`number < ${add(numberBelow(cursor), 'bigint')}`, `state <> 'erased'`]
  if (state !== undefined) all.push(state === 'open' ? `state = 'open'` : `state = 'closed'`)
  if (pendingFor !== undefined) all.push(isPendingFor(pendingFor))
  if (expiredAt !== undefined) {
    const at = add(expiredAt, 'bigint')
    all.push(`due_at <= ${at} AND expires_at <= ${at}`)
  }
  if (closedBefore !== undefined) all.push(`closed_at <= ${add(closedBefore, 'bigint')}`)
  return all.join(' AND ')
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
export function askListText(query: AskQuery, dialect: PageDialect): string {
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

function askConditions(query: AskQuery, { schema, isPublic, add }: PageDialect): string {
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
