/**
 * The connections: a bounded pool, and one more for the lease, so that no crowd in the pool can
 * keep a node from proving that it lives. Every wait is bounded, and what fails because the way to
 * the database is lost is tried again for a while.
 */
import type { Pool, PoolClient, PoolConfig, QueryConfig } from 'pg'
import type { Diagnose } from '../../core/diagnostics.ts'
import { HoldfastError } from '../../core/errors.ts'
import { isUnprepared, storeError } from './failures.ts'
import { DatabaseTime, NOW } from './time.ts'

export type PostgresStoreOptions = {
  /** `postgres://USER@HOST/DATABASE`; its query may say `schema` and `pool`, see below. */
  readonly url: string
  /** Where the tables are, made if need be (holdfast). */
  readonly schema?: string
  /** The most connections, besides the one for the lease (8). */
  readonly pool?: number
  /** How long what failed for want of a connection is tried again (5,000). */
  readonly rideOutMs?: number
  /** Where other nodes reach this one. */
  readonly advertise?: string
  /** Told of connections that were lost. */
  readonly diagnose?: Diagnose
}

/** Our own, for our types are used without those of the driver. */
// oxlint-disable-next-line no-explicit-any -- a column's type is the caller's word
type AnyRow = Readonly<Record<string, any>>

/** What runs statements: the database, or one connection in a transaction. */
export interface Queryable {
  query<Row extends AnyRow>(sql: string | NamedStatement, values?: unknown[]): Promise<Row[]>
}

/** A statement that each connection prepares once. */
export type NamedStatement = { readonly name: string; readonly text: string }

const VERSION_MIN = 130_000
const VERSION_MIN_TEXT = '13'

const LIMITS = {
  pool: 8,
  poolMax: 100,
  rideOutMs: 5_000,
  /** To make a connection, or to wait for one of the pool. */
  connectMs: 5_000,
  /** Of one statement: the server gives up first, then the driver. */
  statementMs: 10_000,
  answerMs: 12_000,
  /** Between two tries: doubled from the first to the second. */
  againMs: 25,
  againMsMax: 500,
} as const

/** The server gives up by itself, also if we are gone. */
const SERVER_TIMEOUTS: PoolConfig = {
  statement_timeout: LIMITS.statementMs,
  idle_in_transaction_session_timeout: LIMITS.statementMs,
}

export class Database implements Queryable {
  readonly schema: string
  readonly #pool: Pool
  readonly #leasePool: Pool
  readonly #rideOutMs: number
  readonly #reportLost: (error: Error) => void
  readonly #underWay = new Set<Promise<unknown>>()
  /** Until a pooler turns out to share connections on which our statements are not prepared. */
  #isPreparing = true
  readonly time = new DatabaseTime()
  #closing: Promise<void> | null = null
  #failure: HoldfastError | null = null

  private constructor(
    pools: readonly [Pool, Pool],
    schema: string,
    { rideOutMs = LIMITS.rideOutMs, diagnose = () => undefined }: PostgresStoreOptions,
  ) {
    this.#pool = pools[0]
    this.#leasePool = pools[1]
    this.schema = schema
    this.#rideOutMs = rideOutMs
    const message = 'a connection to the database was lost'
    this.#reportLost = ({ message: error }) => diagnose('store_disconnected', message, { error })
    // An idle connection that breaks is gone from the pool already.
    for (const pool of pools) pool.on('error', this.#reportLost)
  }

  /** Connects and checks that what is there can hold a durable store. */
  static async open(options: PostgresStoreOptions): Promise<Database> {
    try {
      return await Database.#open(options, SERVER_TIMEOUTS)
    } catch (thrown) {
      // PgBouncer refuses them unless configured otherwise. The driver's own timeouts are enough.
      if (!/unsupported startup parameter/.test(storeError(thrown).message)) throw thrown
      return Database.#open(options, {})
    }
  }

  static async #open(options: PostgresStoreOptions, timeouts: PoolConfig): Promise<Database> {
    const { config: plain, schema, pool } = readOptions(options)
    const config = { ...plain, ...timeouts }
    // Loaded here, so that programs with another store do not load it.
    const { default: driver } = await import('pg')
    const types = { getTypeParser: parserFor(driver.types.getTypeParser) }
    const newPool = (max: number): Pool => new driver.Pool({ ...config, types, max })
    const pools = [newPool(pool), newPool(1)] as const
    const database = new Database(pools, schema, options)
    try {
      await database.#check()
      return database
    } catch (thrown) {
      await database.close()
      throw thrown
    }
  }

  async #check(): Promise<void> {
    // The first question waits for a connection too: the time is asked for when there is one.
    await this.query('SELECT 1')
    const askedAt = performance.now()
    const [found] = await this.query<
      Record<'version' | 'fsync' | 'commit', string> & { now: number }
    >(
      `SELECT current_setting('server_version_num') AS version, current_setting('fsync') AS fsync,
        current_setting('synchronous_commit') AS commit, ${NOW} AS now`,
    )
    if (found === undefined) throw new HoldfastError('internal', 'the database returned no row')
    this.time.set(found.now, askedAt)
    if (Number(found.version) < VERSION_MIN) {
      const text = `PostgreSQL is older than ${VERSION_MIN_TEXT} (${found.version})`
      throw new HoldfastError('store_unavailable', text)
    }
    if (found.fsync !== 'off' && found.commit !== 'off') return
    throw new HoldfastError(
      'store_unavailable',
      'the database forgets what it has acknowledged: ' +
        `fsync is ${found.fsync}, synchronous_commit is ${found.commit}; both must not be off`,
    )
  }

  async query<Row extends AnyRow>(
    sql: string | NamedStatement,
    values: unknown[] = [],
  ): Promise<Row[]> {
    return this.#run(this.#pool, sql, values, LIMITS.answerMs)
  }

  /** On the lease's own connection, and given up after `answerMs`. */
  async queryLease<Row extends AnyRow>(
    sql: NamedStatement,
    values: unknown[],
    answerMs: number,
  ): Promise<Row[]> {
    return this.#run(this.#leasePool, sql, values, answerMs)
  }

  /**
   * Behind a pooler, a statement may not be where it was prepared. Then it was not carried out, and
   * nothing is prepared any more.
   */
  async #run<Row extends AnyRow>(
    pool: Pool,
    sql: string | NamedStatement,
    values: unknown[],
    answerMs: number,
  ): Promise<Row[]> {
    this.#assertOpen()
    const text = typeof sql === 'string' ? sql : sql.text
    const bounds = { values, query_timeout: answerMs }
    try {
      const named = typeof sql === 'string' || !this.#isPreparing ? { text } : sql
      return await this.#ask<Row>(pool, { ...named, ...bounds })
    } catch (thrown) {
      if (!isUnprepared(thrown)) throw this.#noted(thrown)
      this.#isPreparing = false
    }
    return this.#ask<Row>(pool, { text, ...bounds }).catch((thrown: unknown) => {
      throw this.#noted(thrown)
    })
  }

  /** Of a database that a newer version has changed nothing more is asked. */
  #noted(thrown: unknown): HoldfastError {
    const error = storeError(thrown)
    if (error.code === 'store_newer') this.#failure ??= error
    return error
  }

  /** The pool drops a connection on which anything failed. */
  async #ask<Row extends AnyRow>(pool: Pool, query: QueryConfig): Promise<Row[]> {
    const asked = pool.query<Row>(query)
    this.#underWay.add(asked)
    try {
      return (await asked).rows
    } finally {
      this.#underWay.delete(asked)
    }
  }

  /** All or nothing, each statement within `answerMs`. Not tried again. */
  async transaction(answerMs: number, work: (session: Queryable) => Promise<void>): Promise<void> {
    this.#assertOpen()
    let client: PoolClient | undefined
    try {
      client = await this.#pool.connect()
      // The next query fails too if the connection breaks; unheard, it would end the process.
      client.on('error', ignore)
      await client.query(`BEGIN; SET LOCAL statement_timeout = ${answerMs}`)
      await work(sessionOf(client, answerMs))
      await client.query('COMMIT')
      client.off('error', ignore)
      client.release()
    } catch (thrown) {
      // The server rolls back what its client left.
      client?.release(true)
      throw storeError(thrown)
    }
  }

  /** What `read` yields, all of it of one moment of the database. */
  async *atOneMoment<Item>(
    read: (session: Queryable) => AsyncIterable<Item>,
  ): AsyncGenerator<Item, void> {
    this.#assertOpen()
    let client: PoolClient | undefined
    let isBroken = true
    try {
      client = await this.#pool.connect()
      // The next query fails too if the connection breaks.
      client.on('error', ignore)
      await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
      yield* read(sessionOf(client, LIMITS.answerMs))
      await client.query('COMMIT')
      isBroken = false
    } catch (thrown) {
      throw storeError(thrown)
    } finally {
      client?.off('error', ignore)
      client?.release(isBroken)
    }
  }

  /**
   * Does `work` again as long as it fails for want of the database, and not too long.
   * `isAgain`: an earlier try failed, and it is unknown whether it was carried out.
   */
  async rideOut<Result>(work: (isAgain: boolean) => Promise<Result>): Promise<Result> {
    const until = performance.now() + this.#rideOutMs
    let pause: number = LIMITS.againMs
    for (let isAgain = false; ; isAgain = true) {
      try {
        return await work(isAgain)
      } catch (thrown) {
        const error = storeError(thrown)
        const isOver = performance.now() + pause > until || this.#closing !== null
        if (error.code !== 'store_unavailable' || isOver) throw error
        if (!isAgain) this.#reportLost(error)
      }
      await new Promise((resolve) => setTimeout(resolve, pause))
      pause = Math.min(2 * pause, LIMITS.againMsMax)
    }
  }

  /** Waits for queries under way, then closes all connections. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** The pool would drop queries that still wait for a connection. */
  async #close(): Promise<void> {
    await Promise.allSettled(this.#underWay)
    await Promise.all([this.#pool.end(), this.#leasePool.end()])
  }

  get isClosing(): boolean {
    return this.#closing !== null
  }

  #assertOpen(): void {
    if (this.#closing !== null) throw closedError()
    if (this.#failure !== null) throw this.#failure
  }
}

function ignore(): void {}

function closedError(): HoldfastError {
  return new HoldfastError('store_unavailable', 'the store is closed')
}

function sessionOf(client: PoolClient, answerMs: number): Queryable {
  return {
    query: async <Row extends AnyRow>(sql: string | NamedStatement, values: unknown[] = []) => {
      const query = typeof sql === 'string' ? { text: sql } : sql
      const bounded = { ...query, query_timeout: answerMs }
      // Without values several statements may stand in one text.
      return (await client.query<Row>(values.length === 0 ? bounded : { ...bounded, values })).rows
    },
  }
}

type ReadOptions = {
  readonly config: PoolConfig
  readonly schema: string
  readonly pool: number
}

function readOptions(options: PostgresStoreOptions): ReadOptions {
  const url = parseUrl(options.url)
  const schema = options.schema ?? url.searchParams.get('schema') ?? 'holdfast'
  const pool = options.pool ?? Number(url.searchParams.get('pool') ?? LIMITS.pool)
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) {
    throw invalid('schema must be of a-z, 0-9 and _, at most 63, and begin with no digit')
  }
  if (!Number.isInteger(pool) || pool < 1 || pool > LIMITS.poolMax) {
    throw invalid(`pool must be a whole number from 1 to ${LIMITS.poolMax}`)
  }
  url.searchParams.delete('schema')
  url.searchParams.delete('pool')
  return { config: configOf(url), schema: `"${schema}"`, pool }
}

/** Never repeats the text: there may be a password in it. */
function parseUrl(text: string): URL {
  const isOurs = /^postgres(ql)?:\/\/./.test(text)
  if (!isOurs || !URL.canParse(text)) {
    throw invalid('the store must be like postgres://USER:PASSWORD@HOST/DATABASE')
  }
  return new URL(text)
}

function configOf(url: URL): PoolConfig {
  return {
    connectionString: url.href,
    application_name: 'holdfast',
    connectionTimeoutMillis: LIMITS.connectMs,
    query_timeout: LIMITS.answerMs,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
  }
}

function invalid(message: string): HoldfastError {
  return new HoldfastError('invalid_field', message, { field: 'store' })
}

const INT8_OID = 20

/** Our 64-bit numbers are positions and times: they fit into a JavaScript number. */
function parserFor<Parser>(usual: Parser): Parser {
  const parser = (oid: number, format?: string): unknown =>
    oid === INT8_OID ? Number : (usual as (oid: number, format?: string) => unknown)(oid, format)
  return parser as Parser
}
