/**
 * The connections: a bounded pool, and one more for the lease, so that a busy pool cannot
 * keep a node from proving that it lives. Every wait is bounded, and what fails because the way to
 * the database is lost is tried again for a while.
 */
import type { Pool, PoolConfig } from 'pg'
import type { Diagnose } from '../../core/diagnostics.ts'
import { HoldfastError } from '../../core/errors.ts'
import { closedError, unavailable } from '../failures.ts'
import { isUnprepared, storeError } from './failures.ts'
import { NOW, statementsFor, type NamedStatement, type StatementName } from './statements.ts'

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
  /** Called with connections that were lost. */
  readonly diagnose?: Diagnose
}

/** Our own, for our types are used without those of the driver. */
// oxlint-disable-next-line no-explicit-any -- a column's type is the caller's word
type AnyRow = Readonly<Record<string, any>>

/** What runs statements: the database, or one connection in a transaction. */
export interface Queryable {
  readonly schema: string
  query<Row extends AnyRow>(sql: string, values?: unknown[]): Promise<Row[]>
}

/** The rows of all pages of a statement, which `next` makes begin after the last row of a page. */
export async function* pagedRows<Row extends AnyRow>(
  session: Queryable,
  sql: string,
  start: unknown[],
  next: (last: Row) => unknown[],
): AsyncGenerator<Row> {
  for (let values: unknown[] | undefined = start; values !== undefined;) {
    const page: Row[] = await session.query<Row>(sql, values)
    yield* page
    const last = page.at(-1)
    values = last && next(last)
  }
}

const VERSION_MIN = 13

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
const SERVER_TIMEOUTS = {
  statement_timeout: LIMITS.statementMs,
  idle_in_transaction_session_timeout: LIMITS.statementMs,
}

export class Database implements Queryable {
  readonly schema: string
  readonly #statements: Readonly<Record<StatementName, NamedStatement>>
  readonly #pool: Pool
  readonly #leasePool: Pool
  readonly #rideOutMs: number
  readonly #reportLost: (error: Error) => void
  readonly #underWay = new Set<Promise<unknown>>()
  /** Until a pooler turns out to share connections on which our statements are not prepared. */
  #isPreparing = true
  /** Added to the monotonic clock; from this machine's clock until the database has answered. */
  #timeOffset = Date.now() - performance.now()
  #closing: Promise<void> | null = null
  #failure: HoldfastError | null = null

  private constructor(
    [pool, leasePool]: readonly [Pool, Pool],
    schema: string,
    { rideOutMs = LIMITS.rideOutMs, diagnose = () => undefined }: PostgresStoreOptions,
  ) {
    this.#pool = pool
    this.#leasePool = leasePool
    this.schema = schema
    this.#statements = statementsFor(schema)
    this.#rideOutMs = rideOutMs
    const message = 'a connection to the database was lost'
    this.#reportLost = ({ message: error }) => diagnose('store_disconnected', message, { error })
    // An idle connection that breaks is gone from the pool already.
    for (const one of [pool, leasePool]) one.on('error', this.#reportLost)
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
    const { config, schema, pool } = readOptions(options)
    // Loaded here, so that programs with another store do not load it.
    const { default: driver } = await import('pg')
    const types = new driver.TypeOverrides()
    // Our 64-bit numbers are positions and times: they fit into a JavaScript number.
    types.setTypeParser(driver.types.builtins.INT8, Number)
    const newPool = (max: number): Pool => new driver.Pool({ ...config, ...timeouts, types, max })
    const database = new Database([newPool(pool), newPool(1)], schema, options)
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
    const [found = {}] = await this.query(
      `SELECT current_setting('server_version_num') AS version, current_setting('fsync') AS fsync,
        current_setting('synchronous_commit') AS commit, ${NOW} AS now`,
    )
    this.setTime(found.now, askedAt)
    if (Number(found.version) < VERSION_MIN * 10_000) {
      throw unavailable(`PostgreSQL is older than ${VERSION_MIN} (${found.version})`)
    }
    if (found.fsync !== 'off' && found.commit !== 'off') return
    throw unavailable(
      'the database forgets what it has acknowledged: ' +
        `fsync is ${found.fsync}, synchronous_commit is ${found.commit}; both must not be off`,
    )
  }

  /**
   * The database's time: what it answered last, and what has passed since then on the monotonic
   * clock. So a node whose own clock is wrong, or is set meanwhile, has the time of the others.
   */
  now(): number {
    return Math.round(performance.now() + this.#timeOffset)
  }

  /** The database has answered `now` to a question of the moment `askedAt` (monotonic). */
  setTime(now: number, askedAt: number): void {
    // As if both ways had taken the same time.
    this.#timeOffset = now - (askedAt + performance.now()) / 2
  }

  query<Row extends AnyRow>(sql: string, values: unknown[] = []): Promise<Row[]> {
    return this.#run(this.#pool, sql, values, LIMITS.answerMs)
  }

  /** One of the store's own statements; if `leaseMs` limits it, on the lease's own connection. */
  run<Row extends AnyRow>(name: StatementName, values: unknown[] = [], leaseMs?: number) {
    const pool = leaseMs === undefined ? this.#pool : this.#leasePool
    return this.#run<Row>(pool, this.#statements[name], values, leaseMs ?? LIMITS.answerMs)
  }

  /** One that may be carried out twice: it is tried again while the database is away. */
  ask<Row extends AnyRow>(name: StatementName, values?: unknown[]): Promise<Row[]> {
    return this.rideOut(() => this.run<Row>(name, values))
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
    const isNamed = typeof sql !== 'string' && this.#isPreparing
    const text = typeof sql === 'string' ? sql : sql.text
    const query = { ...(isNamed ? sql : { text }), values, query_timeout: answerMs }
    // The pool drops a connection on which anything failed.
    const asked = pool.query<Row>(query)
    this.#underWay.add(asked)
    try {
      return (await asked).rows
    } catch (thrown) {
      if (isNamed && isUnprepared(thrown)) {
        this.#isPreparing = false
        return await this.#run(pool, text, values, answerMs)
      }
      const error = storeError(thrown)
      // Of a database that a newer version has changed nothing more is asked.
      if (error.code === 'store_newer') this.#failure ??= error
      throw error
    } finally {
      this.#underWay.delete(asked)
    }
  }

  /**
   * A connection of its own, for transactions. Each statement may take `answerMs`; nothing is tried
   * again. `release` closes it, and the server rolls back what was not committed.
   */
  async connect(answerMs: number = LIMITS.answerMs): Promise<Queryable & { release(): void }> {
    this.#assertOpen()
    const client = await this.#pool.connect().catch((thrown: unknown) => {
      throw storeError(thrown)
    })
    // The next query fails too if the connection breaks; unheard, it would end the process.
    client.on('error', () => undefined)
    const query = async <Row extends AnyRow>(text: string, values: unknown[] = []) => {
      // Without values several statements may stand in one text.
      const bounded = { text, values, query_timeout: answerMs }
      try {
        return (await client.query<Row>(bounded)).rows
      } catch (thrown) {
        throw storeError(thrown)
      }
    }
    return { schema: this.schema, query, release: () => client.release(true) }
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

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** The pool would drop queries that still wait for a connection. */
  async #close(): Promise<void> {
    await Promise.allSettled(this.#underWay)
    await Promise.all([this.#pool.end(), this.#leasePool.end()])
  }

  #assertOpen(): void {
    if (this.#closing !== null) throw closedError()
    if (this.#failure !== null) throw this.#failure
  }
}

function readOptions(options: PostgresStoreOptions) {
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
  const config = {
    connectionString: url.href,
    application_name: 'holdfast',
    connectionTimeoutMillis: LIMITS.connectMs,
    query_timeout: LIMITS.answerMs,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
  }
  return { config, schema: `"${schema}"`, pool }
}

/** Never repeats the text: there may be a password in it. */
function parseUrl(text: string): URL {
  if (/^postgres(ql)?:\/\/./.test(text) && URL.canParse(text)) return new URL(text)
  throw invalid('the store must be like postgres://USER:PASSWORD@HOST/DATABASE')
}

function invalid(message: string): HoldfastError {
  return new HoldfastError('invalid_field', message, { field: 'store' })
}
