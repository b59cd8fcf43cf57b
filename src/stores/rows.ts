/** A session's row: as both databases store it, and as the core sees it. */
import type { Spending } from '../core/budgets.ts'
import { HoldfastError } from '../core/errors.ts'
import type { Share } from '../core/state.ts'
import type {
  Reservation,
  Reserved,
  RestoredSession,
  SessionRow,
  SessionStatus,
  StoredEvent,
} from '../core/store.ts'
import { nameFrom, storedName } from './names.ts'

export const ROW_COLUMNS =
  'number, id, principal, shares, key, agent, internal, labels, state, owner, seq, status, ' +
  'queued, attached, bytes, created_at, updated_at'

/** What a closed session from an archive has as its status, which no closed session needs. */
export const RESTORED = 'restored'

export type StoredRow = Pick<SessionRow, 'id' | 'key' | 'agent' | 'state' | 'seq'> & {
  readonly status: SessionStatus | typeof RESTORED
  /** Sessions are numbered in the order of their creation. */
  readonly number: number
  /** SQLite has no booleans. */
  readonly internal: boolean | 0 | 1
  readonly principal: string
  /** JSON, as are the labels. */
  readonly shares: string
  readonly labels: string
  readonly owner: string | null
  readonly queued: number
  readonly attached: number
  readonly bytes: number
  readonly created_at: number
  readonly updated_at: number
}

export function sessionRow(stored: StoredRow): SessionRow {
  return {
    id: nameFrom(stored.id),
    principal: nameFrom(stored.principal),
    shares: JSON.parse(stored.shares) as readonly Share[],
    key: stored.key === null ? null : nameFrom(stored.key),
    agent: nameFrom(stored.agent),
    internal: Boolean(stored.internal),
    labels: JSON.parse(stored.labels) as Record<string, string>,
    state: stored.state,
    seq: stored.seq,
    status: stored.state === 'open' ? (stored.status as SessionStatus) : 'closed',
    queuedTurns: stored.queued,
    attached: stored.attached,
    bytes: stored.bytes,
    createdAt: stored.created_at,
    updatedAt: stored.updated_at,
    ...(stored.state === 'closed' && stored.status === RESTORED ? { isRestored: true } : {}),
  }
}

/** What these events take in a store, as it counts it. */
export function bytesOf(bodies: readonly string[]): number {
  let bytes = 0
  for (const body of bodies) bytes += Buffer.byteLength(body)
  return bytes
}

/** What a restored session takes. */
export function restoredBytes({ events, blobs }: RestoredSession): number {
  return blobs.reduce((sum, { data }) => sum + data.length, bytesOf(events))
}

/** The first values of the statement `create` of both databases. */
export function createValues(reservation: Reservation) {
  const { id, key, agent, internal, labels, node, at, expiresAt } = reservation
  const names = [storedName(id), key === null ? null : storedName(key), storedName(agent)]
  return [...names, internal ? 1 : 0, JSON.stringify(labels), storedName(node), at, expiresAt]
}

/** A session as it stands in a store, for a check of all that is stored. */
export type AuditedLog = {
  readonly row: SessionRow
  /** Oldest first, to be read once, before the next log is asked for: a log may be long. */
  readonly events: Iterable<AuditedEvent> | AsyncIterable<AuditedEvent>
  readonly snapshot: StoredEvent | null
  /** After the events: bytes that they name, by their digest; null: they are not there. */
  readonly readBlob: (digest: string) => Uint8Array | null | Promise<Uint8Array | null>
}

/** The JSON of an event and the CRC-32 of that text; null: it was written by 0.1.0. */
export type AuditedEvent = { readonly body: string; readonly checksum: number | null }

/**
 * The answer to a reservation without creating anything; undefined: nothing is in its way.
 * `existing` has its id, and `holder` is the id of the open session that has its key.
 */
export function reservedBefore(
  { id, explicit, key }: Reservation,
  existing: SessionRow | undefined,
  holder: string | undefined,
): Reserved | undefined {
  if (explicit && existing !== undefined) {
    const { state } = existing
    if (state !== 'open') return { type: 'closed', id, state }
    if (key === null || existing.key === key) return { type: 'found', id }
    return { type: 'taken', id: holder ?? id }
  }
  if (holder !== undefined) return { type: explicit ? 'taken' : 'found', id: holder }
  if (existing !== undefined) throw new HoldfastError('internal', `session id ${id} is in use`)
}

const SPENDING_DAYS = 35

/** The first day of which what was spent is kept. */
export function spendingKeptFrom(used: readonly Spending[]): number {
  return Math.min(...used.map(({ day }) => day)) - SPENDING_DAYS
}
