/**
 * What `erase` and `close` promise: the content of a session is removed and its id stays
 * known; all that is under way settles, and nothing is answered afterwards.
 */
import assert from 'node:assert/strict'
import { NODE, type Claims } from './samples.ts'

export const lifeClaims: Claims = {
  'erases a closed session once and leaves a tombstone': async (trial, store) => {
    const id = await trial.createClosed({ key: 'alice', labels: { team: 'blue' } })
    assert.equal(await store.erase(id), true)
    assert.equal(await store.erase(id), false)
    const { row, events } = await store.read(id, 0, 10)
    assert.deepEqual(events, [])
    assert.deepEqual([row?.id, row?.state, row?.key, row?.labels], [id, 'erased', null, {}])
  },

  'erases neither an open session nor one that was never made': async (trial, store) => {
    const id = await trial.create()
    assert.equal(await store.erase(id), false)
    assert.equal(await store.erase('missing'), false)
    assert.equal(await trial.append(id), 'appended')
  },

  'lists an erased session nowhere': async (trial, store) => {
    const label = { name: 'team', value: 'blue' }
    const id = await trial.createClosed({ key: 'alice', labels: { team: 'blue' } })
    await store.erase(id)
    const closed = { state: 'closed' } as const
    const queries = [{}, closed, { key: 'alice' }, { label }, { closedBefore: 1e9 }]
    for (const query of queries) assert.deepEqual(await trial.list(query), [])
  },

  'appends nothing to an erased session': async (trial, store) => {
    const id = await trial.createClosed()
    await store.erase(id)
    assert.equal(await trial.append(id, { after: 2 }), 'stale')
  },

  'leaves the new session of a key alone when it erases the old one': async (trial, store) => {
    const old = await trial.createClosed({ key: 'alice' })
    const current = await trial.create({ key: 'alice' })
    assert.equal(await store.erase(old), true)
    assert.deepEqual(await trial.list({ key: 'alice' }), [current])
    assert.equal((await trial.events(current)).length, 1)
  },

  'settles all that is under way when it is closed': async (trial, store) => {
    const id = await trial.create()
    const underWay = [
      ...Array.from({ length: 20 }, () => trial.reserve()),
      trial.append(id),
      store.read(id, 0, 10),
      store.list({ limit: 10 }),
      store.beat(NODE, 1_000),
    ]
    const settled = Promise.allSettled(underWay)
    await store.close()
    assert.equal((await settled).length, underWay.length)
  },

  'may be closed twice': async (trial) => {
    await Promise.all([trial.store.close(), trial.store.close()])
    await trial.store.close()
  },

  'refuses everything once it is closed': async (trial, store) => {
    const id = await trial.create()
    await store.close()
    const refused = [
      trial.reserve(),
      store.claim(id, NODE),
      trial.append(id),
      store.read(id, 0, 1),
      store.list({ limit: 1 }),
      store.beat(NODE, 1_000),
      store.changes(null, 0),
      store.erase(id),
    ]
    const unavailable = { code: 'store_unavailable' }
    await Promise.all(refused.map((one) => assert.rejects(one, unavailable)))
  },
}
