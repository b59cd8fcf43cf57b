/** What a store promises about blobs: once per session by digest, all or none, gone when erased. */
import assert from 'node:assert/strict'
import type { GivenBlob } from '../../core/store.ts'
import { bodyOf, NODE, sampleAppend, sampleReservation, type Claims } from './samples.ts'

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

  'drops loose blobs on request, and none that was kept': async (trial, store) => {
    const id = await trial.create({ principal: 'alice' })
    await store.putBlobs(id, [blob('kept')], MANY)
    const before = await store.usage('alice', 'storedBytes', MANY)
    const all = ['kept', 'a', 'b', 'c', 'unknown']
    await store.putBlobs(id, [blob('kept'), blob('a'), blob('b', 7), blob('c')], MANY, true)
    await trial.append(id, { blobs: ['a'] })
    // A client has put it on purpose.
    await store.putBlobs(id, [blob('c')], MANY)
    const log = (await store.read(id, 0, 0)).row?.seq ?? 0
    assert.equal(log, 2)
    assert.equal(await store.dropBlobs(id, 1, all), 7)
    assert.equal(await store.dropBlobs(id, 1, all), 0)
    const found = await Promise.all(all.map((digest) => store.readBlob(id, digest)))
    assert.deepEqual(
      found.map((data) => data?.length ?? null),
      [300, 300, null, 300, null],
    )
    const grown = (await store.usage('alice', 'storedBytes', MANY)) - before
    assert.equal(grown, 600 + Buffer.byteLength(bodyOf(2)))
    assert.deepEqual(await store.putBlobs(id, [{ digest: 'b', data: null }], MANY), {
      type: 'missing',
      digest: 'b',
    })
  },

  'drops no loose blob for an owner before': async (trial, store) => {
    const id = await trial.create()
    assert.equal((await store.claim(id, NODE)).type, 'claimed')
    await store.putBlobs(id, [blob('a')], MANY, true)
    assert.equal(await store.dropBlobs(id, 1, ['a']), 0)
    assert.equal(await store.dropBlobs('unknown', 1, ['a']), 0)
    assert.equal((await store.readBlob(id, 'a'))?.length, 300)
  },

  'drops all loose blobs when the session is claimed, and keeps the others': async (
    trial,
    store,
  ) => {
    const id = await trial.create({ principal: 'alice' })
    await store.putBlobs(id, [blob('a'), blob('b')], MANY, true)
    await trial.append(id, { blobs: ['a'] })
    const before = await store.usage('alice', 'storedBytes', MANY)
    assert.equal((await store.claim(id, NODE)).type, 'claimed')
    assert.equal((await store.readBlob(id, 'a'))?.length, 300)
    assert.equal(await store.readBlob(id, 'b'), null)
    assert.equal(await store.usage('alice', 'storedBytes', MANY), before - 300)
  },

  'keeps no blob for an append that is stale': async (trial, store) => {
    const id = await trial.create()
    await store.putBlobs(id, [blob('a')], MANY, true)
    await store.append([sampleAppend(id, { after: 7, blobs: ['a'] })])
    assert.equal(await store.dropBlobs(id, 1, ['a']), 300)
  },

  'copies the blobs that a session begins with: each is erased by itself': async (trial, store) => {
    const source = await trial.create()
    await store.putBlobs(source, [blob('a'), blob('b', 7), blob('c')], MANY)
    const copies = { from: source, digests: ['a', 'b'] }
    const id = await trial.create({ principal: 'alice', blobs: copies })
    const bytes = await store.usage('alice', 'storedBytes', MANY)
    assert.equal(bytes, 307 + Buffer.byteLength(bodyOf(1)))
    await trial.append(source, { closed: true })
    assert.equal(await store.erase(source), true)
    assert.deepEqual(Uint8Array.from((await store.readBlob(id, 'a')) ?? []), blob('a').data)
    assert.equal(await store.readBlob(id, 'c'), null)
    assert.equal((await store.claim(id, NODE)).type, 'claimed')
    assert.equal((await store.readBlob(id, 'b'))?.length, 7)
  },

  'creates nothing if blobs that it is to begin with are not there': async (trial, store) => {
    const source = await trial.create()
    await store.putBlobs(source, [blob('a')], MANY)
    const blobs = { from: source, digests: ['a', 'b'] }
    const reservation = sampleReservation({ key: 'forked', blobs })
    assert.deepEqual(await store.reserve(reservation), { type: 'gone', id: source })
    assert.equal((await store.read(reservation.id, 0, 0)).row, null)
    const unknown = sampleReservation({ blobs: { from: 'unknown', digests: ['a'] } })
    assert.deepEqual(await store.reserve(unknown), { type: 'gone', id: 'unknown' })
  },
}
