/** A session as it is now, with what only the memory of its owner has. */
import type { QueueRow } from './queued-request.ts'
import { isSamePrincipal, type Principal, type Session } from './state.ts'

export type OverviewRow = QueueRow & {
  /** Whether the caller may move it among its own. */
  readonly mayMove: boolean
}

/** How far its readers have come. */
export type SessionReaders = {
  /** The position up to which an attachment was given the log; null: it does not follow it now. */
  readonly cursorOf: (attachment: string) => number | null
  /** How many clients only read. */
  readonly watchers: number
}

export type Overview = SessionReaders & {
  readonly session: Session
  /** All that waits for its turn. */
  readonly queue: readonly OverviewRow[]
}

/** Of a session that is not held here. */
export const NO_READERS: SessionReaders = { cursorOf: () => null, watchers: 0 }

type Owner = {
  queueOf(session: Session): readonly QueueRow[]
  readersOf(id: string): SessionReaders
}

export function overviewOf(owner: Owner, session: Session, caller: Principal): Overview {
  const queue = owner.queueOf(session).map((row) => ({ ...row, mayMove: mayMove(row, caller) }))
  return { session, queue, ...owner.readersOf(session.id) }
}

/** A turn that collects may have messages of others. */
function mayMove({ state, busy, by }: QueueRow, caller: Principal): boolean {
  return state === 'queued' && busy !== 'collect' && isSamePrincipal(by, caller)
}
