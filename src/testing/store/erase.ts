/** What `erase` promises: the content is gone for ever, the id stays known. */
import assert from 'node:assert/strict'
import { create, createClosed, idsOf, sampleAppend, type Claims } from './samples.ts'

export const eraseClaims: Claims = {
  'erases a closed session once and leaves a tombstone': async (store) => {
    const id = await createClosed(store, { key: 'alice', labels: { team: 'blue' } })
    assert.equal(await store.erase(id), true)
    assert.equal(await store.erase(id), false)
    const { row, events } = await store.read(id, 0, 10)
    assert.deepEqual(events, [])
    assert.deepEqual([row?.id, row?.state, row?.key, row?.labels], [id, 'erased', null, {}])
  },

  'erases neither an open session nor one that was never made': async (store) => {
    const id = await create(store)
    assert.equal(await store.erase(id), false)
    assert.equal(await store.erase('nobody'), false)
    assert.deepEqual(await store.append([sampleAppend(id)]), ['appended'])
  },

  'lists an erased session nowhere': async (store) => {
    const label = { name: 'team', value: 'blue' }
    const id = await createClosed(store, { key: 'alice', labels: { team: 'blue' } })
    await store.erase(id)
    const queries = [{}, { state: 'closed' }, { key: 'alice' }, { label }, { closedBefore: 1e9 }]
    for (const query of queries) {
      assert.deepEqual(await idsOf(store.list({ limit: 9, ...(query as object) })), [])
    }
  },

  'appends nothing to an erased session': async (store) => {
    const id = await createClosed(store)
    await store.erase(id)
    assert.deepEqual(await store.append([sampleAppend(id, { after: 2 })]), ['stale'])
  },

  'leaves the new session of a key alone when it erases the old one': async (store) => {
    const old = await createClosed(store, { key: 'alice' })
    const current = await create(store, { key: 'alice' })
    assert.equal(await store.erase(old), true)
    assert.deepEqual(await idsOf(store.list({ key: 'alice', limit: 9 })), [current])
    assert.equal((await store.read(current, 0, 9)).events.length, 1)
  },
}
