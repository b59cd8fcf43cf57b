/** Scenarios, unchanged, through two nodes on one PostgreSQL. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runOnTwoNodes, type Traffic } from './nodes-under-test.ts'
import { openTestDatabase, type TestDatabase } from './postgres.ts'
import { runOn } from './store-under-test.ts'

/**
 * `scenarios` imports their files; at least so much has to be passed on between the nodes. `headers`:
 * of a caller that may read the metrics of their servers.
 */
export function throughTwoNodes(
  passedOnMin: number,
  scenarios: () => Promise<unknown>,
  headers: Traffic['headers'] = {},
): void {
  const traffic: Traffic = { uses: 0, passedOn: 0, headers }
  let database: TestDatabase
  // At once: what has nothing to do with nodes is not even collected a second time.
  runOnTwoNodes(traffic)
  beforeAll(async () => {
    database = await openTestDatabase()
    runOn(() => database.freshUrl())
  })
  afterAll(async () => {
    runOnTwoNodes(null)
    runOn(null)
    await database.close()
  })

  describe('through two nodes', async () => {
    await scenarios()
  })

  describe('on the way', () => {
    it('requests and sockets came to the wrong node, and were passed on', () => {
      expect(traffic.uses).toBeGreaterThan(1)
      expect(traffic.passedOn).toBeGreaterThanOrEqual(passedOnMin)
    })
  })
}
