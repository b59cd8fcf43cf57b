/**
 * The change feed. An append only flags its session; reading the feed first gives positions to the
 * flagged sessions, one reader at a time, so that positions become visible in their order. See
 * `feed_changes` in `schema.ts`.
 */
import type { ChangePage } from '../../core/store.ts'
import { changesGone, coalesced, type ChangeRecord } from '../changes.ts'
import { sessionRow, type StoredRow } from '../rows.ts'
import type { Database } from './database.ts'
import type { Statements } from './statements.ts'

/** Sessions that one read gives positions to. */
const FEED_MAX = 1_000
/** The newest records, which the feed keeps. */
const KEPT = 100_000

type FoundChange = ChangeRecord<number> & { readonly row: StoredRow }

export async function readChanges(
  database: Database,
  sql: Statements,
  after: number | null,
  limit: number,
): Promise<ChangePage> {
  const [end] = await database.rideOut(() =>
    database.query<{ last: number }>(sql.feedChanges, [FEED_MAX, KEPT]),
  )
  const last = end?.last ?? 0
  if (after === null) return { changes: [], position: last }
  const found = await database.rideOut(() =>
    database.query<FoundChange>(sql.changes, [after, limit]),
  )
  // Positions have no gap: if the next one is missing, it was dropped, or was never there.
  const isThere = found.length === 0 ? after === last : found[0]?.position === after + 1
  if (!isThere && limit > 0) throw changesGone(after)
  const changes = coalesced(found).map(({ after: from, seq, row }) => ({
    after: from,
    seq,
    row: sessionRow(row),
  }))
  return { changes, position: found.at(-1)?.position ?? after }
}
