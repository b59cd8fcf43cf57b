/** What `close` promises: all that is under way settles, and nothing is answered afterwards. */
import assert from 'node:assert/strict'
import { NODE, create, sampleAppend, sampleReservation, type Claims } from './samples.ts'

export const lifeClaims: Claims = {
  'settles all that is under way when it is closed': async (store) => {
    const id = await create(store)
    const underWay = [
      ...Array.from({ length: 20 }, () => store.reserve(sampleReservation())),
      store.append([sampleAppend(id)]),
      store.read(id, 0, 10),
      store.list({ limit: 10 }),
      store.beat(NODE, 1_000),
    ]
    const settled = Promise.allSettled(underWay)
    await store.close()
    assert.equal((await settled).length, underWay.length)
  },

  'may be closed twice': async (store) => {
    await Promise.all([store.close(), store.close()])
    await store.close()
  },

  'refuses everything once it is closed': async (store) => {
    const id = await create(store)
    await store.close()
    const refused = [
      store.reserve(sampleReservation()),
      store.claim(id, NODE),
      store.append([sampleAppend(id)]),
      store.read(id, 0, 1),
      store.list({ limit: 1 }),
      store.beat(NODE, 1_000),
      store.changes(null, 0),
      store.erase(id),
    ]
    const outcomes = await Promise.allSettled(refused)
    for (const outcome of outcomes) {
      assert.equal(outcome.status, 'rejected')
      assert.equal((outcome.reason as { code?: string }).code, 'store_unavailable')
    }
  },
}
