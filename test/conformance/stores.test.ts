/** The embedded stores keep the contract of `Store`. Those on PostgreSQL: postgres-contract.test.ts. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSqliteStore } from 'holdfast/sqlite'
import { storeConformance, type StoreUnderTest } from 'holdfast/testing'
import { describe, test } from 'vitest'
import { MemoryStore } from '../../src/stores/memory.ts'

const STORES: Readonly<Record<string, () => Promise<StoreUnderTest>>> = {
  memory: async () => ({ store: new MemoryStore() }),
  sqlite: async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-'))
    const store = await openSqliteStore({ file: join(folder, 'holdfast.db') })
    return { store, dispose: () => rm(folder, { recursive: true }) }
  },
}

for (const [name, open] of Object.entries(STORES)) {
  describe(name, () => {
    for (const { title, run } of storeConformance(open)) test(title, run)
  })
}
