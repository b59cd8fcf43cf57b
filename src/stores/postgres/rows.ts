/** A session's row as PostgreSQL holds it, and as the core sees it. */
import type { SessionRow } from '../../core/store.ts'
import { nameFrom } from '../names.ts'

export const ROW_COLUMNS =
  'number, id, key, agent, internal, labels, state, owner_epoch, owner, ' +
  'seq, created_at, updated_at'

export type StoredRow = {
  readonly number: number
  readonly id: string
  readonly key: string | null
  readonly agent: string
  readonly internal: boolean
  readonly labels: string
  readonly state: SessionRow['state']
  readonly owner_epoch: number
  readonly owner: string | null
  readonly seq: number
  readonly created_at: number
  readonly updated_at: number
}

export function sessionRow(stored: StoredRow): SessionRow {
  return {
    id: nameFrom(stored.id),
    key: stored.key === null ? null : nameFrom(stored.key),
    agent: nameFrom(stored.agent),
    internal: stored.internal,
    labels: JSON.parse(stored.labels) as Record<string, string>,
    state: stored.state,
    seq: stored.seq,
    createdAt: stored.created_at,
    updatedAt: stored.updated_at,
  }
}
