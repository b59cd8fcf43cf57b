/** What a store promises about blobs: once per session by digest, all or none, gone when erased. */
import assert from 'node:assert/strict'
import type { GivenBlob } from '../../core/store.ts'
import type { Claims } from './samples.ts'

const MANY = 1_000_000

/** Bytes of every value, so that none of them is changed on its way. */
function blob(digest: string, length = 300): GivenBlob & { readonly data: Uint8Array } {
  return { digest, data: Uint8Array.from({ length }, (_, index) => index % 256) }
}

export const blobClaims: Claims = {
  'keeps blobs as they are, each once in its session': async (trial, store) => {
    const id = await trial.create()
    const [first, second] = [blob('a'), blob('b', 7)]
    const stored = { type: 'stored', bytes: [300, 7], added: 307 }
    assert.deepEqual(await store.putBlobs(id, [first, second], MANY), stored)
    const again = await store.putBlobs(id, [{ digest: 'b', data: null }, first], MANY)
    assert.deepEqual(again, { type: 'stored', bytes: [7, 300], added: 0 })
    const found = await store.readBlob(id, 'a')
    assert.deepEqual(Uint8Array.from(found ?? []), first.data)
    assert.equal(await store.readBlob(id, 'c'), null)
  },

  'keeps blobs of one session from another': async (trial, store) => {
    const [own, other] = [await trial.create(), await trial.create()]
    await store.putBlobs(own, [blob('a')], MANY)
    assert.equal(await store.readBlob(other, 'a'), null)
    const named = await store.putBlobs(other, [{ digest: 'a', data: null }], MANY)
    assert.deepEqual(named, { type: 'missing', digest: 'a' })
  },

  'keeps no blob if one is missing, or all together are too large': async (trial, store) => {
    const id = await trial.create()
    const missing = await store.putBlobs(id, [blob('a'), { digest: 'b', data: null }], MANY)
    assert.deepEqual(missing, { type: 'missing', digest: 'b' })
    assert.equal((await store.putBlobs(id, [blob('a'), blob('b')], 600)).type, 'stored')
    assert.deepEqual(await store.putBlobs(id, [blob('a'), blob('c', 1)], 600), { type: 'full' })
    assert.equal(await store.readBlob(id, 'c'), null)
    // What is there already takes no room.
    assert.equal((await store.putBlobs(id, [blob('a')], 10)).type, 'stored')
  },

  'keeps a blob that many put at once, and counts it once': async (trial, store) => {
    const id = await trial.create({ principal: 'alice' })
    const before = await store.usage('alice', 'storedBytes', MANY)
    const pairs = Array.from({ length: 8 }, (_, index) => [blob('a'), blob(index % 2 ? 'b' : 'c')])
    const puts = await Promise.all(pairs.map((pair) => store.putBlobs(id, pair, MANY)))
    const added = puts.map((put) => (put.type === 'stored' ? put.added : -1))
    assert.equal(
      added.reduce((sum, one) => sum + one, 0),
      900,
    )
    assert.equal(await store.usage('alice', 'storedBytes', MANY), before + 900)
  },

  'keeps blobs with open sessions only, until they are erased': async (trial, store) => {
    const id = await trial.create({ principal: 'alice' })
    await store.putBlobs(id, [blob('a')], MANY)
    await trial.append(id, { closed: true })
    assert.deepEqual(await store.putBlobs(id, [blob('b')], MANY), { type: 'closed' })
    assert.equal((await store.readBlob(id, 'a'))?.length, 300)
    assert.equal(await store.erase(id), true)
    assert.equal(await store.readBlob(id, 'a'), null)
    assert.equal(await store.usage('alice', 'storedBytes', MANY), 0)
    assert.deepEqual(await store.putBlobs(id, [blob('a')], MANY), { type: 'closed' })
    assert.deepEqual(await store.putBlobs('unknown', [blob('a')], MANY), { type: 'closed' })
  },
}
