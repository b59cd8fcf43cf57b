/**
 * The distributed engine: any number of nodes on one PostgreSQL.
 *
 * I1, I4 and I5 are kept by the database alone: a unique index, one row per session that every
 * append must match, and an epoch that each claim raises. A node that was frozen or cut off can ask
 * whatever it likes. While the database is away each step is tried again for a while, and then
 * refused with `store_unavailable`.
 */
import type { Spending } from '../../core/budgets.ts'
import { createHmac } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { HoldfastError } from '../../core/errors.ts'
import type {
  AuditRecord,
  Claim,
  CopiedBlobs,
  HeldWebhook,
  KeyedTurn,
  ListPage,
  ListQuery,
  PutBlobs,
  Reservation,
  Store,
  StoredAuditRecord,
  StoredEvent,
  StoredWebhook,
} from '../../core/store.ts'
import { unavailable } from '../failures.ts'
import { listing, type ListDialect, type Statement } from '../lists.ts'
import { foldedKey, nameFrom, storedName } from '../names.ts'
import {
  askListText,
  askPage,
  changePage,
  changesGone,
  isSweep,
  listPage,
  sweepConditions,
  type ChangeRecord,
  type FoundAsk,
} from '../pages.ts'
import {
  createValues,
  reservedBefore,
  ROW_COLUMNS,
  sessionRow,
  spendingKeptFrom,
  type StoredRow,
} from '../rows.ts'
import { appendAll } from './appends.ts'
import { Database, type PostgresStoreOptions } from './database.ts'
import { checkCurrent, migrate, type Migration } from './migrations.ts'
import { Nodes, type NodeFacts } from './nodes.ts'
import { restoreSession } from './restore.ts'

export type { PostgresStoreOptions } from './database.ts'

/** How often a step starts over when what it found is gone meanwhile. */
const ATTEMPTS = 16

/** Sessions that one read of the change feed gives positions to. */
const FEED_MAX = 1_000
/** The newest records, which the feed keeps. */
const FEED_KEPT = 100_000

type OpenedAs = {
  readonly version?: string
  /** What the nodes of a cluster know each other by. Only a digest of it is stored. */
  readonly secret?: string
  /** For tools: a schema of another version is refused, not brought up to date. */
  readonly readOnly?: boolean
  /** Called before a schema of an older version is brought up to date. */
  readonly onMigration?: (migration: Migration) => void
}

/** Connects, and makes or brings up to date the tables if need be. */
export async function openPostgresStore(
  options: PostgresStoreOptions & OpenedAs,
): Promise<PostgresStore> {
  const database = await Database.open(options)
  try {
    const { advertise: url = null, version = '', secret, readOnly = false } = options
    if (readOnly) await checkCurrent(database)
    else await migrate(database, options.onMigration ?? (() => undefined))
    const digest = secret === undefined ? null : secretDigest(secret)
    const store = new PostgresStore(database, { url, version, secret: digest })
    await store.cluster.assertSameSecret()
    return store
  } catch (thrown) {
    await database.close()
    throw thrown
  }
}

export class PostgresStore implements Store {
  readonly cluster: Nodes
  readonly #database: Database
  /** The last claim of a session that is under way. */
  readonly #claims = new Map<string, Promise<void>>()

  constructor(database: Database, self: NodeFacts) {
    this.#database = database
    this.cluster = new Nodes(database, self)
  }

  reserve: Store['reserve'] = async (reservation) => {
    let isLost = false
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const isCreated = await this.#database.rideOut((isAgain) => {
        isLost ||= isAgain
        return this.#create(reservation)
      })
      if (isCreated) return { type: 'created', id: reservation.id, epoch: 1 }
      const found = await this.#findReserved(reservation, isLost)
      if (found !== undefined) return found
      const { blobs } = reservation
      if (blobs !== undefined && !(await this.#hasAll(blobs)))
        return { type: 'gone', id: blobs.from }
    }
    throw unavailable('the key was taken and freed again and again')
  }

  async #create(reservation: Reservation): Promise<boolean> {
    const { labels, body, blobs } = reservation
    const [names, values] = [Object.keys(labels), Object.values(labels)]
    const rows = await this.#database.run(blobs === undefined ? 'create' : 'createCopy', [
      ...createValues(reservation),
      body,
      names.map(storedName),
      values.map(storedName),
      crc32(body),
      storedName(reservation.principal),
      reservation.key === null ? null : foldedKey(reservation.key),
      ...(blobs === undefined ? [] : [storedName(blobs.from), blobs.digests]),
    ])
    return rows.length > 0
  }

  async #hasAll({ from, digests }: CopiedBlobs): Promise<boolean> {
    const values = [storedName(from), digests]
    const [row] = await this.#database.ask<{ count: number }>('countBlobs', values)
    return row?.count === digests.length
  }

  /** Undefined: what was in the way is gone. `isLost`: an earlier try may have created it. */
  async #findReserved(reservation: Reservation, isLost: boolean) {
    const { id, explicit, key } = reservation
    const principal = storedName(reservation.principal)
    const [storedId, storedKey] = [storedName(id), key === null ? null : storedName(key)]
    const values = [storedId, storedKey, principal]
    const rows = await this.#database.ask<FoundRow>('byIdOrKey', values)
    const existing = rows.find((row) => row.id === storedId)
    const holder =
      key === null
        ? undefined
        : rows.find(
            (row) => row.state === 'open' && row.key === storedKey && row.principal === principal,
          )
    // No other reservation has an id that was minted for this one.
    if (isLost && !explicit && existing?.owner_epoch === 1) {
      return { type: 'created', id, epoch: 1 } as const
    }
    const row = existing && sessionRow(existing)
    return reservedBefore(reservation, row, holder && nameFrom(holder.id))
  }

  /** Claims of one session are carried out in the order in which they were asked for. */
  claim: Store['claim'] = (session, node) => {
    const before = this.#claims.get(session) ?? Promise.resolve()
    const claiming = before.then(() => this.#claim(session, node))
    const forget = (): void => {
      if (this.#claims.get(session) === settled) this.#claims.delete(session)
    }
    // The caller gets the error; the next claim only waits for the end.
    const settled = claiming.then(forget, forget)
    this.#claims.set(session, settled)
    return claiming
  }

  async #claim(session: string, node: string): Promise<Claim> {
    const names = [storedName(session), storedName(node)]
    const [answer] = await this.#database.ask<Claiming>('claim', names)
    if (answer !== undefined && answer.holder !== null) {
      return { type: 'owned', node: nameFrom(answer.holder) }
    }
    const claim = await this.#load(session, answer?.granted ?? null)
    const isTakenOver = claim.type === 'claimed' && answer?.lapsed === true
    return isTakenOver ? { ...claim, takenOver: true } : claim
  }

  async #load(session: string, epoch: number | null): Promise<Claim> {
    const rows = await this.#database.ask<LoadedEvent>('load', [storedName(session)])
    const snapshot = rows.find(({ isSnapshot }) => isSnapshot)
    const { stored, events } = splitRow(rows.filter(({ isSnapshot }) => !isSnapshot))
    if (stored === null) return { type: 'unknown' }
    if (stored.state === 'erased') return { type: 'erased' }
    assertNoGap(stored, snapshot?.seq ?? 0, events, stored.seq)
    const row = sessionRow(stored)
    return { type: 'claimed', row, epoch, snapshot: snapshot?.body ?? null, tail: events }
  }

  release: Store['release'] = async (session, epoch) => {
    await this.#database.ask('release', [storedName(session), epoch])
  }

  append: Store['append'] = (appends) => appendAll(this.#database, appends)

  read: Store['read'] = async (session, after, limit, visibleTo) => {
    const from = Math.max(0, after)
    const values = [storedName(session), from, limit]
    const rows = await (visibleTo === undefined
      ? this.#database.ask<StoredEvent>('read', values)
      : this.#database.ask<StoredEvent>('readVisibleTo', [...values, visibleTo.map(storedName)]))
    const { stored, events } = splitRow(rows)
    if (stored === null) return { row: null, events: [] }
    if (stored.state !== 'erased') {
      assertNoGap(stored, from, events, Math.min(stored.seq, from + Math.min(limit, 1)))
    }
    return { row: sessionRow(stored), events }
  }

  findKeys: Store['findKeys'] = async (session, { key, since, limit }) => {
    const name = storedName(session)
    const rows = await (key === undefined
      ? this.#database.ask<KeyedTurn>('findAllKeys', [name, since, limit])
      : this.#database.ask<KeyedTurn>('findKey', [name, storedName(key), since]))
    return rows.map((row) => ({ ...row, key: nameFrom(row.key) }))
  }

  list: Store['list'] = async (query) => {
    if (isSweep(query)) return this.#sweep(query)
    // A list by activity shows what has changed up to now.
    if (query.sort === 'activity') await this.#readFeed()
    const pages = listing(query, listDialect(this.#database.schema))
    let step = pages.next()
    while (step.done !== true) step = pages.next(await this.#read(step.value))
    return step.value
  }

  #read({ text, values }: Statement): Promise<StoredRow[]> {
    return this.#database.rideOut(() => this.#database.query<StoredRow>(text, [...values]))
  }

  /** What sweeps look for is in small indexes of its own. */
  async #sweep(query: ListQuery): Promise<ListPage> {
    const { schema } = this.#database
    const values: unknown[] = []
    const add = (value: string | number, type: string): string => `$${values.push(value)}::${type}`
    const where = sweepConditions(query, {
      add,
      isPendingFor: (node) =>
        `flagged AND pending AND (owner = ${add(storedName(node), 'text')} OR NOT EXISTS (
          SELECT FROM ${schema}.nodes WHERE name = owner AND lease_ends > clock_timestamp()
        ))`,
    })
    const text = `SELECT ${ROW_COLUMNS} FROM ${schema}.sessions WHERE ${where}
      ORDER BY number DESC LIMIT ${add(query.limit + 1, 'bigint')}`
    return listPage(await this.#read({ text, values }), query.limit, sessionRow)
  }

  listAsks: Store['listAsks'] = async (query) => {
    const values: unknown[] = []
    const text = askListText(query, {
      schema: `${this.#database.schema}.`,
      isPublic: 'NOT internal',
      add: (value, type) => `$${values.push(value)}::${type}`,
    })
    const found = await this.#database.rideOut(() => this.#database.query<FoundAsk>(text, values))
    return askPage(found, query.limit)
  }

  usage: Store['usage'] = async (principal, quota, most) => {
    const name = storedName(principal)
    const [row] = await (quota === 'storedBytes'
      ? this.#database.ask<{ count: number }>('bytesOf', [name])
      : this.#database.ask<{ count: number }>('openOf', [name, most]))
    return row?.count ?? 0
  }

  putBlobs: Store['putBlobs'] = async (session, blobs, bytesMax, isLoose = false) => {
    const digests = blobs.map(({ digest }) => digest)
    const contents = blobs.map(({ data }) => (data === null ? null : Buffer.from(data)))
    const values = [storedName(session), digests, contents, bytesMax, isLoose]
    const [put] = await this.#database.ask<PutRow>('putBlobs', values)
    const { outcome: type = 'closed', missing, sizes, added = 0 } = put ?? {}
    if (type === 'stored') return { type, bytes: sizes ?? [], added }
    return type === 'missing' ? { type, digest: missing ?? '' } : { type }
  }

  dropBlobs: Store['dropBlobs'] = async (session, epoch, digests) => {
    const values = [storedName(session), epoch, digests]
    const [row] = await this.#database.ask<{ freed: number }>('dropBlobs', values)
    return row?.freed ?? 0
  }

  readBlob: Store['readBlob'] = async (session, digest) => {
    const values = [storedName(session), digest]
    const [row] = await this.#database.ask<{ readonly data: Buffer }>('readBlob', values)
    return row?.data ?? null
  }

  beat: Store['beat'] = (node, leaseMs) => this.cluster.beat(node, leaseMs)

  erase: Store['erase'] = (session) =>
    this.#database.rideOut(async (isAgain) => {
      const erased = await this.#database.run('erase', [storedName(session)])
      // The answer that it was erased may have been lost.
      const isLost = isAgain && erased.length === 0
      return isLost ? (await this.read(session, 0, 0)).row?.state === 'erased' : erased.length > 0
    })

  restore: Required<Store>['restore'] = (session) => restoreSession(this.#database, session)

  /**
   * An append only flags its session. Reading the feed first gives positions to the flagged
   * sessions, one reader at a time, so that positions become visible in their order. See
   * `feed_changes` in `schema.ts`.
   */
  changes: Store['changes'] = async (after, limit) => {
    const last = await this.#readFeed()
    if (after === null) return { changes: [], position: last }
    const found = await this.#database.ask<FoundChange>('changes', [after, limit])
    // Positions have no gap: if the next one is missing, it was dropped, or was never there.
    const isThere = found.length === 0 ? after === last : found[0]?.position === after + 1
    if (!isThere && limit > 0) throw changesGone(after)
    return changePage(found, after, ({ row }) => sessionRow(row))
  }

  async #readFeed(): Promise<number> {
    const feeding = [FEED_MAX, FEED_KEPT]
    const [end] = await this.#database.ask<{ last: number }>('feedChanges', feeding)
    return end?.last ?? 0
  }

  addAudit = async (records: readonly AuditRecord[]): Promise<void> => {
    await this.#database.run('addAudit', [
      records.map(({ at }) => at),
      records.map(({ address }) => address),
      records.map(({ body }) => body),
    ])
  }

  readAudit = (after: number, limit: number): Promise<readonly StoredAuditRecord[]> =>
    this.#database.ask<StoredAuditRecord>('readAudit', [after, limit])

  lastAudit = async (start: string): Promise<StoredAuditRecord | null> => {
    const [found] = await this.#database.ask<StoredAuditRecord>('lastAudit', [start])
    return found ?? null
  }

  pruneAudit: Required<Store>['pruneAudit'] = async ({ recordsAt, addressesAt }) => {
    await this.#database.ask('pruneAudit', [recordsAt, addressesAt])
  }

  holdWebhook: Required<Store>['holdWebhook'] = async (name, node, ms) => {
    const values = [name, storedName(node), ms]
    const [held] = await this.#database.run<HeldWebhook>('holdWebhook', values)
    return held ?? null
  }

  saveWebhook: Required<Store>['saveWebhook'] = async (name, node, body, ms) =>
    (await this.#database.run('saveWebhook', [name, storedName(node), body, ms])).length > 0

  listWebhooks: Required<Store>['listWebhooks'] = async () => {
    const rows = await this.#database.ask<StoredWebhook>('listWebhooks')
    return rows.map((row) => ({ ...row, node: row.node === null ? null : nameFrom(row.node) }))
  }

  spend: Required<Store>['spend'] = async (used) => {
    const names = ['day', 'principal', 'tokensPerDay', 'costUsdPerDay', 'runningMsPerDay'] as const
    const columns = names.map((name) => used.map((one) => one[name]))
    const rows = await this.#database.run<Spending>('spend', [...columns, spendingKeptFrom(used)])
    return used.map(({ day, principal }) => {
      const total = rows.find((row) => row.day === day && row.principal === principal)
      if (total !== undefined) return total
      throw unavailable('another version has changed the tables')
    })
  }

  close: Store['close'] = () => this.#database.close()
}

function listDialect(name: string): ListDialect {
  return {
    schema: `${name}.`,
    isPublic: 'NOT internal',
    isPending: 'flagged AND pending',
    isFailed: 'failed AND NOT internal',
    by: () => `${name}.sessions`,
    // OFFSET keeps it a look-up: joined with all sessions, it could read all of them.
    lookUp: (columns, found) => `SELECT ${columns} sessions.* FROM (${found}) AS found
      CROSS JOIN LATERAL (
        SELECT * FROM ${name}.sessions AS one WHERE one.number = found.number OFFSET 0
      ) AS sessions`,
    placeholder: (place, type) => `$${place}::${type}`,
  }
}

type PutRow = {
  readonly outcome: PutBlobs['type']
  readonly missing: string | null
  readonly sizes: readonly number[] | null
  readonly added: number
}
type FoundRow = StoredRow & { readonly owner_epoch: number }
type LoadedEvent = StoredEvent & { readonly isSnapshot: boolean }
type FoundChange = ChangeRecord<number> & { readonly row: StoredRow }

function secretDigest(secret: string): string {
  return createHmac('sha256', secret).update('holdfast cluster secret').digest('hex')
}

type Claiming = {
  /** Whose it is, unless it was granted. */
  readonly holder: string | null
  readonly granted: number | null
  /** It was another node's, whose lease had ended. */
  readonly lapsed: boolean | null
}

/** The row travels as event 0. */
function splitRow(rows: readonly StoredEvent[]) {
  const row = rows.find(({ seq }) => seq === 0)
  if (row === undefined) return { stored: null, events: [] }
  const events = rows.filter(({ seq }) => seq > 0).map(({ seq, body }) => ({ seq, body }))
  return { stored: JSON.parse(row.body) as StoredRow, events }
}

/** I4: a gap is damage, never an answer. `until`: the least that the log must reach. */
function assertNoGap(
  { id }: StoredRow,
  after: number,
  events: readonly StoredEvent[],
  until: number,
): void {
  const isWhole = events.every(({ seq }, index) => seq === after + index + 1)
  if (isWhole && after + events.length >= until) return
  throw new HoldfastError('store_corrupt', `the log of session ${id} has a gap after ${after}`)
}
