/** The log's growth on PostgreSQL, dealt with as the guide says: its own statements are run. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { openHoldfast, type Holdfast } from 'holdfast'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { CLI, ROOT } from '../support/repository.ts'
import { openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'
import { serve } from '../support/server.ts'

let database: TestDatabase

beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

async function run(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [CLI, ...args])
  return stdout
}

async function turns(holdfast: Holdfast, key: string, count: number): Promise<string> {
  const session = await holdfast.resolve({ key })
  for (let n = 0; n < count; n += 1) await session.turn(`turn ${n}`)
  return session.id
}

it('splits the log into partitions, and goes on with every session', async () => {
  const store = database.freshUrl()
  const schema = schemaOf(store)
  const before = await openHoldfast({ store })
  const keys = Array.from({ length: 8 }, (_, n) => `key-${n}`)
  for (const key of keys) await turns(before, key, 3)
  await before.close()
  const guide = readFileSync(join(ROOT, 'docs/guide/cluster.md'), 'utf8')
  const statements = /```sql\n(BEGIN;[^`]*events_whole[^`]*)```/.exec(guide)?.[1] ?? ''
  await database.query(statements.replaceAll('holdfast.', `${schema}.`))
  const after = await openHoldfast({ store })
  for (const key of keys) {
    const id = await turns(after, key, 2)
    const { events } = await after.session(id).read(0, 100)
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
    expect(events.filter(({ body }) => body.includes('turn.done'))).toHaveLength(5)
    await after.session(id).close()
  }
  await after.close()
  // Closed first, then swept: a session may be erased before whoever closes it has looked at it.
  const sweeper = await openHoldfast({ store, limits: { retainMs: 0, sweepMs: 100 } })
  const left = `SELECT count(*)::int AS rows, count(DISTINCT tableoid)::int AS parts
    FROM ${schema}.events`
  await expect.poll(() => database.query(left)).toEqual([{ rows: 0, parts: 0 }])
  const tables = `SELECT count(*)::int AS count FROM pg_inherits
    WHERE inhparent = '${schema}.events'::regclass`
  expect(await database.query(tables)).toEqual([{ count: 16 }])
  await sweeper.close()
})

it('archives what is closed, and proves the archive whole', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-growth-'))
  const server = await serve({ store: database.freshUrl() })
  const { holdfast } = server
  const at = ['--url', server.url]
  const id = await turns(holdfast, 'alice', 3)
  await turns(holdfast, 'bob', 1)
  await holdfast.session(id).close()
  const closed = await run('sessions', '--state', 'closed', '--json', ...at)
  expect(
    closed
      .trim()
      .split('\n')
      .map((line): any => JSON.parse(line)),
  ).toMatchObject([{ id }])
  const file = join(folder, 'log.jsonl')
  await run('export', id, '--out', file, ...at)
  expect(readFileSync(file, 'utf8').trim().split('\n')).toHaveLength(11)
  expect(await run('verify', file)).toContain('1 checked, 0 bad')
  await server.close()
  rmSync(folder, { recursive: true })
})
