/** Sessions that are erased, or restored from an archive: each as a whole, in one step. */
import type { RestoredSession } from '../../core/store.ts'
import { foldedKey, storedName } from '../names.ts'
import { RESTORED, restoredBytes } from '../rows.ts'
import type { BlobTable } from './blobs.ts'
import { prepareAll, type Prepared, type SqliteDatabase } from './driver.ts'
import type { EventLog } from './log.ts'

const SQL = {
  erase: `UPDATE sessions SET state = 'erased', key = NULL, folded = NULL, labels = '{}',
    shares = '[]', closed_at = NULL, last_event = 0, bytes = 0
    WHERE number = ? AND state = 'closed' RETURNING seq`,
  dropSnapshot: 'DELETE FROM snapshots WHERE session = ?',
  dropLabels: 'DELETE FROM labels WHERE session = ?',
  dropKeys: 'DELETE FROM request_keys WHERE session = ?',
  dropShares: 'DELETE FROM shares WHERE session = ?',
  dropAsks: 'DELETE FROM asks WHERE session = ?',
  // One that was erased keeps its number, and with it its place in lists.
  restore: `INSERT INTO sessions
    (id, key, agent, internal, labels, state, epoch, owner, seq, created_at, updated_at, closed_at,
     pending, last_event, status, principal, shares, bytes, active_at, folded)
    VALUES (?1, ?2, ?3, ?4, ?5, 'closed', 1, NULL, ?6, ?7, ?8, ?8, 0, 0, '${RESTORED}', ?9, ?10,
     ?11, ?8, ?12)
    ON CONFLICT (id) DO UPDATE SET key = excluded.key, agent = excluded.agent,
      internal = excluded.internal, labels = excluded.labels, state = excluded.state,
      epoch = epoch + 1, seq = excluded.seq, created_at = excluded.created_at,
      updated_at = excluded.updated_at, status = excluded.status, closed_at = excluded.closed_at,
      active_at = excluded.active_at, folded = excluded.folded,
      principal = excluded.principal, shares = excluded.shares, bytes = excluded.bytes
      WHERE state = 'erased'
    RETURNING number`,
  setLast: 'UPDATE sessions SET last_event = ? WHERE number = ?',
  addLabel: 'INSERT INTO labels (name, value, session) VALUES (?, ?, ?)',
  addShare: 'INSERT INTO shares (principal, session) VALUES (?, ?)',
} as const

export class WholeSessions {
  readonly #database: SqliteDatabase
  readonly #log: EventLog
  readonly #blobs: BlobTable
  readonly #sql: Prepared<keyof typeof SQL>

  constructor(database: SqliteDatabase, log: EventLog, blobs: BlobTable) {
    this.#database = database
    this.#log = log
    this.#blobs = blobs
    this.#sql = prepareAll(database, SQL)
  }

  /** `last`: the number of its last event. False: it is not closed. */
  erase({ number, last }: { readonly number: number; readonly last: number }): boolean {
    const seq: number | undefined = this.#sql.erase.get(number)?.seq
    if (seq === undefined) return false
    // What is deleted is overwritten: else it would stay in free pages of the file.
    this.#database.exec('PRAGMA secure_delete = ON')
    this.#log.erase({ session: number, last, seq })
    const { dropSnapshot, dropLabels, dropKeys, dropShares, dropAsks } = this.#sql
    const drops = [dropSnapshot, dropLabels, dropKeys, dropShares, dropAsks]
    for (const drop of drops) drop.run(number)
    this.#blobs.drop(number)
    this.#database.exec('PRAGMA secure_delete = FAST')
    return true
  }

  /** False: there is one of this id. */
  restore(session: RestoredSession): boolean {
    const { labels, shares, events, blobs } = session
    const number: number | undefined = this.#sql.restore.get(...valuesOf(session))?.number
    if (number === undefined) return false
    this.#sql.setLast.run(this.#log.restore(number, events), number)
    for (const [name, value] of Object.entries(labels)) {
      this.#sql.addLabel.run(storedName(name), storedName(value), number)
    }
    for (const share of shares) this.#sql.addShare.run(storedName(share.with), number)
    this.#blobs.add(number, blobs)
    return true
  }
}

function valuesOf(session: RestoredSession) {
  const { id, key, agent, internal, labels, principal, shares, events, createdAt, at } = session
  return [
    storedName(id),
    key === null ? null : storedName(key),
    storedName(agent),
    internal ? 1 : 0,
    JSON.stringify(labels),
    events.length,
    createdAt,
    at,
    storedName(principal),
    JSON.stringify(shares),
    restoredBytes(session),
    key === null ? null : foldedKey(key),
  ]
}
