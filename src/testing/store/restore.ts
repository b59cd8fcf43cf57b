/** What a store promises about sessions from archives. It may have none of this. */
import assert from 'node:assert/strict'
import type { RestoredSession, Store } from '../../core/store.ts'
import { bodiesFrom, eventsFrom, freshId, type Claims } from './samples.ts'

const MANY = 1_000_000

/** Of so many events, which fill a page of a log and its index. */
const EVENTS = 128

function sampleRestored(changes: Partial<RestoredSession> = {}): RestoredSession {
  return {
    id: freshId(),
    principal: 'alice',
    shares: [{ with: 'bob', scopes: ['watch'] }],
    key: 'notes',
    agent: 'echo',
    internal: false,
    labels: { team: 'blue' },
    createdAt: 1_000,
    events: bodiesFrom(1, EVENTS),
    blobs: [{ digest: 'a', data: Uint8Array.from([1, 2, 0, 255]) }],
    at: 9_000,
    ...changes,
  }
}

async function assertRestored(store: Store, given: RestoredSession): Promise<void> {
  const { row, events } = await store.read(given.id, 0, 1_000)
  const { events: _events, blobs, at, ...named } = given
  assert.deepEqual(events, eventsFrom(1, EVENTS))
  assert.deepEqual(row, {
    ...named,
    state: 'closed',
    status: 'closed',
    seq: EVENTS,
    queuedTurns: 0,
    attached: 0,
    bytes: Buffer.byteLength(given.events.join('')) + 4,
    updatedAt: at,
    isRestored: true,
  })
  const data = await store.readBlob(given.id, 'a')
  assert.deepEqual(Uint8Array.from(data ?? []), blobs[0]?.data)
}

export const restoreClaims: Claims = {
  'restores a closed session with all it had, and its key stays free': async (trial, store) => {
    if (store.restore === undefined) return
    const given = sampleRestored()
    assert.equal(await store.restore(given), true)
    await assertRestored(store, given)
    assert.deepEqual(await store.read(given.id, 100, 1), {
      row: (await store.read(given.id, 0, 0)).row,
      events: eventsFrom(101, 101),
    })
    const listed = { label: { name: 'team', value: 'blue' }, visibleTo: ['bob'] }
    assert.deepEqual(await trial.list(listed), [given.id])
    assert.equal((await trial.reserve({ key: 'notes', principal: 'alice' })).type, 'created')
    assert.equal(await trial.append(given.id, { after: EVENTS }), 'stale')
    const claim = await trial.claim(given.id)
    assert.deepEqual([claim.epoch, claim.tail.length], [null, EVENTS])
  },

  'restores nothing over a session that is there, open or closed': async (trial, store) => {
    if (store.restore === undefined) return
    const [open, closed] = [await trial.create(), await trial.createClosed()]
    for (const id of [open, closed]) {
      const before = await store.read(id, 0, 10)
      assert.equal(await store.restore(sampleRestored({ id })), false)
      assert.deepEqual(await store.read(id, 0, 10), before)
    }
    assert.deepEqual(await trial.list({ visibleTo: ['alice'] }), [])
  },

  'restores an erased session, which can be erased again': async (trial, store) => {
    if (store.restore === undefined) return
    const given = sampleRestored()
    for (let round = 0; round < 3; round += 1) {
      assert.equal(await store.restore(given), true)
      await assertRestored(store, given)
      assert.equal((await store.usage('alice', 'storedBytes', MANY)) > 0, true)
      assert.equal(await store.erase(given.id), true)
      assert.equal(await store.usage('alice', 'storedBytes', MANY), 0)
      const { row, events } = await store.read(given.id, 0, 10)
      assert.deepEqual([row?.state, events], ['erased', []])
    }
  },

  'counts a restored session as closed from its restoration': async (trial, store) => {
    if (store.restore === undefined) return
    const given = sampleRestored()
    await store.restore(given)
    assert.deepEqual(await trial.list({ closedBefore: 8_999 }), [])
    assert.deepEqual(await trial.list({ closedBefore: 9_000 }), [given.id])
  },

  'tells the change feed of a restored session': async (_trial, store) => {
    if (store.restore === undefined) return
    const { position } = await store.changes(null, 0)
    const given = sampleRestored()
    await store.restore(given)
    const { changes } = await store.changes(position, MANY)
    assert.deepEqual(
      changes.map(({ seq, row }) => [row.id, row.state, seq]),
      [[given.id, 'closed', EVENTS]],
    )
  },
}
