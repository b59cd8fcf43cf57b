/**
 * How long a page of sessions and of asks takes among very many sessions, on both databases. The
 * rows are written by SQL: what a million turns would leave, without the turns.
 */
import { join } from 'node:path'
import pg from 'pg'
import { openPostgresStore } from 'holdfast/postgres'
import { openSqliteStore } from 'holdfast/sqlite'
import { openSqlite } from '../src/stores/sqlite/driver.ts'
import type { ListQuery, Store } from '../src/core/store.ts'
import { openTestDatabase, schemaOf } from '../test/support/postgres.ts'
import { median } from './measure.ts'
import type { Results } from './results.ts'

const MS_MAX = 20
const ROUNDS = 15
const NOW = 1_800_000_000_000
const ASKS = 5_000

type Dialect = {
  readonly schema: string
  readonly yes: string
  readonly no: string
  readonly epoch: string
  readonly more: string
  readonly moreValues: string
  readonly numbers: (count: number) => string
}

const SQLITE: Dialect = {
  schema: '',
  yes: '1',
  no: '0',
  epoch: 'epoch',
  more: 'last_event',
  moreValues: 'n',
  numbers: (count) =>
    `(WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ${count})
      SELECT n FROM counted)`,
}

const postgres = (schema: string): Dialect => ({
  schema: `${schema}.`,
  yes: 'true',
  no: 'false',
  epoch: 'owner_epoch',
  more: 'flagged, failed, changed',
  moreValues: `n % 5000 = 0, n % 300 = 1, false`,
  numbers: (count) => `(SELECT n::bigint AS n FROM generate_series(1, ${count}) AS n)`,
})

/**
 * Of each ten sessions three are open. One of 5,000 runs, and one of 300 has failed. There are four
 * agents with many sessions and one with few, a principal with most and a thousand with some.
 */
function fillTexts(dialect: Dialect, count: number): readonly string[] {
  const { schema, yes, no, epoch, more, moreValues, numbers } = dialect
  const isOpen = 'n % 10 < 3'
  // As in disorder as activity is.
  const activity = `${NOW} - (n * 48271 % ${count}) * 1000`
  return [
    `INSERT INTO ${schema}sessions (id, key, agent, internal, labels, state, ${epoch}, owner, seq,
        created_at, updated_at, pending, expires_at, due_at, closed_at, principal, shares, status,
        queued, attached, bytes, active_at, folded, ${more})
      SELECT 'session-' || n, CASE WHEN n % 5 > 0 THEN 'User:' || n END,
        CASE WHEN n % 2000 = 3 THEN 'rare' ELSE 'agent-' || (n % 4) END, ${no}, '{}',
        CASE WHEN ${isOpen} THEN 'open' ELSE 'closed' END, 1, NULL, 1,
        ${NOW} - (${count} - n) * 1000, ${activity},
        CASE WHEN n % 5000 = 0 THEN ${yes} ELSE ${no} END, NULL, NULL,
        CASE WHEN NOT (${isOpen}) THEN ${activity} END,
        CASE WHEN n % 3 = 0 THEN 'p-' || (n % 1000) ELSE 'default' END, '[]',
        CASE WHEN n % 5000 = 0 THEN 'running' WHEN n % 300 = 1 THEN 'failed' ELSE 'idle' END,
        0, 0, 100, ${activity}, CASE WHEN n % 5 > 0 THEN 'user:' || n END, ${moreValues}
        FROM ${numbers(count)} AS numbered`,
    `INSERT INTO ${schema}labels (name, value, session)
      SELECT 'team', 't-' || (n % 100), n FROM ${numbers(count)} AS numbered`,
    `INSERT INTO ${schema}labels (name, value, session)
      SELECT 'tier', 'gold', n FROM ${numbers(count)} AS numbered WHERE n % 10000 = 1`,
    `INSERT INTO ${schema}asks (session, ask, kind, at, body)
      SELECT n, 'a1', CASE WHEN n % 1000 = 0 THEN 'question' ELSE 'permission' END, ${NOW},
        '{"id":"a1","kind":"permission","title":"May I?"}'
        FROM ${numbers(count)} AS numbered WHERE n % ${Math.ceil(count / ASKS / 10) * 10} = 0`,
  ]
}

const PAGES: Readonly<Record<string, Partial<ListQuery>>> = {
  'the newest': {},
  'the newest, counted': { count: true },
  open: { state: 'open', count: true },
  'by activity': { sort: 'activity', count: true },
  'by activity, ascending': { sort: 'activity', order: 'asc' },
  'open, by activity': { state: 'open', sort: 'activity', count: true },
  running: { status: 'running', sort: 'activity', count: true },
  failed: { status: 'failed', sort: 'activity', count: true },
  'idle, counted': { status: 'idle', sort: 'activity', count: true },
  'an agent of many': { agent: 'agent-1', sort: 'activity', count: true },
  'an agent of few': { agent: 'rare', sort: 'activity', count: true },
  'a label of 1 %': { label: { name: 'team', value: 't-7' }, sort: 'activity', count: true },
  'a label of few': { label: { name: 'tier', value: 'gold' }, sort: 'activity', count: true },
  'a principal': { principal: 'p-42', sort: 'activity', count: true },
  'what a principal sees': { visibleTo: ['p-42', '@team'], sort: 'activity', count: true },
  'what the largest sees': { visibleTo: ['default'], sort: 'activity', count: true },
  'what the largest sees running': { visibleTo: ['default'], status: 'running' },
  'a key': { key: 'User:77777' },
  'a prefix of few': { keyPrefix: 'user:7777', sort: 'activity', count: true },
  'a prefix of all': { keyPrefix: 'user:', sort: 'activity', count: true },
  'text in many keys': { keyText: '77', sort: 'activity', count: true },
  'text in no key': { keyText: 'nothing', sort: 'activity', count: true },
  'all filters': {
    state: 'open',
    agent: 'agent-1',
    label: { name: 'team', value: 't-1' },
    keyText: '1',
    sort: 'activity',
    count: true,
  },
}

type Bench = { readonly folder: string; readonly count: number; readonly results: Results }

export async function benchLists({ folder, count, results }: Bench): Promise<void> {
  await benchSqlite(join(folder, 'list.db'), count, results)
  const database = await openTestDatabase()
  try {
    await benchPostgres(database.freshUrl(), count, results)
  } finally {
    await database.close()
  }
}

/** Makes the file with so many sessions in it. */
export async function fillSqlite(file: string, count: number): Promise<void> {
  await (await openSqliteStore({ file })).close()
  const database = openSqlite(file)
  database.exec('BEGIN')
  for (const text of fillTexts(SQLITE, count)) database.exec(text)
  database.exec('COMMIT; PRAGMA wal_checkpoint(TRUNCATE)')
  database.close()
}

async function benchSqlite(file: string, count: number, results: Results): Promise<void> {
  await fillSqlite(file, count)
  await benchStore('SQLite', await openSqliteStore({ file }), count, results)
}

async function benchPostgres(url: string, count: number, results: Results): Promise<void> {
  const store = await openPostgresStore({ url })
  const client = new pg.Client(url)
  await client.connect()
  const schema = schemaOf(url)
  for (const text of fillTexts(postgres(schema), count)) await client.query(text)
  // As autovacuum does it.
  for (const table of ['sessions', 'labels', 'asks']) {
    await client.query(`VACUUM ANALYZE ${schema}.${table}`)
  }
  await client.end()
  await benchStore('PostgreSQL', store, count, results)
}

async function benchStore(name: string, store: Store, count: number, results: Results) {
  console.log(`\nPages of ${count.toLocaleString('en')} sessions on ${name}, median and slowest:`)
  let slowest = 0
  for (const [what, query] of Object.entries(PAGES)) {
    const ms = await timed(what, async () => {
      const { sessions, count: counted } = await store.list({ limit: 100, ...query })
      return `${sessions.length} sessions${counted === undefined ? '' : ` of ${counted.atLeast}`}`
    })
    slowest = Math.max(slowest, ms)
  }
  const deep = await pageAfter(store, 20)
  slowest = Math.max(slowest, await timed('a page far behind', () => pageOf(store, deep)))
  for (const [what, query] of [
    ['asks', {}],
    ['asks of a kind', { kind: 'question' }],
    ['asks that a principal sees', { visibleTo: ['p-0'] }],
  ] as const) {
    const ms = await timed(what, async () => {
      return `${(await store.listAsks({ limit: 100, ...query })).asks.length} asks`
    })
    slowest = Math.max(slowest, ms)
  }
  results.judge(`slowest median of a page on ${name}, ms`, slowest, { most: MS_MAX })
  await store.close()
}

const DEEP = { limit: 100, sort: 'activity', state: 'open' } as const

async function pageAfter(store: Store, pages: number): Promise<string> {
  let cursor: string | null = null
  for (let page = 0; page < pages; page += 1) {
    const query: ListQuery = cursor === null ? DEEP : { ...DEEP, cursor }
    cursor = (await store.list({ ...query, limit: 500 })).nextCursor
  }
  return cursor ?? ''
}

async function pageOf(store: Store, cursor: string): Promise<string> {
  return `${(await store.list({ ...DEEP, cursor })).sessions.length} sessions`
}

async function timed(what: string, read: () => Promise<string>): Promise<number> {
  const times: number[] = []
  let found = ''
  for (let round = 0; round < ROUNDS; round += 1) {
    const begin = performance.now()
    found = await read()
    times.push(performance.now() - begin)
  }
  const [middle, most] = [median(times), Math.max(...times)]
  console.log(`  ${what.padEnd(30)} ${middle.toFixed(1)} ms, ${most.toFixed(1)} ms: ${found}`)
  return middle
}
