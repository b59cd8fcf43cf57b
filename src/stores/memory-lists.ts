/** Lists of the reference store: what every filter and every order of a list means. */
import type { AskQuery, ListPage, ListQuery, SessionRow } from '../core/store.ts'
import { foldedKey } from './names.ts'
import { cursorAfter, isSweep, listCount, positionOf, type ListPosition } from './pages.ts'

export type ListedSession = {
  readonly number: number
  readonly row: SessionRow
  readonly expiresAt: number | null
}

/** A page of those that match; `isIncluded`: what else is asked. */
export function memoryPage<Entry extends ListedSession>(
  entries: readonly Entry[],
  query: ListQuery,
  isIncluded: (entry: Entry) => boolean,
): ListPage {
  const sign = query.order === 'asc' ? 1 : -1
  const position = ({ number, row }: ListedSession): ListPosition => {
    return { at: query.sort === 'activity' ? row.updatedAt : 0, number }
  }
  const compare = (one: ListPosition, other: ListPosition): number => {
    return sign * (one.at - other.at || one.number - other.number)
  }
  const found = entries
    .filter((entry) => isListed(entry, query) && isIncluded(entry))
    .toSorted((one, other) => compare(position(one), position(other)))
  const after = positionOf(query)
  const left = found.filter((entry) => after === null || compare(position(entry), after) > 0)
  const page = left.slice(0, query.limit)
  const last = left.length > page.length ? page.at(-1) : undefined
  return {
    sessions: page.map(({ row }) => row),
    nextCursor: last === undefined ? null : cursorAfter(position(last), query),
    ...(query.count === true ? { count: listCount(found.length) } : {}),
  }
}

export function isListed(entry: ListedSession, query: ListQuery | (AskQuery & ListQuery)): boolean {
  const { row, expiresAt } = entry
  const { state, status, key, agent, principal, visibleTo, expiredAt, closedBefore } = query
  if (row.state === 'erased' || (row.internal && !isSweep(query))) return false
  if (state !== undefined && row.state !== state) return false
  if (status !== undefined && row.status !== status) return false
  if (key !== undefined && row.key !== key) return false
  if (agent !== undefined && row.agent !== agent) return false
  if (principal !== undefined && row.principal !== principal) return false
  if (visibleTo !== undefined && !isVisibleTo(row, visibleTo)) return false
  if (!hasLabels(row, query) || !hasKeyLike(row, query)) return false
  if (expiredAt !== undefined && (expiresAt ?? Infinity) > expiredAt) return false
  if (closedBefore === undefined) return true
  return row.state === 'closed' && row.updatedAt <= closedBefore
}

function hasLabels({ labels }: SessionRow, { label = [] }: Pick<ListQuery, 'label'>): boolean {
  const wanted = 'name' in label ? [label] : label
  return wanted.every(({ name, value }) => Object.hasOwn(labels, name) && labels[name] === value)
}

function hasKeyLike({ key }: SessionRow, { keyPrefix, keyText }: ListQuery): boolean {
  if (keyPrefix === undefined && keyText === undefined) return true
  if (key === null) return false
  const folded = foldedKey(key)
  return folded.startsWith(foldedKey(keyPrefix ?? '')) && folded.includes(foldedKey(keyText ?? ''))
}

export function isVisibleTo(
  { principal, shares }: SessionRow,
  principals: readonly string[],
): boolean {
  return [principal, ...shares.map((share) => share.with)].some((id) => principals.includes(id))
}
