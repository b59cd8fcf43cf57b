/** Of a store that several nodes share: what each has counted, as the others learn it. */
import assert from 'node:assert/strict'
import { NODE, OTHER_NODE, type Claims } from './samples.ts'

const LEASE_MS = 60_000

/** A store for one node, or one without `exchangeCounts`, has nothing to claim here. */
export const countClaims: Claims = {
  'a node learns the counts of each other node that lives, as they were last published': async (
    _,
    store,
  ) => {
    const { cluster } = store
    if (cluster?.exchangeCounts === undefined) return
    for (const node of [NODE, OTHER_NODE]) await store.beat(node, LEASE_MS)
    assert.deepEqual(await cluster.exchangeCounts(NODE, { a: 1, b: 0.5 }), [])
    assert.deepEqual(await cluster.exchangeCounts(OTHER_NODE, { a: 2 }), [{ a: 1, b: 0.5 }])
    assert.deepEqual(await cluster.exchangeCounts(NODE, { a: 3 }), [{ a: 2 }])
    assert.deepEqual(await cluster.exchangeCounts(OTHER_NODE, null), [{ a: 3 }])
    assert.deepEqual(await cluster.exchangeCounts(NODE, null), [{ a: 2 }])
  },

  'the counts of a node end with its lease': async (_, store) => {
    const { cluster } = store
    if (cluster?.exchangeCounts === undefined) return
    await store.beat(NODE, LEASE_MS)
    for (const end of [() => store.beat(OTHER_NODE, 0), () => store.beat(OTHER_NODE, 1)]) {
      await store.beat(OTHER_NODE, LEASE_MS)
      await cluster.exchangeCounts(OTHER_NODE, { a: 1 })
      assert.deepEqual(await cluster.exchangeCounts(NODE, null), [{ a: 1 }])
      await end()
      for (let found = 1; found > 0;) found = (await cluster.exchangeCounts(NODE, null)).length
    }
  },

  'a node without a lease publishes nothing': async (_, store) => {
    const { cluster } = store
    if (cluster?.exchangeCounts === undefined) return
    await cluster.exchangeCounts(OTHER_NODE, { a: 1 })
    await store.beat(NODE, LEASE_MS)
    assert.deepEqual(await cluster.exchangeCounts(NODE, {}), [])
  },
}
