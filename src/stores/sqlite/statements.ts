/**
 * The store's steps as SQL, run inside the transaction that the writer has begun.
 *
 * I1 a key is unique among open sessions by an index. I4, I5 the first statement of an append is
 * its fence: it changes the session's row only under the right epoch and position, and if it
 * changes nothing then nothing else is written.
 */
import { prepareAll, type SqliteDatabase, type SqliteStatement } from './driver.ts'
import {
  PAGE_CHARS,
  type Append,
  type ChangePage,
  type Claim,
  type KeyedTurn,
  type KeyQuery,
  type ReadResult,
  type Reservation,
  type Reserved,
  type StoredEvent,
} from '../../core/store.ts'
import type { Leases } from '../leases.ts'
import { Changes } from './changes.ts'
import { EventLog, type LogEnd } from './log.ts'
import { nameFrom, storedName } from '../names.ts'
import { KeyTable } from './request-keys.ts'
import { reservedExplicitly, ROW_COLUMNS, sessionRow, type StoredRow } from '../rows.ts'

/** Sessions whose numbers are cached: looking one up costs about as much as an append's fence. */
const CACHED_MAX = 5_000

type OwnedRow = StoredRow & { readonly epoch: number; readonly last_event: number }

const SQL = {
  find: 'SELECT number, due_at AS dueAt, last_event AS last FROM sessions WHERE id = ?',
  rowById: `SELECT ${ROW_COLUMNS}, epoch, last_event FROM sessions WHERE id = ?`,
  openByKey: `SELECT id FROM sessions WHERE key = ? AND state = 'open'`,
  create: `INSERT INTO sessions
    (id, key, agent, internal, labels, state, epoch, owner, seq, created_at, updated_at, pending,
     expires_at, due_at, last_event)
    VALUES (?1, ?2, ?3, ?4, ?5, 'open', 1, ?6, 1, ?7, ?7, 0, ?8, ?8, ?9)`,
  label: 'INSERT INTO labels (name, value, session) VALUES (?, ?, ?)',
  claim: 'UPDATE sessions SET epoch = epoch + 1, owner = ? WHERE number = ?',
  release: `UPDATE sessions SET owner = NULL WHERE id = ? AND epoch = ? AND state = 'open'`,
  advance: `UPDATE sessions SET seq = ?, last_event = ?, updated_at = ?, pending = ?,
    expires_at = ?, status = coalesce(?, status), queued = ?
    WHERE number = ? AND epoch = ? AND seq = ? AND state = 'open'`,
  advanceAndClose: `UPDATE sessions SET seq = ?1, last_event = ?2, updated_at = ?3,
    closed_at = ?3, state = 'closed', owner = NULL, pending = 0, expires_at = NULL, due_at = NULL,
    queued = 0
    WHERE number = ?4 AND epoch = ?5 AND seq = ?6 AND state = 'open'`,
  setDue: 'UPDATE sessions SET due_at = ? WHERE number = ?',
  setSnapshot: 'INSERT OR REPLACE INTO snapshots (session, seq, body) VALUES (?, ?, ?)',
  snapshot: 'SELECT seq, body FROM snapshots WHERE session = ?',
  erase: `UPDATE sessions SET state = 'erased', key = NULL, labels = '{}', closed_at = NULL,
    last_event = 0
    WHERE number = ? AND state = 'closed'`,
  dropSnapshot: 'DELETE FROM snapshots WHERE session = ?',
  dropLabels: 'DELETE FROM labels WHERE session = ?',
} as const

/** A session's creation number, its entry in the index of expiry and its last event's number. */
type CachedSession = { readonly number: number; dueAt: number | null; last: number }

export class Statements {
  readonly #database: SqliteDatabase
  readonly #leases: Leases
  readonly #sql: Readonly<Record<keyof typeof SQL, SqliteStatement>>
  readonly #log: EventLog
  readonly #keys: KeyTable
  readonly #changes: Changes
  readonly #cached = new Map<string, CachedSession>()

  constructor(database: SqliteDatabase, leases: Leases) {
    this.#database = database
    this.#leases = leases
    this.#sql = prepareAll(database, SQL)
    this.#log = new EventLog(database)
    this.#keys = new KeyTable(database)
    this.#changes = new Changes(database)
  }

  reserve(reservation: Reservation): Reserved {
    const { id, explicit, key } = reservation
    const holder = key === null ? null : this.#openByKey(key)
    if (explicit) {
      const existing = this.#row(id)
      if (existing !== null) return reservedExplicitly(sessionRow(existing), key, holder)
    }
    if (holder !== null) return { type: explicit ? 'taken' : 'found', id: holder }
    return this.#create(reservation)
  }

  #openByKey(key: string): string | null {
    const found = this.#sql.openByKey.get(storedName(key)) as { id: string } | undefined
    return found === undefined ? null : nameFrom(found.id)
  }

  #create({ id, key, agent, internal, labels, node, at, expiresAt, body }: Reservation): Reserved {
    const last = this.#log.numberAfter(1)
    const { lastInsertRowid } = this.#sql.create.run(
      storedName(id),
      key === null ? null : storedName(key),
      storedName(agent),
      internal ? 1 : 0,
      JSON.stringify(labels),
      storedName(node),
      at,
      expiresAt,
      last,
    )
    const number = Number(lastInsertRowid)
    this.#log.insert({ session: number, last: 0, seq: 0 }, [body])
    for (const [name, value] of Object.entries(labels)) {
      this.#sql.label.run(storedName(name), storedName(value), number)
    }
    this.#remember(id, { number, dueAt: expiresAt, last })
    return { type: 'created', id, epoch: 1 }
  }

  claim(session: string, node: string): Claim {
    const stored = this.#row(session)
    if (stored === null) return { type: 'unknown' }
    if (stored.state === 'erased') return { type: 'erased' }
    if (stored.state === 'closed') return this.#load(stored, null)
    const owner = stored.owner === null ? null : nameFrom(stored.owner)
    if (owner !== null && owner !== node && this.#leases.isAlive(owner)) {
      return { type: 'owned', node: owner }
    }
    this.#sql.claim.run(storedName(node), stored.number)
    return this.#load(stored, stored.epoch + 1)
  }

  release(session: string, epoch: number): void {
    this.#sql.release.run(storedName(session), epoch)
  }

  #load(stored: OwnedRow, epoch: number | null): Claim {
    const snapshot = this.#sql.snapshot.get(stored.number) as StoredEvent | undefined
    const tail = this.#log.after(logEnd(stored), snapshot?.seq ?? 0, stored.seq)
    const row = sessionRow(stored)
    return { type: 'claimed', row, epoch, snapshot: snapshot?.body ?? null, tail }
  }

  /** The positions of the appends that are stale. */
  append(appends: readonly Append[]): readonly number[] {
    const stale: number[] = []
    for (const [index, append] of appends.entries()) {
      if (!this.#append(append)) stale.push(index)
    }
    return stale
  }

  #append(append: Append): boolean {
    const cached = this.#cachedSession(append.session)
    if (cached === null) return false
    const { after, events, snapshot } = append
    const last = events.length === 0 ? cached.last : this.#log.numberAfter(events.length)
    if (!this.#advance(cached, append, last)) return false
    this.#log.insert({ session: cached.number, last: cached.last, seq: after }, events)
    cached.last = last
    if (snapshot !== null) {
      this.#sql.setSnapshot.run(cached.number, after + events.length, snapshot)
    }
    if (append.keys !== undefined) this.#keys.add(cached.number, append.keys)
    if (append.closed) this.#keys.drop(cached.number)
    return true
  }

  #advance(cached: CachedSession, append: Append, last: number): boolean {
    const { number } = cached
    const { epoch, after, events, at, closed, pending, expiresAt, status, queuedTurns } = append
    const seq = after + events.length
    const { advance, advanceAndClose } = this.#sql
    if (closed) return advanceAndClose.run(seq, last, at, number, epoch, after).changes > 0
    const flag = pending ? 1 : 0
    const shown = [status ?? null, queuedTurns ?? 0] as const
    const { changes } = advance.run(seq, last, at, flag, expiresAt, ...shown, number, epoch, after)
    if (changes > 0 && expiresAt !== null) this.#keepDue(cached, expiresAt, at)
    return changes > 0
  }

  /**
   * Keeps `due_at` at or before `expires_at`, and ahead of the clock so that sweeps find few in
   * vain.
   */
  #keepDue(cached: CachedSession, expiresAt: number, at: number): void {
    if (cached.dueAt !== null && cached.dueAt <= expiresAt && cached.dueAt > at) return
    this.#sql.setDue.run(expiresAt, cached.number)
    cached.dueAt = expiresAt
  }

  read(session: string, after: number, limit: number): ReadResult {
    const stored = this.#row(session)
    if (stored === null) return { row: null, events: [] }
    const row = sessionRow(stored)
    if (row.state === 'erased') return { row, events: [] }
    return { row, events: this.#log.after(logEnd(stored), after, limit, PAGE_CHARS) }
  }

  findKeys(session: string, query: KeyQuery): readonly KeyedTurn[] {
    return this.#keys.find(session, query)
  }

  changes(after: number | null, limit: number): ChangePage {
    return this.#changes.after(after, limit, this.#log.numberAfter(0))
  }

  erase(session: string): boolean {
    const cached = this.#cachedSession(session)
    if (cached === null || this.#sql.erase.run(cached.number).changes === 0) return false
    this.#log.erase({
      session: cached.number,
      last: cached.last,
      seq: this.#row(session)?.seq ?? 0,
    })
    this.#sql.dropSnapshot.run(cached.number)
    this.#sql.dropLabels.run(cached.number)
    this.#keys.drop(cached.number)
    return true
  }

  #row(session: string): OwnedRow | null {
    return (this.#sql.rowById.get(storedName(session)) as OwnedRow | undefined) ?? null
  }

  #cachedSession(session: string): CachedSession | null {
    const known = this.#cached.get(session)
    if (known !== undefined) return known
    const found = this.#sql.find.get(storedName(session)) as CachedSession | undefined
    if (found !== undefined) this.#remember(session, found)
    return found ?? null
  }

  #remember(session: string, cached: CachedSession): void {
    if (this.#cached.size >= CACHED_MAX) this.#cached.clear()
    this.#cached.set(session, cached)
  }

  begin(): void {
    this.#database.exec('BEGIN IMMEDIATE')
  }

  commit(): void {
    this.#database.exec('COMMIT')
  }

  /**
   * A full disk has rolled back already, and a second rollback would throw. What was remembered may
   * be gone with it.
   */
  rollBack(): void {
    if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
    this.#cached.clear()
    this.#log.forget()
  }
}

function logEnd({ number, last_event: last, seq }: OwnedRow): LogEnd {
  return { session: number, last, seq }
}
