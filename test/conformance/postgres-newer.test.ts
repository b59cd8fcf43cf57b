/** A node on PostgreSQL that is older than the schema writes nothing, by whichever method it is asked. */
import { openPostgresStore, PostgresStore } from 'holdfast/postgres'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { statementsFor } from '../../src/stores/postgres/statements.ts'
import { openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'
import { sampleAppend, sampleReservation } from '../../src/testing/store/samples.ts'

let database: TestDatabase
let url: string
let opened: PostgresStore[]

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

async function open(): Promise<PostgresStore> {
  const store = await openPostgresStore({ url, pool: 2 })
  opened.push(store)
  return store
}

/** One for each parameter, such that the statement runs and finds nothing. */
function valuesFor(text: string): readonly string[] {
  const count = Math.max(0, ...Array.from(text.matchAll(/\$(\d+)/g), ([, n]) => Number(n)))
  const valueAt = (n: number): string => {
    if (new RegExp(`\\$${n}::\\w+\\[\\]`).test(text)) return '{}'
    // Of no appends there are no bodies.
    return text.includes('.append(') && text.includes(`$${n}::text`) ? '' : '0'
  }
  return Array.from({ length: count }, (_, index) => valueAt(index + 1))
}

describe('once a newer Holdfast has changed the schema', () => {
  const WRITES: Readonly<Record<string, (store: PostgresStore) => Promise<unknown>>> = {
    reserve: (store) => store.reserve(sampleReservation()),
    claim: (store) => store.claim('session', 'node-a'),
    release: (store) => store.release('session', 1),
    append: (store) => store.append([sampleAppend('session')]),
    beat: (store) => store.beat('node-a', 60_000),
    'give back the lease by beat': (store) => store.beat('node-a', 0),
    changes: (store) => store.changes(null, 1),
    erase: (store) => store.erase('closed'),
  }
  const READS = ['findKeys', 'read', 'list']
  const LIFE = ['constructor', 'close']
  const change = (): Promise<unknown> =>
    database.query(`INSERT INTO ${schemaOf(url)}.migrations VALUES (99, 'unknown', now())`)

  test.each(Object.keys(WRITES))('%s writes nothing and says so', async (name) => {
    const store = await open()
    await store.beat('node-a', 60_000)
    for (const id of ['session', 'closed']) await store.reserve(sampleReservation({ id }))
    await store.append([sampleAppend('closed', { closed: true })])
    const rows = (): Promise<unknown> =>
      Promise.all(
        ['sessions', 'events', 'nodes'].map((table) =>
          database.query(`SELECT * FROM ${schemaOf(url)}.${table} ORDER BY 1, 2`),
        ),
      )
    const before = await rows()
    await change()
    await expect(WRITES[name]!(store)).rejects.toMatchObject({ code: 'store_newer' })
    expect(await rows()).toEqual(before)
    await expect(store.list({ limit: 1 })).rejects.toMatchObject({ code: 'store_newer' })
  })

  test('no method of the store is left out', () => {
    const methods = Object.getOwnPropertyNames(PostgresStore.prototype)
    const known = [...Object.keys(WRITES), ...READS, ...LIFE]
    expect(methods.filter((method) => !known.includes(method))).toEqual([])
  })

  test('every statement that a read-only transaction refuses is refused', async () => {
    await open()
    const client = new pg.Client(url)
    await client.connect()
    const codeOf = async (mode: string, { text }: { text: string }): Promise<string | null> => {
      await client.query(`BEGIN ${mode}`)
      const failure = await client.query(text, [...valuesFor(text)]).then(
        () => null,
        (thrown: { code: string }) => thrown.code,
      )
      await client.query('ROLLBACK')
      return failure
    }
    const writing: string[] = []
    const statements = Object.entries(statementsFor(schemaOf(url)))
    for (const [name, statement] of statements) {
      const code = await codeOf('READ ONLY', statement)
      expect([name, code]).toEqual([name, code === null ? null : '25006'])
      if (code !== null) writing.push(name)
    }
    await change()
    for (const [name, statement] of statements) {
      const expected = writing.includes(name) ? 'HF001' : null
      expect([name, await codeOf('', statement)]).toEqual([name, expected])
    }
    await client.end()
    expect(writing.length).toBeGreaterThanOrEqual(9)
  })
})
