/** The scenarios, unchanged, through two nodes on one PostgreSQL. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runOnTwoNodes, type Traffic } from '../support/nodes-under-test.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { runOn } from '../support/store-under-test.ts'

let database: TestDatabase
const traffic: Traffic = { uses: 0, passedOn: 0 }

beforeAll(async () => {
  database = await openTestDatabase()
  runOn(() => database.freshUrl())
  runOnTwoNodes(traffic)
})
afterAll(async () => {
  runOnTwoNodes(null)
  runOn(null)
  await database.close()
})

describe('through two nodes', async () => {
  await import('./copilot-sdk-disposed-session.test.ts')
  await import('./openclaw-3b1a3b2.test.ts')
  await import('./trinity-779.test.ts')
  await import('./vitest-10537.test.ts')
})

describe('on the way', () => {
  it('many of the requests came to the wrong node, and were passed on', () => {
    expect(traffic.passedOn).toBeGreaterThan(50)
  })
})
