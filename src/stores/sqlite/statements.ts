/**
 * The store's steps as SQL, run inside the transaction that the writer has begun.
 *
 * I1 a key is unique among open sessions by an index. I4, I5 the first statement of an append is its
 * fence: it changes the session's row only under the right epoch and position, and if it changes
 * nothing then nothing else is written.
 */
import type { DatabaseSyncInstance, StatementSyncInstance } from '@photostructure/sqlite'
import type {
  Append,
  Claim,
  ReadResult,
  Reservation,
  Reserved,
  StoredEvent,
} from '../../core/store.ts'
import type { Leases } from './leases.ts'
import { nameFrom, storedName } from './names.ts'
import { ROW_COLUMNS, sessionRow, type StoredRow } from './rows.ts'

/** Places that are remembered: looking one up again costs about as much as an append's fence. */
const PLACES_MAX = 20_000

/** Events inserted by one statement. */
const INSERT_EVENTS_MAX = 8

const EVERY_EVENT = -1

const SQL = {
  place: 'SELECT number, due_at AS dueAt FROM sessions WHERE id = ?',
  rowById: `SELECT ${ROW_COLUMNS} FROM sessions WHERE id = ?`,
  openByKey: `SELECT id FROM sessions WHERE key = ? AND state = 'open'`,
  create: `INSERT INTO sessions
    (id, key, agent, internal, labels, state, epoch, owner, seq, created_at, updated_at, pending,
     expires_at, due_at)
    VALUES (?1, ?2, ?3, ?4, ?5, 'open', 1, ?6, 1, ?7, ?7, 0, ?8, ?8)`,
  label: 'INSERT INTO labels (name, value, session) VALUES (?, ?, ?)',
  claim: 'UPDATE sessions SET epoch = epoch + 1, owner = ? WHERE number = ?',
  advance: `UPDATE sessions SET seq = ?, updated_at = ?, pending = ?, expires_at = ?
    WHERE number = ? AND epoch = ? AND seq = ? AND state = 'open'`,
  advanceAndClose: `UPDATE sessions SET seq = ?1, updated_at = ?2, closed_at = ?2, state = 'closed',
    owner = NULL, pending = 0, expires_at = NULL, due_at = NULL
    WHERE number = ?3 AND epoch = ?4 AND seq = ?5 AND state = 'open'`,
  setDue: 'UPDATE sessions SET due_at = ? WHERE number = ?',
  setSnapshot: 'INSERT OR REPLACE INTO snapshots (session, seq, body) VALUES (?, ?, ?)',
  snapshot: 'SELECT seq, body FROM snapshots WHERE session = ?',
  events: 'SELECT seq, body FROM events WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?',
  erase: `UPDATE sessions SET state = 'erased', key = NULL, labels = '{}', closed_at = NULL
    WHERE number = ? AND state = 'closed'`,
  dropEvents: 'DELETE FROM events WHERE session = ?',
  dropSnapshot: 'DELETE FROM snapshots WHERE session = ?',
  dropLabels: 'DELETE FROM labels WHERE session = ?',
} as const

type Statement = StatementSyncInstance

/** Where a session's rows are: its creation number, and its entry in the index of expiry. */
type Place = { readonly number: number; dueAt: number | null }

export class Statements {
  readonly #database: DatabaseSyncInstance
  readonly #leases: Leases
  readonly #sql: Readonly<Record<keyof typeof SQL, Statement>>
  readonly #insertEvents: readonly Statement[]
  readonly #places = new Map<string, Place>()

  constructor(database: DatabaseSyncInstance, leases: Leases) {
    this.#database = database
    this.#leases = leases
    const entries = Object.entries(SQL).map(([name, sql]) => [name, database.prepare(sql)])
    this.#sql = Object.fromEntries(entries) as Record<keyof typeof SQL, Statement>
    this.#insertEvents = Array.from({ length: INSERT_EVENTS_MAX }, (_, index) =>
      database.prepare(`INSERT INTO events VALUES ${'(?, ?, ?), '.repeat(index)}(?, ?, ?)`),
    )
  }

  /** What was remembered may have been rolled back. */
  forget(): void {
    this.#places.clear()
  }

  reserve(reservation: Reservation): Reserved {
    const { id, explicit, key } = reservation
    const holder = key === null ? null : this.#openByKey(key)
    if (explicit) {
      const existing = this.#row(id)
      if (existing !== null) return foundExplicit(existing, id, key, holder)
    }
    if (holder !== null) return { type: explicit ? 'taken' : 'found', id: holder }
    return this.#create(reservation)
  }

  #openByKey(key: string): string | null {
    const found = this.#sql.openByKey.get(storedName(key)) as { id: string } | undefined
    return found === undefined ? null : nameFrom(found.id)
  }

  #create({ id, key, agent, internal, labels, node, at, expiresAt, body }: Reservation): Reserved {
    const { lastInsertRowid } = this.#sql.create.run(
      storedName(id),
      key === null ? null : storedName(key),
      storedName(agent),
      internal ? 1 : 0,
      JSON.stringify(labels),
      storedName(node),
      at,
      expiresAt,
    )
    const number = Number(lastInsertRowid)
    this.#insert(number, 0, [body])
    for (const [name, value] of Object.entries(labels)) {
      this.#sql.label.run(storedName(name), storedName(value), number)
    }
    this.#remember(id, { number, dueAt: expiresAt })
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

  #load(stored: StoredRow, epoch: number | null): Claim {
    const { number } = stored
    const snapshot = this.#sql.snapshot.get(number) as StoredEvent | undefined
    const tail = this.#sql.events.all(number, snapshot?.seq ?? 0, EVERY_EVENT) as StoredEvent[]
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
    const place = this.#place(append.session)
    if (place === null || !this.#advance(place, append)) return false
    const { after, events, snapshot } = append
    this.#insert(place.number, after, events)
    if (snapshot !== null) {
      this.#sql.setSnapshot.run(place.number, after + events.length, snapshot)
    }
    return true
  }

  #advance(place: Place, append: Append): boolean {
    const { number } = place
    const { epoch, after, events, at, closed, pending, expiresAt } = append
    const seq = after + events.length
    if (closed) {
      return this.#sql.advanceAndClose.run(seq, at, number, epoch, after).changes > 0
    }
    const { advance } = this.#sql
    const { changes } = advance.run(seq, at, pending ? 1 : 0, expiresAt, number, epoch, after)
    if (changes > 0 && expiresAt !== null) this.#keepDue(place, expiresAt, at)
    return changes > 0
  }

  /** Keeps `due_at` at or before `expires_at`, and ahead of the clock so that sweeps find few in vain. */
  #keepDue(place: Place, expiresAt: number, at: number): void {
    if (place.dueAt !== null && place.dueAt <= expiresAt && place.dueAt > at) return
    this.#sql.setDue.run(expiresAt, place.number)
    place.dueAt = expiresAt
  }

  #insert(number: number, after: number, events: readonly string[]): void {
    for (let from = 0; from < events.length; from += INSERT_EVENTS_MAX) {
      const some = events.slice(from, from + INSERT_EVENTS_MAX)
      const values = some.flatMap((body, index) => [number, after + from + index + 1, body])
      this.#insertEvents[some.length - 1]!.run(...values)
    }
  }

  read(session: string, after: number, limit: number): ReadResult {
    const stored = this.#row(session)
    if (stored === null) return { row: null, events: [] }
    const events = this.#sql.events.all(stored.number, after, limit) as StoredEvent[]
    return { row: sessionRow(stored), events }
  }

  erase(session: string): boolean {
    const place = this.#place(session)
    if (place === null || this.#sql.erase.run(place.number).changes === 0) return false
    this.#sql.dropEvents.run(place.number)
    this.#sql.dropSnapshot.run(place.number)
    this.#sql.dropLabels.run(place.number)
    return true
  }

  #row(session: string): StoredRow | null {
    return (this.#sql.rowById.get(storedName(session)) as StoredRow | undefined) ?? null
  }

  #place(session: string): Place | null {
    const known = this.#places.get(session)
    if (known !== undefined) return known
    const found = this.#sql.place.get(storedName(session)) as Place | undefined
    if (found !== undefined) this.#remember(session, found)
    return found ?? null
  }

  #remember(session: string, place: Place): void {
    if (this.#places.size >= PLACES_MAX) this.#places.clear()
    this.#places.set(session, place)
  }

  begin(): void {
    this.#database.exec('BEGIN IMMEDIATE')
  }

  commit(): void {
    this.#database.exec('COMMIT')
  }

  /** A full disk has rolled back already, and a second rollback would throw. */
  rollBack(): void {
    this.forget()
    if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
  }
}

function foundExplicit(
  { state, key: storedKey }: StoredRow,
  id: string,
  key: string | null,
  holder: string | null,
): Reserved {
  if (state !== 'open') return { type: 'closed', id, state }
  if (key === null || storedKey === storedName(key)) return { type: 'found', id }
  return { type: 'taken', id: holder ?? id }
}
