/** Brings a schema of an older version up to date, in one transaction under a lock. */
import { HoldfastError } from '../../core/errors.ts'
import { checkSteps } from '../steps.ts'
import type { Database, Queryable } from './database.ts'
import { fillRequestKeys } from './request-keys.ts'
import { STEP, STEPS } from './schema.ts'

/** What a step takes over from the rows that are there, by its number. */
const FILLS: Readonly<Record<number, (schema: string, session: Queryable) => Promise<void>>> = {
  4: fillRequestKeys,
}

/** The key of an advisory lock: the node that holds it migrates, the others wait. */
const MIGRATION_LOCK = 7_420_001
/** Of one statement: a large table takes long, and so may waiting for the lock. */
const MIGRATION_MS = 3_600_000

/** A schema of an older version that is brought up to date. */
export type Migration = { readonly from: number; readonly to: number }

/** Throws unless the schema is as this version makes it. For tools that only read. */
export async function checkCurrent(database: Database): Promise<void> {
  const { length } = await appliedSteps(database, database)
  if (length === STEP) return
  const { schema } = database
  throw new HoldfastError(
    'store_unavailable',
    `the schema ${schema} is at step ${length}, this Holdfast needs ${STEP}: ` +
      'the next node of this version that starts brings it up to date',
  )
}

/** Brings the schema to the latest step, in one transaction, or refuses it. */
export async function migrate(
  database: Database,
  onMigration: (migration: Migration) => void,
): Promise<void> {
  // Without a lock and without rights to create anything: the usual case.
  const { length: from } = await appliedSteps(database, database)
  if (from === STEP) return
  if (from > 0) onMigration({ from, to: STEP })
  await database.transaction(MIGRATION_MS, async (session) => {
    await session.query('SELECT pg_advisory_xact_lock($1)', [MIGRATION_LOCK])
    await createSchema(database, session)
    await session.query(`CREATE TABLE IF NOT EXISTS ${database.schema}.migrations (
      number integer PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL
    )`)
    const done = await appliedSteps(database, session)
    // What other nodes have begun ends before, and what they begin now waits.
    if (done.length > 0) await session.query(lockTables(database.schema))
    for (let number = done.length + 1; number <= STEPS.length; number += 1) {
      await applyStep(database, session, number)
    }
  })
}

/**
 * Only if it is not there: else it needs no right to create one. Looked for in the table itself: a
 * connection remembers the names that it did not find, and has not heard yet of what was made while
 * it waited for the lock.
 */
async function createSchema({ schema }: Database, session: Queryable): Promise<void> {
  const found = await session.query('SELECT FROM pg_namespace WHERE nspname = $1', [
    schema.slice(1, -1),
  ])
  if (found.length === 0) await session.query(`CREATE SCHEMA ${schema}`)
}

async function appliedSteps(database: Database, session: Queryable): Promise<readonly string[]> {
  const table = `${database.schema}.migrations`
  const [found] = await session.query<{ table: string | null }>(
    'SELECT to_regclass($1)::text AS table',
    [table],
  )
  if (found?.table === null) return refuseForeign(database, session)
  const rows = await session.query<{ checksum: string }>(
    `SELECT checksum FROM ${table} ORDER BY number`,
  )
  const done = rows.map(({ checksum }) => checksum)
  checkSteps(done, STEPS, `the schema ${database.schema}`)
  return done
}

/** A schema with tables of another program is left alone. */
async function refuseForeign(database: Database, session: Queryable): Promise<readonly string[]> {
  const rows = await session.query(
    // Looked for once more: another node may have made our own tables a moment ago.
    `SELECT FROM pg_class
      WHERE relnamespace = to_regnamespace($1) AND to_regclass($2) IS NULL LIMIT 1`,
    [database.schema, `${database.schema}.migrations`],
  )
  if (rows.length === 0) return []
  throw new HoldfastError(
    'store_unavailable',
    `the schema ${database.schema} belongs to another program: name another with ?schema=NAME`,
  )
}

async function applyStep(database: Database, session: Queryable, number: number): Promise<void> {
  const { sql, checksum } = STEPS[number - 1]!
  if (sql !== '') await session.query(sql.replaceAll('$schema', database.schema))
  await FILLS[number]?.(database.schema, session)
  await session.query(
    `INSERT INTO ${database.schema}.migrations VALUES ($1, $2, clock_timestamp())`,
    [number, checksum],
  )
}

function lockTables(schema: string): string {
  const tables = ['sessions', 'events', 'snapshots', 'labels', 'nodes']
  return `LOCK TABLE ${tables.map((table) => `${schema}.${table}`).join(', ')}`
}
