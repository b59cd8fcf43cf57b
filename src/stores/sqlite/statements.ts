/**
 * The store's steps as SQL, run inside the transaction that the writer has begun.
 *
 * I1 a key is unique among open sessions by an index. I4, I5 the first statement of an append is
 * its fence: it changes the session's row only under the right epoch and position, and if it
 * changes nothing then nothing else is written.
 */
import {
  AUDIT_LOOKS,
  PAGE_CHARS,
  type Append,
  type AppendedAsks,
  type AppendedKeys,
  type Claim,
  type KeyedTurn,
  type Reservation,
  type Reserved,
  type Store,
} from '../../core/store.ts'
import type { Share } from '../../core/state.ts'
import { Leases } from '../leases.ts'
import { foldedKey, nameFrom, storedName } from '../names.ts'
import { changePage, changesGone, type ChangeRecord } from '../pages.ts'
import {
  bytesOf,
  createValues,
  reservedBefore,
  ROW_COLUMNS,
  sessionRow,
  type StoredRow,
  spendingKeptFrom,
} from '../rows.ts'
import { prepareAll, type Prepared, type SqliteDatabase } from './driver.ts'
import { BlobTable } from './blobs.ts'
import { ListStatements } from './lists.ts'
import { EventLog, type LogEnd } from './log.ts'
import { WholeSessions } from './whole-sessions.ts'

/** Sessions whose numbers are cached: looking one up costs about as much as an append's fence. */
const CACHED_MAX = 5_000

/** How late the index of activity may be. */
const LATE_MS = 1_000
/** Sessions that it may be late with while no list is read. */
const LATE_MAX = 10_000

type OwnedRow = StoredRow & { readonly epoch: number; readonly last_event: number }

const KEYS_OF = `SELECT key, digest, turn, at FROM request_keys
  WHERE session = (SELECT number FROM sessions WHERE id = ?1)`

const SQL = {
  find: `SELECT number, due_at AS dueAt, active_at AS activeAt, last_event AS last, NULL AS keys
    FROM sessions
    WHERE id = ?`,
  row: `SELECT ${ROW_COLUMNS} FROM sessions WHERE number = ?`,
  rowById: `SELECT ${ROW_COLUMNS}, epoch, last_event FROM sessions WHERE id = ?`,
  // The same look-ups in indexes for an id that is not there: that it is takes no longer.
  rowVisibleTo: `WITH wanted AS MATERIALIZED (
      SELECT coalesce((SELECT number FROM sessions WHERE id = ?1), 0) AS number
    )
    SELECT ${ROW_COLUMNS}, epoch, last_event FROM sessions WHERE number = (
      SELECT number FROM wanted WHERE EXISTS (
        SELECT 1 FROM json_each(?2) AS one
          CROSS JOIN sessions AS own INDEXED BY sessions_by_principal
          ON own.principal = one.value AND own.number = wanted.number
      ) OR EXISTS (
        SELECT 1 FROM json_each(?2) AS one
          CROSS JOIN shares ON shares.principal = one.value AND shares.session = wanted.number
      )
    )`,
  openByKey: `SELECT id FROM sessions WHERE principal = ? AND key = ? AND state = 'open'`,
  create: `INSERT INTO sessions
    (id, key, agent, internal, labels, state, epoch, owner, seq, created_at, updated_at, pending,
     expires_at, due_at, last_event, principal, bytes, active_at, folded)
    VALUES (?1, ?2, ?3, ?4, ?5, 'open', 1, ?6, 1, ?7, ?7, 0, ?8, ?8, ?9, ?10, ?11, ?7, ?12)`,
  label: 'INSERT INTO labels (name, value, session) VALUES (?, ?, ?)',
  claim: 'UPDATE sessions SET epoch = epoch + 1, owner = ? WHERE number = ?',
  release: `UPDATE sessions SET owner = NULL WHERE id = ? AND epoch = ? AND state = 'open'`,
  advance: `UPDATE sessions SET seq = ?, last_event = ?, updated_at = ?, pending = ?,
    expires_at = ?, status = coalesce(?, status), queued = ?, attached = ?, bytes = bytes + ?
    WHERE number = ? AND epoch = ? AND seq = ? AND state = 'open'`,
  advanceAndClose: `UPDATE sessions SET seq = ?1, last_event = ?2, updated_at = ?3,
    closed_at = ?3, state = 'closed', owner = NULL, pending = 0, expires_at = NULL, due_at = NULL,
    queued = 0, attached = 0, active_at = ?3, bytes = bytes + ?7
    WHERE number = ?4 AND epoch = ?5 AND seq = ?6 AND state = 'open'`,
  setShares: 'UPDATE sessions SET shares = ? WHERE number = ?',
  share: 'INSERT INTO shares (principal, session) VALUES (?, ?)',
  dropShares: 'DELETE FROM shares WHERE session = ?',
  addAudit: 'INSERT INTO audit (at, address, body) VALUES (?, ?, ?)',
  readAudit: `SELECT position, at, address, body FROM audit
    WHERE position > ? ORDER BY position LIMIT ?`,
  lastAudit: `SELECT position, at, address, body FROM (
      SELECT * FROM audit ORDER BY position DESC LIMIT ${AUDIT_LOOKS}
    ) WHERE substr(body, 1, length(?1)) = ?1 ORDER BY position DESC LIMIT 1`,
  dropAudit: 'DELETE FROM audit WHERE at < ?',
  dropAddresses: 'UPDATE audit SET address = NULL WHERE at < ? AND address IS NOT NULL',
  // One process has the file: what another held before is over.
  holdWebhook: `INSERT INTO webhooks (name, node) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET node = excluded.node RETURNING body`,
  saveWebhook: `UPDATE webhooks SET body = ?3, node = iif(?4 > 0, ?2, NULL)
    WHERE name = ?1 AND node = ?2 RETURNING name`,
  listWebhooks: 'SELECT name, node, body FROM webhooks ORDER BY name',
  setActive: 'UPDATE sessions SET active_at = updated_at WHERE number = ?',
  spend: `INSERT INTO spending (day, principal, tokens, cost, running) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens, cost = cost + excluded.cost,
      running = running + excluded.running
    RETURNING tokens AS tokensPerDay, cost AS costUsdPerDay, running AS runningMsPerDay`,
  dropSpending: 'DELETE FROM spending WHERE day < ?',
  setDue: 'UPDATE sessions SET due_at = ? WHERE number = ?',
  setSnapshot: 'INSERT OR REPLACE INTO snapshots (session, seq, body) VALUES (?, ?, ?)',
  snapshot: 'SELECT seq, body FROM snapshots WHERE session = ?',
  // The change feed is the table of events itself: its numbers only grow, commits are in their
  // order, and a log that is erased leaves one row without a body behind, which adds no event.
  changes: `SELECT number AS position, session, seq - (octet_length(body) > 0) AS after, seq
    FROM events WHERE number > ? ORDER BY number LIMIT ?`,
  keyRange: `SELECT coalesce(max(number), 0) AS newest,
    coalesce((SELECT min(number) FROM request_keys WHERE session = ?1), 0) AS oldest,
    coalesce((SELECT at FROM request_keys INDEXED BY request_keys_by_number
      WHERE session = ?1 ORDER BY number LIMIT 1), 0) AS oldestAt
    FROM request_keys WHERE session = ?1`,
  addKey: `INSERT OR REPLACE INTO request_keys (session, key, number, digest, turn, at)
    VALUES (?, ?, ?, ?, ?, ?)`,
  pruneKeys: `DELETE FROM request_keys WHERE session = ?1 AND number < max(?2,
    coalesce((SELECT number FROM request_keys INDEXED BY request_keys_by_number
      WHERE session = ?1 AND at >= ?3 ORDER BY number LIMIT 1), 0))`,
  findKey: `${KEYS_OF} AND key = ?2 AND at >= ?3`,
  findAllKeys: `${KEYS_OF} AND at >= ?2 ORDER BY number DESC LIMIT ?3`,
  openOf: `SELECT count(*) AS count FROM (
      SELECT 1 FROM sessions INDEXED BY sessions_active_of
        WHERE principal = ? AND state = 'open' AND internal = 0 LIMIT ?
    )`,
  bytesOf: `SELECT coalesce(sum(bytes), 0) AS bytes FROM sessions INDEXED BY sessions_by_principal
    WHERE principal = ?`,
  dropKeys: 'DELETE FROM request_keys WHERE session = ?',
  addAsk: 'INSERT INTO asks (session, ask, kind, at, body) VALUES (?, ?, ?, ?, ?)',
  dropAsk: 'DELETE FROM asks WHERE session = ? AND ask = ?',
} as const

type CachedSession = {
  /** Its creation number. */
  readonly number: number
  /** Its entry in the index of expiry. */
  dueAt: number | null
  /** Its entry in the index of activity, or a little earlier. */
  activeAt: number
  /** The number of its last event. */
  last: number
  /** Null: not looked up yet. */
  keys: KeyRange | null
}

/**
 * The numbers of a session's newest and oldest request key. The oldest may be gone: what is known
 * of it is then a lower bound, so that no key that has to be forgotten is overlooked.
 */
type KeyRange = { newest: number; readonly oldest: number; readonly oldestAt: number }

type OperationName = Exclude<keyof Store, 'close' | 'cluster'>

/** What carries the operations out. `append` returns the positions of those that are stale. */
export type Steps = {
  readonly [Name in OperationName]: (
    ...given: Parameters<Required<Store>[Name]>
  ) => Name extends 'append' ? readonly number[] : Awaited<ReturnType<Required<Store>[Name]>>
}

export class Statements implements Steps {
  readonly ready: Steps['ready']
  readonly #database: SqliteDatabase
  readonly #leases = new Leases()
  readonly #sql: Prepared<keyof typeof SQL>
  readonly #lists: ListStatements
  readonly #log: EventLog
  readonly #blobs: BlobTable
  readonly #whole: WholeSessions
  readonly #cached = new Map<string, CachedSession>()
  /** The numbers of sessions whose `active_at` is behind, by less than `LATE_MS`. */
  readonly #late = new Set<number>()

  constructor(database: SqliteDatabase, ready: Steps['ready']) {
    this.ready = ready
    this.#database = database
    this.#sql = prepareAll(database, SQL)
    this.#log = new EventLog(database)
    this.#blobs = new BlobTable(database)
    this.#lists = new ListStatements(database, this.#leases)
    this.#whole = new WholeSessions(database, this.#log, this.#blobs)
  }

  readonly reserve: Steps['reserve'] = (reservation) => {
    const { id, explicit, principal, key } = reservation
    const { openByKey } = this.#sql
    const holder = key === null ? undefined : openByKey.get(storedName(principal), storedName(key))
    // An id that was minted is not looked up: that it is unique is checked by the table.
    const stored = explicit ? this.#row(id) : undefined
    const existing = stored && sessionRow(stored)
    const found = reservedBefore(reservation, existing, holder && nameFrom(holder.id))
    if (found !== undefined) return found
    const { blobs } = reservation
    if (blobs !== undefined && !this.#blobs.hasAll(blobs)) return { type: 'gone', id: blobs.from }
    return this.#create(reservation)
  }

  #create(reservation: Reservation): Reserved {
    const { id, principal, labels, expiresAt, body } = reservation
    const last = this.#log.numberAfter(1)
    const { key, at } = reservation
    const folded = key === null ? null : foldedKey(key)
    const owned = [last, storedName(principal), bytesOf([body]), folded]
    const values = [...createValues(reservation), ...owned]
    const { lastInsertRowid } = this.#sql.create.run(...values)
    const number = Number(lastInsertRowid)
    this.#log.insert({ session: number, last: 0, seq: 0 }, [body])
    for (const [name, value] of Object.entries(labels)) {
      this.#sql.label.run(storedName(name), storedName(value), number)
    }
    if (reservation.blobs !== undefined) this.#blobs.copy(reservation.blobs, number)
    this.#remember(id, { number, dueAt: expiresAt, activeAt: at, last, keys: null })
    return { type: 'created', id, epoch: 1 }
  }

  readonly claim: Steps['claim'] = (session, node) => {
    const stored = this.#row(session)
    if (stored === undefined) return { type: 'unknown' }
    if (stored.state === 'erased') return { type: 'erased' }
    if (stored.state === 'closed') return this.#load(stored, null)
    const owner = stored.owner === null ? null : nameFrom(stored.owner)
    if (owner !== null && owner !== node && this.#leases.isAlive(owner)) {
      return { type: 'owned', node: owner }
    }
    this.#sql.claim.run(storedName(node), stored.number)
    this.#blobs.dropAllLoose(stored.number)
    return this.#load(stored, stored.epoch + 1)
  }

  readonly release: Steps['release'] = (session, epoch) => {
    this.#sql.release.run(storedName(session), epoch)
  }

  #load(stored: OwnedRow, epoch: number | null): Claim {
    const snapshot = this.#sql.snapshot.get(stored.number)
    const tail = this.#log.after(logEnd(stored), snapshot?.seq ?? 0, stored.seq)
    const row = sessionRow(stored)
    return { type: 'claimed', row, epoch, snapshot: snapshot?.body ?? null, tail }
  }

  readonly append: Steps['append'] = (appends) => {
    const stale: number[] = []
    appends.forEach((append, index) => {
      if (!this.#append(append)) stale.push(index)
    })
    return stale
  }

  #append(append: Append): boolean {
    const cached = this.#cachedSession(append.session)
    if (cached === undefined) return false
    const { after, events, snapshot, shares, keys, asks, blobs, closed } = append
    const last = events.length === 0 ? cached.last : this.#log.numberAfter(events.length)
    if (!this.#advance(cached, append, last)) return false
    this.#log.insert({ session: cached.number, last: cached.last, seq: after }, events)
    cached.last = last
    const seq = after + events.length
    if (snapshot !== null) this.#sql.setSnapshot.run(cached.number, seq, snapshot)
    if (shares !== undefined) this.#setShares(cached.number, shares)
    if (keys !== undefined) this.#addKeys(cached, keys)
    if (asks !== undefined) this.#noteAsks(cached.number, asks, append.at)
    if (blobs !== undefined) this.#blobs.keep(cached.number, blobs)
    if (closed) this.#sql.dropKeys.run(cached.number)
    return true
  }

  #noteAsks(number: number, { opened, settled }: AppendedAsks, at: number): void {
    for (const id of settled) this.#sql.dropAsk.run(number, id)
    for (const { id, kind, body } of opened) {
      this.#sql.addAsk.run(number, id, storedName(kind), at, body)
    }
  }

  #setShares(number: number, shares: readonly Share[]): void {
    this.#sql.setShares.run(JSON.stringify(shares), number)
    this.#sql.dropShares.run(number)
    for (const share of shares) this.#sql.share.run(storedName(share.with), number)
  }

  #advance(cached: CachedSession, append: Append, last: number): boolean {
    const { number } = cached
    const { epoch, after, events, at, closed, pending, expiresAt, status } = append
    const seq = after + events.length
    const { advance, advanceAndClose } = this.#sql
    const bytes = bytesOf(events)
    if (closed) return advanceAndClose.run(seq, last, at, number, epoch, after, bytes).changes > 0
    const flag = pending ? 1 : 0
    const shown = status ?? null
    const { queuedTurns: queued = 0, attached = 0 } = append
    const listed = [shown, queued, attached, bytes] as const
    const { changes } = advance.run(seq, last, at, flag, expiresAt, ...listed, number, epoch, after)
    if (changes === 0) return false
    if (expiresAt !== null) this.#keepDue(cached, expiresAt, at)
    this.#noteActivity(cached, at)
    return true
  }

  /** Once a second for each session; what came since then waits until it is asked for. */
  #noteActivity(cached: CachedSession, at: number): void {
    const { number, activeAt } = cached
    if (at >= activeAt && at < activeAt + LATE_MS) {
      if (at > activeAt) this.#late.add(number)
      return
    }
    this.#sql.setActive.run(number)
    this.#late.delete(number)
    cached.activeAt = at
  }

  /** Whether a list by activity would show sessions where they were, or too many are late. */
  isLate(isListed: boolean): boolean {
    return this.#late.size > (isListed ? 0 : LATE_MAX)
  }

  catchUp(): void {
    for (const number of this.#late) this.#sql.setActive.run(number)
  }

  /** It was committed. */
  caughtUp(): void {
    this.#late.clear()
  }

  /** Keeps `due_at` at or before `expires_at`, and ahead of the clock: sweeps find few in vain. */
  #keepDue(cached: CachedSession, expiresAt: number, at: number): void {
    if (cached.dueAt !== null && cached.dueAt <= expiresAt && cached.dueAt > at) return
    this.#sql.setDue.run(expiresAt, cached.number)
    cached.dueAt = expiresAt
  }

  readonly read: Steps['read'] = (session, after, limit, visibleTo) => {
    const stored = this.#row(session, visibleTo)
    if (stored === undefined) return { row: null, events: [] }
    const row = sessionRow(stored)
    if (row.state === 'erased') return { row, events: [] }
    return { row, events: this.#log.after(logEnd(stored), after, limit, PAGE_CHARS) }
  }

  /** Most appends only add: what has to be forgotten is looked for when there is something. */
  #addKeys(cached: CachedSession, { added, since, max }: AppendedKeys): void {
    const { number } = cached
    const range = (cached.keys ??= this.#sql.keyRange.get(number) as KeyRange)
    for (const { key, digest, turn, at } of added) {
      range.newest += 1
      this.#sql.addKey.run(number, storedName(key), range.newest, digest, turn, at)
    }
    if (range.oldest > range.newest - max && range.oldestAt >= since) return
    this.#sql.pruneKeys.run(number, range.newest - max + 1, since)
    cached.keys = null
  }

  readonly findKeys: Steps['findKeys'] = (session, { key, since, limit }) => {
    const name = storedName(session)
    const found: KeyedTurn[] =
      key === undefined
        ? this.#sql.findAllKeys.all(name, since, limit)
        : this.#sql.findKey.all(name, storedName(key), since)
    return found.map((row) => ({ ...row, key: nameFrom(row.key) }))
  }

  readonly list: Steps['list'] = (query) => this.#lists.list(query)

  readonly listAsks: Steps['listAsks'] = (query) => this.#lists.listAsks(query)

  readonly changes: Steps['changes'] = (after, limit) => {
    const last = this.#log.numberAfter(0)
    if (after === null) return { changes: [], position: last }
    if (after < 0 || after > last) throw changesGone(after)
    const records: ChangeRecord<number>[] = this.#sql.changes.all(after, limit)
    return changePage(records, after, ({ session }) => sessionRow(this.#sql.row.get(session)))
  }

  readonly addAudit: Steps['addAudit'] = (records) => {
    for (const { at, address, body } of records) this.#sql.addAudit.run(at, address, body)
  }

  readonly readAudit: Steps['readAudit'] = (after, limit) => this.#sql.readAudit.all(after, limit)

  readonly lastAudit: Steps['lastAudit'] = (start) => this.#sql.lastAudit.get(start) ?? null

  readonly pruneAudit: Steps['pruneAudit'] = ({ recordsAt, addressesAt }) => {
    this.#sql.dropAudit.run(recordsAt)
    this.#sql.dropAddresses.run(addressesAt)
  }

  readonly holdWebhook: Steps['holdWebhook'] = (name, node) => this.#sql.holdWebhook.get(name, node)

  readonly saveWebhook: Steps['saveWebhook'] = (...given) =>
    this.#sql.saveWebhook.get(...given) !== undefined

  readonly listWebhooks: Steps['listWebhooks'] = () => this.#sql.listWebhooks.all()

  readonly spend: Steps['spend'] = (used) => {
    this.#sql.dropSpending.run(spendingKeptFrom(used))
    return used.map(({ day, principal, tokensPerDay, costUsdPerDay, runningMsPerDay }) =>
      this.#sql.spend.get(day, principal, tokensPerDay, costUsdPerDay, runningMsPerDay),
    )
  }

  readonly usage: Steps['usage'] = (principal, quota, most) => {
    const name = storedName(principal)
    if (quota === 'storedBytes') return this.#sql.bytesOf.get(name).bytes
    return this.#sql.openOf.get(name, most).count
  }

  readonly putBlobs: Steps['putBlobs'] = (...given) => this.#blobs.put(...given)

  readonly dropBlobs: Steps['dropBlobs'] = (...given) => this.#blobs.dropLoose(...given)

  readonly readBlob: Steps['readBlob'] = (...given) => this.#blobs.read(...given)

  readonly beat: Steps['beat'] = (node, leaseMs) => this.#leases.beat(node, leaseMs)

  readonly erase: Steps['erase'] = (session) => {
    const cached = this.#cachedSession(session)
    return cached !== undefined && this.#whole.erase(cached)
  }

  readonly restore: Steps['restore'] = (given) => {
    this.#cached.delete(given.id)
    return this.#whole.restore(given)
  }

  #row(session: string, visibleTo?: readonly string[]): OwnedRow | undefined {
    const name = storedName(session)
    if (visibleTo === undefined) return this.#sql.rowById.get(name)
    return this.#sql.rowVisibleTo.get(name, JSON.stringify(visibleTo.map(storedName)))
  }

  #cachedSession(session: string): CachedSession | undefined {
    const known = this.#cached.get(session)
    if (known !== undefined) return known
    const found: CachedSession | undefined = this.#sql.find.get(storedName(session))
    if (found !== undefined) this.#remember(session, found)
    return found
  }

  #remember(session: string, cached: CachedSession): void {
    if (this.#cached.size >= CACHED_MAX) this.#cached.clear()
    this.#cached.set(session, cached)
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
