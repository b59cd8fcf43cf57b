/**
 * The reference store: what every other store must do, in the fewest lines. Nothing outlives the
 * process. Each method's body is synchronous, and that alone makes it one atomic step.
 */
import type { Spending } from '../core/budgets.ts'
import type { Clock } from '../core/clock.ts'
import {
  PAGE_CHARS,
  type Append,
  type AppendedAsks,
  type AppendedKeys,
  type AppendOutcome,
  type AskPage,
  type AskQuery,
  type AskRow,
  type AuditRecord,
  type Claim,
  type CopiedBlobs,
  type GivenBlob,
  type KeyedTurn,
  type KeyQuery,
  type ListPage,
  type ListQuery,
  type PutBlobs,
  type Reservation,
  type Reserved,
  type RestoredSession,
  type SessionRow,
  type Store,
  type StoredAuditRecord,
  type StoredEvent,
  type StoredQuota,
  type StoredWebhook,
} from '../core/store.ts'
import { closedError } from './failures.ts'
import { Leases } from './leases.ts'
import { changePage, changesGone, cursorAt, numberAbove, type ChangeRecord } from './pages.ts'
import { isListed, isVisibleTo, memoryPage } from './memory-lists.ts'
import { bytesOf, reservedBefore, restoredBytes } from './rows.ts'

type MemorySession = {
  readonly number: number
  row: SessionRow
  epoch: number
  owner: string | null
  pending: boolean
  expiresAt: number | null
  snapshot: StoredEvent | null
  events: StoredEvent[]
  /** Oldest first. */
  keys: readonly KeyedTurn[]
  readonly blobs: Map<string, Uint8Array>
  /** Those that no event names yet. */
  readonly loose: Set<string>
}

type MemoryAsk = Omit<AskRow, 'row'> & {
  readonly number: number
  readonly id: string
  readonly kind: string
  readonly session: MemorySession
}

/** At least so many changes are kept. */
const CHANGES_KEPT = 10_000

const NEW_STATUS = { status: 'idle', queuedTurns: 0, attached: 0 } as const
const NEW_ROW = { state: 'open', seq: 1, ...NEW_STATUS, shares: [] } as const

export class MemoryStore implements Store {
  readonly #sessions = new Map<string, MemorySession>()
  readonly #keys = new Map<string, string>()
  readonly #webhooks = new Map<string, StoredWebhook>()
  readonly #spending = new Map<string, Spending>()
  readonly #leases: Leases
  /** The newest changes, their positions without a gap. */
  readonly #changes: ChangeRecord<MemorySession>[] = []
  #position = 0
  /** In the order of their opening. */
  #asks: readonly MemoryAsk[] = []
  #asked = 0
  #audit: StoredAuditRecord[] = []
  #audited = 0
  #closed = false

  constructor({ clock }: { readonly clock?: Pick<Clock, 'monotonic'> } = {}) {
    this.#leases = new Leases(clock)
  }

  async reserve(reservation: Reservation): Promise<Reserved> {
    const existing = this.#find(reservation.id)?.row
    const holder = this.#keys.get(keyName(reservation))
    return reservedBefore(reservation, existing, holder) ?? this.#create(reservation)
  }

  /** Null: not all of them are there. */
  #copies({ from, digests }: CopiedBlobs): Map<string, Uint8Array> | null {
    const source = this.#find(from)?.blobs
    const copies = new Map<string, Uint8Array>()
    for (const digest of digests) {
      const data = source?.get(digest)
      if (data === undefined) return null
      copies.set(digest, data)
    }
    return copies
  }

  #create(reservation: Reservation): Reserved {
    const { id, principal, key, agent, internal, labels } = reservation
    const { node, at, expiresAt, body } = reservation
    const times = { createdAt: at, updatedAt: at }
    const blobs = reservation.blobs === undefined ? new Map() : this.#copies(reservation.blobs)
    if (blobs === null) return { type: 'gone', id: reservation.blobs?.from ?? '' }
    const bytes = bytesOf([body]) + lengthOf(blobs.values())
    const named = { id, principal, key, agent, internal, labels: { ...labels } }
    const session: MemorySession = {
      number: this.#sessions.size + 1,
      row: { ...named, ...NEW_ROW, bytes, ...times },
      epoch: 1,
      owner: node,
      pending: false,
      expiresAt,
      snapshot: null,
      events: [{ seq: 1, body }],
      keys: [],
      blobs,
      loose: new Set(),
    }
    this.#sessions.set(id, session)
    this.#note(session, 0)
    if (key !== null) this.#keys.set(keyName(reservation), id)
    return { type: 'created', id, epoch: 1 }
  }

  async claim(session: string, node: string): Promise<Claim> {
    const entry = this.#find(session)
    if (entry === undefined) return { type: 'unknown' }
    if (entry.row.state === 'erased') return { type: 'erased' }
    const { row, owner, snapshot } = entry
    const tail = entry.events.slice(snapshot?.seq ?? 0)
    const loaded = { type: 'claimed', row, snapshot: snapshot?.body ?? null, tail } as const
    if (row.state === 'closed') return { ...loaded, epoch: null }
    if (owner !== null && owner !== node && this.#leases.isAlive(owner)) {
      return { type: 'owned', node: owner }
    }
    const takenOver = owner !== null && owner !== node && this.#leases.hasLapsed(owner)
    entry.owner = node
    entry.epoch += 1
    this.#dropLoose(entry, [...entry.loose])
    return { ...loaded, epoch: entry.epoch, ...(takenOver ? { takenOver } : {}) }
  }

  async release(session: string, epoch: number): Promise<void> {
    const entry = this.#find(session)
    if (entry?.epoch === epoch && entry.row.state === 'open') entry.owner = null
  }

  async append(appends: readonly Append[]): Promise<readonly AppendOutcome[]> {
    return appends.map((append) => this.#append(append))
  }

  #append({ session, epoch, after, events, snapshot, at, ...flags }: Append): AppendOutcome {
    const entry = this.#find(session)
    if (entry === undefined || entry.row.state !== 'open') return 'stale'
    if (entry.epoch !== epoch || entry.row.seq !== after) return 'stale'
    const seq = after + events.length
    const state = flags.closed ? 'closed' : 'open'
    events.forEach((body, index) => entry.events.push({ seq: after + 1 + index, body }))
    const status = flags.closed ? 'closed' : (flags.status ?? entry.row.status)
    const attached = flags.closed ? 0 : (flags.attached ?? 0)
    const queuedTurns = flags.closed ? 0 : (flags.queuedTurns ?? 0)
    const { shares = entry.row.shares } = flags
    const bytes = entry.row.bytes + bytesOf(events)
    const listed = { state, status, queuedTurns, attached, shares } as const
    entry.row = { ...entry.row, seq, bytes, updatedAt: at, ...listed }
    if (snapshot !== null) entry.snapshot = { seq, body: snapshot }
    if (flags.keys !== undefined) entry.keys = keptKeys(entry.keys, flags.keys)
    if (flags.closed) entry.keys = []
    if (flags.asks !== undefined) this.#noteAsks(entry, flags.asks, at)
    for (const digest of flags.blobs ?? []) entry.loose.delete(digest)
    entry.pending = flags.pending && !flags.closed
    entry.expiresAt = flags.closed ? null : flags.expiresAt
    if (flags.closed) this.#keys.delete(keyName(entry.row))
    this.#note(entry, after)
    return 'appended'
  }

  #noteAsks(session: MemorySession, { opened, settled }: AppendedAsks, openedAt: number): void {
    const left = this.#asks.filter((ask) => ask.session !== session || !settled.includes(ask.id))
    const added = opened.map((ask) => ({ ...ask, number: (this.#asked += 1), session, openedAt }))
    this.#asks = [...left, ...added]
  }

  async listAsks({ limit, cursor, session, kind, ...query }: AskQuery): Promise<AskPage> {
    this.#mustBeOpen()
    const above = numberAbove(cursor)
    const found = this.#asks.filter(
      (ask) =>
        ask.number > above &&
        (session === undefined || ask.session.row.id === session) &&
        (kind === undefined || ask.kind === kind) &&
        isListed(ask.session, { ...query, limit, state: 'open' }),
    )
    const page = pageOf(found.slice(0, limit))
    const asks = page.map(({ session: { row }, body, openedAt }) => ({ row, body, openedAt }))
    const isMore = found.length > page.length
    return { asks, nextCursor: isMore ? cursorAt(page.at(-1)!.number) : null }
  }

  async findKeys(session: string, { key: wanted, since, limit }: KeyQuery) {
    const found = (this.#find(session)?.keys ?? []).filter(
      ({ key, at }) => (wanted === undefined || key === wanted) && at >= since,
    )
    return found.toReversed().slice(0, limit)
  }

  async read(session: string, after: number, limit: number, visibleTo?: readonly string[]) {
    const found = this.#find(session)
    const isVisible = visibleTo === undefined || (found && isVisibleTo(found.row, visibleTo))
    const entry = isVisible ? found : undefined
    const from = Math.max(0, after)
    const events = pageOf(entry?.events.slice(from, from + limit) ?? [])
    return { row: entry?.row ?? null, events }
  }

  async list(query: ListQuery): Promise<ListPage> {
    this.#mustBeOpen()
    return memoryPage([...this.#sessions.values()], query, (entry) => {
      return query.pendingFor === undefined || this.#isPendingFor(entry, query.pendingFor)
    })
  }

  #isPendingFor({ pending, owner }: MemorySession, node: string): boolean {
    return pending && (owner === null || owner === node || !this.#leases.isAlive(owner))
  }

  async beat(node: string, leaseMs: number) {
    this.#mustBeOpen()
    return this.#leases.beat(node, leaseMs)
  }

  async erase(session: string): Promise<boolean> {
    const entry = this.#find(session)
    if (entry?.row.state !== 'closed') return false
    const { isRestored: _, ...row } = entry.row
    entry.row = { ...row, state: 'erased', key: null, labels: {}, shares: [], bytes: 0 }
    entry.snapshot = null
    entry.events = []
    entry.keys = []
    this.#asks = this.#asks.filter((ask) => ask.session !== entry)
    entry.blobs.clear()
    entry.loose.clear()
    this.#note(entry, entry.row.seq)
    return true
  }

  async restore(given: RestoredSession): Promise<boolean> {
    const { events, blobs, at, ...named } = given
    const existing = this.#find(named.id)
    if (existing !== undefined && existing.row.state !== 'erased') return false
    const seq = events.length
    const state = { state: 'closed', status: 'closed', queuedTurns: 0, attached: 0 } as const
    const session: MemorySession = {
      number: existing?.number ?? this.#sessions.size + 1,
      row: {
        ...named,
        ...state,
        seq,
        bytes: restoredBytes(given),
        updatedAt: at,
        isRestored: true,
      },
      epoch: (existing?.epoch ?? 0) + 1,
      owner: null,
      pending: false,
      expiresAt: null,
      snapshot: null,
      events: events.map((body, index) => ({ seq: index + 1, body })),
      keys: [],
      blobs: new Map(blobs.map(({ digest, data }) => [digest, Uint8Array.from(data)])),
      loose: new Set(),
    }
    this.#sessions.set(named.id, session)
    this.#note(session, seq)
    return true
  }

  async usage(principal: string, quota: StoredQuota, most: number): Promise<number> {
    this.#mustBeOpen()
    const own = [...this.#sessions.values()].filter(({ row }) => row.principal === principal)
    if (quota === 'storedBytes') return own.reduce((sum, { row }) => sum + row.bytes, 0)
    const open = own.filter(({ row }) => row.state === 'open' && !row.internal)
    return Math.min(open.length, most)
  }

  async putBlobs(
    session: string,
    blobs: readonly GivenBlob[],
    bytesMax: number,
    isLoose = false,
  ): Promise<PutBlobs> {
    const entry = this.#find(session)
    if (entry?.row.state !== 'open') return { type: 'closed' }
    const fresh = blobs.filter(({ digest }) => !entry.blobs.has(digest))
    const missing = fresh.find(({ data }) => data === null)
    if (missing !== undefined) return { type: 'missing', digest: missing.digest }
    const added = lengthOf(fresh.map(({ data }) => data))
    const all = lengthOf(entry.blobs.values()) + added
    if (added > 0 && all > bytesMax) return { type: 'full' }
    // A copy: the caller may change its own.
    for (const { digest, data } of fresh) entry.blobs.set(digest, Uint8Array.from(data ?? []))
    if (isLoose) for (const { digest } of fresh) entry.loose.add(digest)
    else for (const { digest } of blobs) entry.loose.delete(digest)
    entry.row = { ...entry.row, bytes: entry.row.bytes + added }
    const bytes = blobs.map(({ digest }) => entry.blobs.get(digest)?.length ?? 0)
    return { type: 'stored', bytes, added }
  }

  async dropBlobs(session: string, epoch: number, digests: readonly string[]): Promise<number> {
    const entry = this.#find(session)
    return entry?.epoch === epoch ? this.#dropLoose(entry, digests) : 0
  }

  #dropLoose(entry: MemorySession, digests: readonly string[]): number {
    const { blobs, loose } = entry
    const dropped = digests.filter((digest) => loose.delete(digest))
    const bytes = lengthOf(dropped.map((digest) => blobs.get(digest) ?? null))
    for (const digest of dropped) blobs.delete(digest)
    entry.row = { ...entry.row, bytes: entry.row.bytes - bytes }
    return bytes
  }

  async readBlob(session: string, digest: string): Promise<Uint8Array | null> {
    return this.#find(session)?.blobs.get(digest) ?? null
  }

  #note(session: MemorySession, after: number): void {
    this.#position += 1
    this.#changes.push({ position: this.#position, session, after, seq: session.row.seq })
    // Now and then, for taking one off the front of an array moves all the others.
    if (this.#changes.length >= 2 * CHANGES_KEPT) this.#changes.splice(0, CHANGES_KEPT)
  }

  async changes(after: number | null, limit: number) {
    this.#mustBeOpen()
    if (after === null) return { changes: [], position: this.#position }
    const index = after - this.#position + this.#changes.length
    if (index < 0 || after > this.#position) throw changesGone(after)
    const records = this.#changes.slice(index, index + limit)
    return changePage(records, after, ({ session: { row } }) => row)
  }

  async addAudit(records: readonly AuditRecord[]): Promise<void> {
    this.#mustBeOpen()
    for (const record of records) this.#audit.push({ ...record, position: (this.#audited += 1) })
  }

  async readAudit(after: number, limit: number): Promise<readonly StoredAuditRecord[]> {
    this.#mustBeOpen()
    return this.#audit.filter(({ position }) => position > after).slice(0, limit)
  }

  async lastAudit(start: string): Promise<StoredAuditRecord | null> {
    this.#mustBeOpen()
    return this.#audit.findLast(({ body }) => body.startsWith(start)) ?? null
  }

  async pruneAudit({
    recordsAt,
    addressesAt,
  }: Parameters<Required<Store>['pruneAudit']>[0]): Promise<void> {
    this.#mustBeOpen()
    this.#audit = this.#audit
      .filter(({ at }) => at >= recordsAt)
      .map((record) => (record.at < addressesAt ? { ...record, address: null } : record))
  }

  /** One process has this store: what it held before is its own. */
  async holdWebhook(name: string, node: string): Promise<StoredWebhook> {
    this.#mustBeOpen()
    const held = { name, node, body: this.#webhooks.get(name)?.body ?? null }
    this.#webhooks.set(name, held)
    return held
  }

  async saveWebhook(name: string, node: string, body: string, ms: number): Promise<boolean> {
    this.#mustBeOpen()
    if (this.#webhooks.get(name)?.node !== node) return false
    this.#webhooks.set(name, { name, node: ms > 0 ? node : null, body })
    return true
  }

  async listWebhooks(): Promise<readonly StoredWebhook[]> {
    this.#mustBeOpen()
    return [...this.#webhooks.values()]
  }

  async spend(used: readonly Spending[]): Promise<readonly Spending[]> {
    this.#mustBeOpen()
    return used.map((one) => {
      const name = JSON.stringify([one.day, one.principal])
      const {
        tokensPerDay = 0,
        costUsdPerDay = 0,
        runningMsPerDay = 0,
      } = this.#spending.get(name) ?? {}
      const total = {
        ...one,
        tokensPerDay: tokensPerDay + one.tokensPerDay,
        costUsdPerDay: costUsdPerDay + one.costUsdPerDay,
        runningMsPerDay: runningMsPerDay + one.runningMsPerDay,
      }
      this.#spending.set(name, total)
      return total
    })
  }

  async close(): Promise<void> {
    this.#closed = true
  }

  #find(session: string): MemorySession | undefined {
    this.#mustBeOpen()
    return this.#sessions.get(session)
  }

  #mustBeOpen(): void {
    if (this.#closed) throw closedError()
  }
}

function lengthOf(blobs: Iterable<Uint8Array | null>): number {
  let bytes = 0
  for (const data of blobs) bytes += data?.length ?? 0
  return bytes
}

function keptKeys(before: readonly KeyedTurn[], { added, since, max }: AppendedKeys) {
  const isNew = new Set(added.map(({ key }) => key))
  const old = before.filter(({ key, at }) => at >= since && !isNew.has(key))
  return [...old, ...added].slice(max === 0 ? Infinity : -max)
}

/** The items that a page has room for, one at least. */
function pageOf<Item extends { readonly body: string }>(items: readonly Item[]): readonly Item[] {
  let chars = 0
  const full = items.findIndex(({ body }) => (chars += body.length) >= PAGE_CHARS)
  return full === -1 ? items : items.slice(0, full + 1)
}

/** Each principal has its own keys; null is no key. */
function keyName({ principal, key }: Pick<SessionRow, 'principal' | 'key'>): string {
  return key === null ? '' : JSON.stringify([principal, key])
}
