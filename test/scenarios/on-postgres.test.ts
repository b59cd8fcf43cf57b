/** The scenarios, unchanged, on PostgreSQL. */
import { afterAll, beforeAll, describe } from 'vitest'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { runOn } from '../support/store-under-test.ts'

let database: TestDatabase

beforeAll(async () => {
  database = await openTestDatabase()
  runOn(() => database.freshUrl())
})
afterAll(async () => {
  runOn(null)
  await database.close()
})

describe('on PostgreSQL', async () => {
  await import('./copilot-sdk-disposed-session.test.ts')
  await import('./openclaw-3b1a3b2.test.ts')
  await import('./trinity-779.test.ts')
  await import('./vitest-10537.test.ts')
})
