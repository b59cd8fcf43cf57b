/** A session's row: as both databases store it, as the core sees it, and pages of them. */
import { HoldfastError } from '../core/errors.ts'
import type { ListPage, ListQuery, Reserved, SessionRow, SessionStatus } from '../core/store.ts'
import { nameFrom } from './names.ts'

export const ROW_COLUMNS =
  'number, id, key, agent, internal, labels, state, owner, seq, status, queued, ' +
  'created_at, updated_at'

export type StoredRow = {
  /** Sessions are numbered in the order of their creation. */
  readonly number: number
  readonly id: string
  readonly key: string | null
  readonly agent: string
  /** SQLite has no booleans. */
  readonly internal: boolean | 0 | 1
  readonly labels: string
  readonly state: SessionRow['state']
  readonly owner: string | null
  readonly seq: number
  readonly status: SessionStatus
  readonly queued: number
  readonly created_at: number
  readonly updated_at: number
}

export function sessionRow(stored: StoredRow): SessionRow {
  return {
    id: nameFrom(stored.id),
    key: stored.key === null ? null : nameFrom(stored.key),
    agent: nameFrom(stored.agent),
    internal: Boolean(stored.internal),
    labels: JSON.parse(stored.labels) as Record<string, string>,
    state: stored.state,
    seq: stored.seq,
    status: stored.state === 'open' ? stored.status : 'closed',
    queuedTurns: stored.queued,
    createdAt: stored.created_at,
    updatedAt: stored.updated_at,
  }
}

/** The answer to a reservation whose explicit id exists. `holder`: the open session of its key. */
export function reservedExplicitly(
  { id, key: ownKey, state }: SessionRow,
  key: string | null,
  holder: string | null,
): Reserved {
  if (state !== 'open') return { type: 'closed', id, state }
  if (key === null || ownKey === key) return { type: 'found', id }
  return { type: 'taken', id: holder ?? id }
}

/** A page of `limit` rows, of which one more was read if there is one. */
export function listPage<Row extends { readonly number: number }>(
  found: readonly Row[],
  limit: number,
  toRow: (row: Row) => SessionRow,
): ListPage {
  const page = found.slice(0, limit)
  const last = page.at(-1)
  const isMore = last !== undefined && found.length > page.length
  return { sessions: page.map(toRow), nextCursor: isMore ? `c${last.number.toString(36)}` : null }
}

const CURSOR = /^c[1-9a-z][0-9a-z]{0,10}$/

/**
 * The creation number that every session of the page is below: lists are by creation number,
 * newest first, so that pages neither repeat nor skip a session while others are created.
 */
export function numberBelow(cursor: string | undefined): number {
  if (cursor === undefined) return Number.MAX_SAFE_INTEGER
  const number = CURSOR.test(cursor) ? Number.parseInt(cursor.slice(1), 36) : Number.NaN
  if (Number.isSafeInteger(number)) return number
  throw new HoldfastError('invalid_field', 'cursor is not one that a list gave out', {
    field: 'cursor',
  })
}

/** Sweeps see internal sessions too. */
export function isSweep({ pendingFor, expiredAt, closedBefore }: ListQuery): boolean {
  return pendingFor !== undefined || expiredAt !== undefined || closedBefore !== undefined
}
