/** The change feed, as far as all stores have it alike. */
import { HoldfastError } from '../core/errors.ts'

/** The events of a session after `after` up to `seq`, at a position of the feed. */
export type ChangeRecord<Session> = {
  readonly position: number
  readonly session: Session
  readonly after: number
  readonly seq: number
}

/** One record for each session, in the order of the last of each. */
export function coalesced<Session, Found extends ChangeRecord<Session>>(
  records: readonly Found[],
): readonly Found[] {
  const bySession = new Map<Session, Found>()
  for (const record of records) {
    const before = bySession.get(record.session)
    bySession.delete(record.session)
    bySession.set(record.session, { ...record, after: before?.after ?? record.after })
  }
  return [...bySession.values()]
}

export function changesGone(after: number): HoldfastError {
  return new HoldfastError(
    'changes_gone',
    `the change feed has no position ${after} (any more): list the sessions, then follow anew`,
  )
}
