/** Brings a schema of an older version up to date, in one transaction under a lock. */
import { keysInText } from '../../core/request-keys.ts'
import { unavailable } from '../failures.ts'
import { foldedKey, nameFrom, storedName } from '../names.ts'
import { checkSteps } from '../steps.ts'
import { pagedRows, type Database, type Queryable } from './database.ts'
import { STEP, STEPS } from './schema.ts'

/** The step that makes the table of request keys. */
const KEYS_STEP = 4
/** The step that adds the column of folded keys. */
const FOLDED_STEP = 8

/** The key of an advisory lock: the node that holds it migrates, the others wait. */
const MIGRATION_LOCK = 7_420_001
/** Of one statement: a large table takes long, and so may waiting for the lock. */
const MIGRATION_MS = 3_600_000

export type Migration = { readonly from: number; readonly to: number }

/** Throws unless the schema is as this version makes it. For tools that only read. */
export async function checkCurrent(database: Database): Promise<void> {
  const { length } = await appliedSteps(database)
  if (length === STEP) return
  throw unavailable(
    `the schema ${database.schema} is at step ${length}, this Holdfast needs ${STEP}: ` +
      'the next node of this version that starts brings it up to date',
  )
}

export async function migrate(database: Database, onMigration: (migration: Migration) => void) {
  // Without a lock and without rights to create anything: the usual case.
  const { length: from } = await appliedSteps(database)
  if (from === STEP) return
  if (from > 0) onMigration({ from, to: STEP })
  const connection = await database.connect(MIGRATION_MS)
  try {
    await connection.query(`BEGIN; SET LOCAL statement_timeout = ${MIGRATION_MS}`)
    await applySteps(connection)
    await connection.query('COMMIT')
  } finally {
    connection.release()
  }
}

async function applySteps(session: Queryable): Promise<void> {
  const { schema } = session
  await session.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK])
  await createSchema(session)
  await session.query(`CREATE TABLE IF NOT EXISTS ${schema}.migrations (
    number integer PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL
  )`)
  const { length: done } = await appliedSteps(session)
  if (done > 0) {
    // What other nodes have begun ends before, and what they begin now waits.
    const tables = ['sessions', 'events', 'snapshots', 'labels', 'nodes']
    await session.query(`LOCK TABLE ${tables.map((table) => `${schema}.${table}`).join(', ')}`)
  }
  for (const [index, { sql, checksum }] of STEPS.entries()) {
    if (index < done) continue
    if (sql !== '') await session.query(sql.replaceAll('$schema', schema))
    if (index + 1 === KEYS_STEP) await fillRequestKeys(session)
    if (index + 1 === FOLDED_STEP) await foldKeys(session)
    const applied = `INSERT INTO ${schema}.migrations VALUES ($1, $2, clock_timestamp())`
    await session.query(applied, [index + 1, checksum])
  }
}

/**
 * Only if it is not there: else it needs no right to create one. Looked for in the table itself: a
 * connection remembers the names that it did not find, and has not heard yet of what was made while
 * it waited for the lock.
 */
async function createSchema(session: Queryable): Promise<void> {
  const name = session.schema.slice(1, -1)
  const found = await session.query('SELECT FROM pg_namespace WHERE nspname = $1', [name])
  if (found.length === 0) await session.query(`CREATE SCHEMA ${session.schema}`)
}

/** A schema with tables of another program is refused. */
async function appliedSteps(session: Queryable): Promise<readonly string[]> {
  const { schema } = session
  const table = `${schema}.migrations`
  const [found] = await session.query('SELECT to_regclass($1)::text AS table', [table])
  if (found?.table !== null) {
    const rows = await session.query(`SELECT checksum FROM ${table} ORDER BY number`)
    const done = rows.map(({ checksum }) => checksum as string)
    checkSteps(done, STEPS, `the schema ${schema}`)
    return done
  }
  const foreign = await session.query(
    // Looked for once more: another node may have made our own tables a moment ago.
    `SELECT FROM pg_class
      WHERE relnamespace = to_regnamespace($1) AND to_regclass($2) IS NULL LIMIT 1`,
    [schema, table],
  )
  if (foreign.length === 0) return []
  const advice = 'name another with ?schema=NAME'
  throw unavailable(`the schema ${schema} belongs to another program: ${advice}`)
}

const PAGE = 1_000

/** The keys of the logs that are there, of open sessions: nothing was indexed before. */
async function fillRequestKeys(session: Queryable): Promise<void> {
  const { schema } = session
  const events = `SELECT events.session::float8 AS session, events.seq::float8 AS seq, events.body
    FROM ${schema}.events JOIN ${schema}.sessions ON sessions.number = events.session
    WHERE sessions.state = 'open' AND (events.session, events.seq) > ($1::bigint, $2::bigint)
      AND events.body LIKE '%"keys":[{%'
    ORDER BY events.session, events.seq LIMIT ${PAGE}`
  const add = `INSERT INTO ${schema}.request_keys VALUES ($1, $2,
      1 + coalesce((SELECT max(number) FROM ${schema}.request_keys WHERE session = $1), 0),
      $3, $4, $5)
    ON CONFLICT (session, key) DO UPDATE SET number = excluded.number,
      digest = excluded.digest, turn = excluded.turn, at = excluded.at`
  type Found = { readonly session: number; readonly seq: number; readonly body: string }
  const found = pagedRows<Found>(session, events, [0, 0], (last) => [last.session, last.seq])
  for await (const { session: number, body } of found) {
    for (const { key, digest, turn, at } of keysInText(body)) {
      await session.query(add, [number, storedName(key), digest, turn, at])
    }
  }
}

/** The keys of the sessions that are there. */
async function foldKeys(session: Queryable): Promise<void> {
  const { schema } = session
  const keys = `SELECT number::float8 AS number, key FROM ${schema}.sessions
    WHERE number > $1::bigint AND key IS NOT NULL ORDER BY number LIMIT ${PAGE}`
  const fold = `UPDATE ${schema}.sessions AS held SET folded = given.folded
    FROM unnest($1::bigint[], $2::text[]) AS given (number, folded)
    WHERE held.number = given.number`
  type Found = { readonly number: number; readonly key: string }
  let page: Found[] = []
  const write = async (): Promise<void> => {
    const folded = page.map(({ key }) => foldedKey(nameFrom(key)))
    await session.query(fold, [page.map(({ number }) => number), folded])
    page = []
  }
  for await (const found of pagedRows<Found>(session, keys, [0], (last) => [last.number])) {
    if (page.push(found) === PAGE) await write()
  }
  await write()
}
