/** What PostgreSQL's store promises beyond the contract: its schema, and a database that goes away. */
import { once } from 'node:events'
import { crc32 } from 'node:zlib'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { openHoldfast, type Limits } from 'holdfast'
import { openPostgresStore, type PostgresStore } from 'holdfast/postgres'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { LIMITS } from '../../src/core/limits.ts'
import type { Append, Reservation } from '../../src/core/store.ts'
import { auditPostgres } from '../../src/stores/postgres/audit.ts'
import { until } from '../support/gate.ts'
import { loadDump, openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'

let database: TestDatabase
let url: string
let opened: { close(): Promise<void> }[]

beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

beforeEach(() => {
  url = database.freshUrl()
  opened = []
})
afterEach(async () => {
  await Promise.all(opened.map((one) => one.close()))
})

type Options = Partial<Parameters<typeof openPostgresStore>[0]>

async function open(options: Options = {}): Promise<PostgresStore> {
  const store = await openPostgresStore({ url, ...options })
  opened.push(store)
  return store
}

function reservation(id: string, changes: Partial<Reservation> = {}): Reservation {
  const plain = {
    principal: 'default',
    explicit: false,
    key: null,
    agent: 'echo',
    internal: false,
    labels: {},
  }
  return { ...plain, id, node: 'node-a', at: 1, expiresAt: null, body: '{"seq":1}', ...changes }
}

function append(session: string, after: number, text = 'hello'): Append {
  const events = [JSON.stringify({ seq: after + 1, text })]
  const flags = { snapshot: null, closed: false, pending: false, expiresAt: null }
  return { session, epoch: 1, after, events, at: 2, ...flags }
}

describe('opening', () => {
  test('makes the schema once, however many nodes start at once', async () => {
    const stores = await Promise.all(Array.from({ length: 5 }, () => open({ pool: 2 })))
    await stores[0]!.reserve(reservation('session', { key: 'alice' }))
    for (const store of stores) {
      const found = await store.reserve(reservation('other', { key: 'alice' }))
      expect(found).toEqual({ type: 'found', id: 'session' })
    }
    const steps = await database.query(`SELECT number FROM ${schemaOf(url)}.migrations`)
    expect(steps.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  })

  test('finds the schema that another has made while it waited for the lock', async () => {
    const holder = new pg.Client(url)
    await holder.connect()
    await holder.query('BEGIN')
    await holder.query('SELECT pg_advisory_xact_lock(7420001)')
    const opening = [open(), open()]
    const waiting = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`
    await until(async () => (await database.query(waiting)).length >= 2)
    await holder.query('COMMIT')
    await holder.end()
    for (const store of await Promise.all(opening)) {
      expect((await store.list({ limit: 1 })).sessions).toEqual([])
    }
  })

  test('waits for who migrates longer than for any other statement', async () => {
    const other = new pg.Client(url)
    await other.connect()
    await other.query('SELECT pg_advisory_lock(7420001)')
    const impatient = new URL(url)
    impatient.searchParams.set('statement_timeout', '200')
    impatient.searchParams.set('query_timeout', '300')
    const opening = open({ url: impatient.href })
    opening.catch(() => undefined)
    await other.query('SELECT pg_sleep(1)')
    await other.end()
    expect((await opening).cluster.now()).toBeGreaterThan(0)
  })

  test('waits for its first beat longer than a short lease lasts: nothing hangs on it', async () => {
    const store = await open()
    const other = new pg.Client(url)
    await other.connect()
    await other.query(`BEGIN; LOCK TABLE ${schemaOf(url)}.nodes`)
    const beaten = store.beat('node-a', 1_000)
    beaten.catch(() => undefined)
    await other.query('SELECT pg_sleep(1)')
    await other.end()
    await beaten
    expect((await store.cluster.nodes()).map(({ name }) => name)).toEqual(['node-a'])
  })

  test('refuses a schema of a newer Holdfast, and one whose steps differ', async () => {
    await (await open()).close()
    await database.query(`UPDATE ${schemaOf(url)}.migrations SET checksum = 'changed'`)
    await expect(openPostgresStore({ url })).rejects.toMatchObject({ code: 'store_unavailable' })
    await database.query(`INSERT INTO ${schemaOf(url)}.migrations VALUES (99, 'unknown', now())`)
    await expect(openPostgresStore({ url })).rejects.toMatchObject({
      code: 'store_newer',
      message: expect.stringContaining('newer Holdfast') as string,
    })
  })

  test('refuses a position whose changes were dropped, and goes on from those that are kept', async () => {
    const store = await open()
    const session = 'session'
    await store.reserve(reservation(session))
    const positions: number[] = []
    for (let after = 1; after < 4; after += 1) {
      positions.push((await store.changes(null, 0)).position)
      await store.append([append(session, after)])
    }
    await store.changes(null, 0)
    await database.query(`DELETE FROM ${schemaOf(url)}.changes WHERE position <= ${positions[1]}`)
    await expect(store.changes(positions[0]!, 9)).rejects.toMatchObject({ code: 'changes_gone' })
    const { changes } = await store.changes(positions[1]!, 9)
    expect(changes).toMatchObject([{ after: 2, seq: 4 }])
  })

  test('makes the same schema anew as by the steps of an older version', async () => {
    await (await open()).close()
    const older = await loadDump(database, '0.1.0')
    await (await openPostgresStore({ url: older })).close()
    expect(await catalogOf(older)).toEqual(await catalogOf(url))
  })

  /** Columns, indexes and functions, without the name of the schema. */
  async function catalogOf(of: string): Promise<string> {
    const schema = schemaOf(of)
    const rows = await database.query(`
      SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' ||
          coalesce(column_default, '') AS line
        FROM information_schema.columns WHERE table_schema = '${schema}'
      UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = '${schema}'
      UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = '${schema}'::regnamespace
      ORDER BY line`)
    return rows.map(({ line }) => (line as string).replaceAll(schema, 'SCHEMA')).join('\n')
  }

  test('tells a node whose secret is not that of a living node', async () => {
    const secret = 'a secret of the cluster, long enough'
    const store = await open({ secret, advertise: 'http://one' })
    await store.beat('node-a', 60_000)
    const other = open({ secret: `${secret}!` })
    await expect(other).rejects.toThrow('not that of node http://one')
    await open({ secret })
    await open()
    await store.beat('node-a', 0)
    await open({ secret: `${secret}!` })
  })

  test('refuses a schema of another program, and leaves it alone', async () => {
    await database.query(`CREATE SCHEMA ${schemaOf(url)} CREATE TABLE bookmarks (url text)`)
    await expect(openPostgresStore({ url })).rejects.toMatchObject({
      message: expect.stringContaining('another program') as string,
    })
    const tables = `SELECT tablename FROM pg_tables WHERE schemaname = '${schemaOf(url)}'`
    expect(await database.query(tables)).toEqual([{ tablename: 'bookmarks' }])
  })

  test('refuses a database that forgets what it acknowledged', async () => {
    const forgetful = new URL(url)
    forgetful.searchParams.set('options', '-c synchronous_commit=off')
    await expect(openPostgresStore({ url: forgetful.href })).rejects.toMatchObject({
      message: expect.stringContaining('synchronous_commit is off') as string,
    })
  })

  test('runs under a role that may only read and write rows', async ({ skip }) => {
    const own = 'SELECT rolcreaterole OR rolsuper AS may FROM pg_roles WHERE rolname = current_user'
    const [{ may }] = await database.query(own)
    skip(may !== true, 'who DATABASE_URL names may make no roles')
    await (await open()).close()
    const schema = schemaOf(url)
    const role = `node_${schema}`
    await database.query(`
      CREATE ROLE ${role} LOGIN PASSWORD 'secret';
      GRANT USAGE ON SCHEMA ${schema} TO ${role};
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role};
      REVOKE INSERT, UPDATE, DELETE ON ${schema}.migrations FROM ${role};`)
    try {
      const asRole = new URL(url)
      asRole.username = role
      asRole.password = 'secret'
      const store = await open({ url: asRole.href })
      await store.beat('node-a', 60_000)
      await store.reserve(reservation('session', { labels: { team: 'blue' } }))
      expect(await store.append([{ ...append('session', 1), snapshot: '{}' }])).toEqual([
        'appended',
      ])
      expect(await store.claim('session', 'node-a')).toMatchObject({ epoch: 2 })
      await store.append([{ ...append('session', 2), epoch: 2, closed: true }])
      expect(await store.erase('session')).toBe(true)
      await store.close()
    } finally {
      // Who made a role may not act for it, on newer versions, unless it says so.
      await database.query(`
        REVOKE ALL ON ALL TABLES IN SCHEMA ${schema} FROM ${role};
        REVOKE ALL ON SCHEMA ${schema} FROM ${role};
        DROP ROLE ${role}`)
    }
  })

  test('says what is wrong with a URL without repeating its password', async () => {
    const misnamed = new URL(url)
    misnamed.password = 's3cret'
    misnamed.searchParams.set('schema', 'no good')
    const wrong = [
      'postgres://alice:s3cret@',
      misnamed.href,
      'postgres://alice:s3cret@127.0.0.1:1/none',
    ]
    for (const one of wrong) {
      const error = await openPostgresStore({ url: one, rideOutMs: 0 }).then(
        () => null,
        (thrown: Error & { code: string }) => thrown,
      )
      expect(error?.code).toMatch(/^(store_unavailable|invalid_field)$/)
      expect(JSON.stringify([error, error?.message])).not.toContain('s3cret')
    }
  })
})

describe('limits without end', () => {
  test.each([Infinity, 1e300])('are numbers that the database can hold: %d', async (limit) => {
    const names = Object.keys(LIMITS) as (keyof Limits)[]
    const limits = Object.fromEntries(names.map((name) => [name, limit])) as Limits
    const turns: string[] = []
    // The second one finds the key in the store.
    for (const _start of [1, 2]) {
      const store = await open()
      const sweeps: Promise<unknown>[] = []
      const list = store.list.bind(store)
      store.list = (query) => {
        const listing = list(query)
        if (query.closedBefore !== undefined) sweeps.push(listing)
        return listing
      }
      const holdfast = await openHoldfast({ store, limits: { ...limits, sweepMs: 1 } })
      const turn = holdfast.turn({ key: 'k' }, 'hello', { idempotencyKey: 'once' })
      turns.push((await turn).id)
      await (await holdfast.resolve()).close()
      await until(() => sweeps.length > 0)
      await Promise.all(sweeps)
      await holdfast.close()
    }
    expect(turns[1]).toBe(turns[0])
  })
})

describe('connections', () => {
  test('are never more than the pool and one for the lease', async () => {
    const store = await open({ pool: 3 })
    const counted: number[] = []
    const reads = Array.from({ length: 200 }, () => store.read('nobody', 0, 1))
    await store.beat('node-a', 60_000)
    const [{ count }] = await database.query(
      // Only those of this store: others may test on the same database.
      `SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE application_name = 'holdfast' AND query LIKE '%${schemaOf(url)}%'`,
    )
    counted.push(count as number)
    await Promise.all(reads)
    expect(Math.max(...counted)).toBeLessThanOrEqual(4)
  })
})

describe('a group', () => {
  test('lets an append that fails by its own fault harm no other group', async () => {
    const store = await open()
    await store.reserve(reservation('one'))
    await store.reserve(reservation('two'))
    const wrong = { ...append('two', 1), at: 'soon' as unknown as number }
    await expect(store.append([append('one', 1), wrong])).rejects.toMatchObject({
      code: 'internal',
    })
    expect((await store.read('one', 0, 9)).row?.seq).toBe(2)
    expect((await store.read('two', 0, 9)).row?.seq).toBe(1)
  })

  test('is looked up by its ids, also by plans that were made when the table was small', async () => {
    const store = await open({ pool: 1 })
    const ids = Array.from({ length: 300 }, (_, n) => `session-${n}`)
    await Promise.all(ids.map((id) => store.reserve(reservation(id))))
    const groups = 12
    for (let n = 1; n <= groups; n += 1) await store.append(ids.map((id) => append(id, n)))
    // A server tells what it counted when the connection has ended, and a moment later.
    await store.close()
    const counts = `SELECT n_tup_upd::int AS updated, seq_tup_read::int AS swept, (
        SELECT sum(idx_tup_read)::int FROM pg_stat_user_indexes AS indexes
          WHERE indexes.relid = tables.relid AND indexrelname <> 'sessions_id_key'
      ) AS "readElsewhere"
      FROM pg_stat_user_tables AS tables
      WHERE schemaname = '${schemaOf(url)}' AND relname = 'sessions'`
    await expect
      .poll(async () => database.query(counts), { timeout: 10_000 })
      .toEqual([{ updated: groups * ids.length, swept: 0, readElsewhere: 0 }])
  })

  test('refuses a body that is not JSON instead of taking it for two', async () => {
    const store = await open()
    await store.reserve(reservation('one'))
    await store.reserve(reservation('two'))
    const wrong = { ...append('one', 1), events: ['{"seq":2}\u0001{"seq":3}'] }
    await expect(store.append([wrong, append('two', 1)])).rejects.toMatchObject({
      code: 'internal',
    })
    expect((await store.read('one', 0, 9)).row?.seq).toBe(1)
    expect((await store.read('two', 0, 9)).events).toHaveLength(2)
  })

  test('is judged by the row as it is once locked, not as it was when asked', async () => {
    const store = await open()
    for (const id of ['one', 'two']) await store.reserve(reservation(id))
    const batches = Array.from({ length: 20 }, (_, n) =>
      store.append((n % 2 === 0 ? ['one', 'two'] : ['two', 'one']).map((id) => append(id, 1))),
    )
    const outcomes = (await Promise.all(batches)).flat()
    expect(outcomes.filter((outcome) => outcome === 'appended')).toHaveLength(2)
    for (const id of ['one', 'two']) {
      expect((await store.read(id, 0, 9)).events.map(({ seq }) => seq)).toEqual([1, 2])
    }
  })
})

describe('erasing', () => {
  test('leaves no row of the log, its snapshot and its labels behind', async () => {
    const store = await open()
    await store.reserve(reservation('session', { labels: { team: 'blue' } }))
    await store.append([{ ...append('session', 1), snapshot: '{}', closed: true }])
    expect(await store.erase('session')).toBe(true)
    for (const table of ['events', 'snapshots', 'labels']) {
      expect(await database.query(`SELECT * FROM ${schemaOf(url)}.${table}`)).toEqual([])
    }
  })
})

describe('a check of all logs', () => {
  test('reads each in pages and as of one moment, whatever is appended meanwhile', async () => {
    const store = await open()
    for (const id of ['long', 'next']) await store.reserve(reservation(id))
    const bodies = Array.from({ length: 1_200 }, (_, n) =>
      JSON.stringify({ seq: n + 2, text: 'hi' }),
    )
    await store.append([{ ...append('long', 1), events: bodies, snapshot: '{"at":1201}' }])
    const large = 'x'.repeat(700_000)
    for (const seq of [1_201, 1_202]) await store.append([append('long', seq, large)])
    const found: unknown[] = []
    for await (const { row, events, snapshot } of auditPostgres({ url })) {
      let seq = 0
      for await (const { body, checksum } of events) {
        seq += 1
        expect([JSON.parse(body).seq, checksum]).toEqual([seq, crc32(body)])
        if (row.id === 'long' && seq === 1) await store.append([append('long', 1_203)])
      }
      found.push([row.id, row.seq, seq, snapshot?.seq ?? null])
    }
    expect(found).toEqual([
      ['long', 1_203, 1_203, 1_201],
      ['next', 1, 1, null],
    ])
  })
})

describe('a lost answer', () => {
  test('to an append is found out: it happened, once', async () => {
    const way = await LossyWay.to(url)
    const store = await open({ url: way.url, pool: 1 })
    await store.reserve(reservation('one'))
    await store.reserve(reservation('two'))
    await database.query(`UPDATE ${schemaOf(url)}.sessions SET owner_epoch = 9 WHERE id = 'two'`)
    way.loseNextAnswer()
    expect(await store.append([append('one', 1), append('two', 1)])).toEqual(['appended', 'stale'])
    expect(way.lost).toBe(1)
    expect((await store.read('one', 0, 9)).row?.seq).toBe(2)
    expect((await store.read('two', 0, 9)).row?.seq).toBe(1)
    expect(await store.append([append('one', 1)])).toEqual(['stale'])
  })

  test('to a reservation is found out: the session is there, and is new', async () => {
    const way = await LossyWay.to(url)
    const store = await open({ url: way.url, pool: 1 })
    way.loseNextAnswer()
    const reserved = await store.reserve(reservation('session', { key: 'alice' }))
    expect(reserved).toEqual({ type: 'created', id: 'session', epoch: 1 })
    expect(way.lost).toBe(1)
    expect((await store.list({ limit: 9 })).sessions).toHaveLength(1)
  })

  test('to an erasure is found out', async () => {
    const way = await LossyWay.to(url)
    const store = await open({ url: way.url, pool: 1 })
    await store.reserve(reservation('session'))
    await store.append([{ ...append('session', 1), closed: true }])
    way.loseNextAnswer()
    expect(await store.erase('session')).toBe(true)
    expect(way.lost).toBe(1)
  })
})

describe('a database that goes away', () => {
  test.runIf(process.env['DATABASE_URL'] === undefined)(
    'is ridden out when it comes back soon, and nothing acknowledged is lost',
    async () => {
      const told: string[] = []
      const diagnose = (code: string): void => void told.push(code)
      const store = await open({ rideOutMs: 20_000, diagnose })
      await store.reserve(reservation('session'))
      const state = { on: true }
      const writing = writeWhile(store, state)
      for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
        await database.server!.stop(signal)
        await database.server!.up()
        await store.read('session', 0, 0)
      }
      state.on = false
      const acknowledged = await writing
      const { row, events } = await store.read('session', 0, 1e6)
      expect(row?.seq).toBe(acknowledged)
      expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
      expect(told).toContain('store_disconnected')
    },
  )

  test.runIf(process.env['DATABASE_URL'] === undefined)(
    'is told as such when it stays away, and is used again when it is back',
    async () => {
      const store = await open({ rideOutMs: 100 })
      await store.reserve(reservation('session'))
      await database.server!.stop()
      const refused = [
        store.append([append('session', 1)]),
        store.read('session', 0, 1),
        store.claim('session', 'node-b'),
        store.beat('node-a', 1_000),
        store.list({ limit: 1 }),
      ]
      const outcomes = await Promise.allSettled(refused)
      await database.server!.up()
      for (const outcome of outcomes) {
        expect(outcome).toMatchObject({ reason: { code: 'store_unavailable', retry: true } })
      }
      expect(await store.append([append('session', 1)])).toEqual(['appended'])
    },
  )

  async function writeWhile(store: PostgresStore, state: { on: boolean }): Promise<number> {
    let seq = 1
    for (; state.on; seq += 1) {
      const outcomes = await store.append([append('session', seq)])
      if (outcomes[0] !== 'appended') throw new Error(`seq ${seq} is stale`)
    }
    return seq
  }
})

/** A way to the database on which an answer can be lost, and the connection with it. */
class LossyWay {
  readonly url: string
  lost = 0
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isNextLost = false

  private constructor(server: Server, target: URL) {
    this.#server = server
    const way = new URL(target)
    way.hostname = '127.0.0.1'
    way.port = String((server.address() as AddressInfo).port)
    this.url = way.href
    server.on('connection', (socket) => this.#pass(socket, target))
  }

  static async to(url: string): Promise<LossyWay> {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const way = new LossyWay(server, new URL(url))
    opened.push(way)
    return way
  }

  loseNextAnswer(): void {
    this.#isNextLost = true
  }

  #pass(near: Socket, { hostname, port }: URL): void {
    const far = connect(Number(port || 5_432), hostname)
    for (const socket of [near, far]) {
      this.#sockets.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => (near.destroy(), far.destroy()))
    }
    near.on('data', (bytes) => far.write(bytes))
    far.on('data', (bytes) => {
      if (!this.#isNextLost) return near.write(bytes)
      this.#isNextLost = false
      this.lost += 1
      near.destroy()
    })
  }

  async close(): Promise<void> {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}
