/** Every store of the package keeps the contract of `Store`. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openPostgresStore } from 'holdfast/postgres'
import { openSqliteStore } from 'holdfast/sqlite'
import { storeConformance, type StoreUnderTest } from 'holdfast/testing'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { MemoryStore } from '../../src/stores/memory.ts'
import { openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'

let database: TestDatabase
let url: string

beforeAll(async () => {
  database = await openTestDatabase()
  url = database.freshUrl()
})
afterAll(() => database.close())

const STORES: Readonly<Record<string, () => Promise<StoreUnderTest>>> = {
  memory: async () => ({ store: new MemoryStore() }),
  sqlite: async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-'))
    const store = await openSqliteStore({ file: join(folder, 'holdfast.db') })
    return { store, dispose: () => rm(folder, { recursive: true }) }
  },
  postgres: async () => ({
    store: await openPostgresStore({ url }),
    // Quicker than a schema of its own for each case.
    dispose: async () => {
      const tables = ['sessions', 'events', 'snapshots', 'labels', 'nodes']
      const names = tables.map((table) => `${schemaOf(url)}.${table}`)
      await database.query(`TRUNCATE ${names.join(', ')} RESTART IDENTITY`)
    },
  }),
}

for (const [name, open] of Object.entries(STORES)) {
  describe(name, () => {
    for (const { title, run } of storeConformance(open)) test(title, run)
  })
}
