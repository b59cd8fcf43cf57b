/** What a turn leaves on disk and in the write-ahead log, and what an idle session takes in memory. */
import { schemaOf, type TestDatabase } from '../test/support/postgres.ts'
import { Child } from './child.ts'
import { count } from './measure.ts'
import { KEYS, type Share } from './postgres.ts'

const SESSIONS = 10_000

type Sized = { readonly sessions: number; readonly megabytes: number }

export async function sizes(database: TestDatabase): Promise<void> {
  console.log(`\nWhat a turn of the echo agent leaves behind, ${KEYS} keys:`)
  const url = database.freshUrl()
  const node = new Child('postgres-node', ['holdfast', url, 'n', String(KEYS)])
  await node.next()
  const before = await look(database, url)
  const { turns } = await node.ask<Share>(3)
  const after = await look(database, url)
  const each = (of: keyof Look): string => ((after[of] - before[of]) / turns).toFixed(1)
  await node.stop()
  console.log(`  ${each('events')} rows of the log, ${each('bytes')} bytes on disk with indexes,`)
  console.log(`  ${each('wal')} bytes of write-ahead log`)
  console.log(`\nMemory of ${count(SESSIONS)} sessions with one turn each:`)
  const held = new Child('postgres-memory', [database.freshUrl(), String(SESSIONS)])
  const { sessions, megabytes } = await held.next<Sized>()
  await held.stop()
  const kilobytes = ((megabytes * 1_000) / sessions).toFixed(1)
  console.log(`  ${megabytes.toFixed(1)} MB, ${kilobytes} kB a session that is held`)
}

type Look = { readonly events: number; readonly bytes: number; readonly wal: number }

async function look(database: TestDatabase, url: string): Promise<Look> {
  const schema = schemaOf(url)
  const tables = ['sessions', 'events', 'snapshots']
  const bytes = tables.map((table) => `pg_total_relation_size('${schema}.${table}')`).join(' + ')
  const [row] = await database.query(
    `SELECT (SELECT count(*) FROM ${schema}.events)::float8 AS events, (${bytes})::float8 AS bytes,
      pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 AS wal`,
  )
  return row as Look
}
