/** What `claim` and `beat` promise: I5, and that loading reads the tail only. */
import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import type { Store } from '../../core/store.ts'
import { NODE, OTHER_NODE, bodyOf, eventsFrom, sampleAppend, type Claims } from './samples.ts'

const LONG_MS = 60_000
const SHORT_MS = 20

export const claimClaims: Claims = {
  'knows no session that was never made': async (trial) => {
    assert.deepEqual(await trial.store.claim('missing', NODE), { type: 'unknown' })
  },

  'refuses a session whose owner lives': async (trial, store) => {
    await store.beat(NODE, LONG_MS)
    const id = await trial.create()
    assert.deepEqual(await store.claim(id, OTHER_NODE), { type: 'owned', node: NODE })
    assert.equal(await trial.append(id), 'appended')
  },

  'gives a session to its own owner again, under a new epoch': async (trial, store) => {
    await store.beat(NODE, LONG_MS)
    const id = await trial.create()
    assert.equal((await trial.claim(id)).epoch, 2)
    assert.equal(await trial.append(id, { epoch: 1 }), 'stale')
    assert.equal(await trial.append(id, { epoch: 2 }), 'appended')
  },

  'gives a session away when its owner gives up its lease': async (trial, store) => {
    await store.beat(NODE, Number.POSITIVE_INFINITY)
    const id = await trial.create()
    assert.equal((await store.claim(id, OTHER_NODE)).type, 'owned')
    await store.beat(NODE, 0)
    assert.equal((await trial.claim(id, OTHER_NODE)).epoch, 2)
  },

  'gives a session away when the lease of its owner has ended': async (trial, store) => {
    await store.beat(NODE, SHORT_MS)
    const id = await trial.create()
    assert.equal(await epochWhenFree(store, id), 2)
  },

  'renews a lease from now on, not from its last end': async (trial, store) => {
    const id = await trial.create()
    await store.beat(NODE, LONG_MS)
    await store.beat(NODE, SHORT_MS)
    assert.equal(await epochWhenFree(store, id), 2)
    await store.beat(OTHER_NODE, SHORT_MS)
    await store.beat(OTHER_NODE, LONG_MS)
    assert.deepEqual(await store.claim(id, NODE), { type: 'owned', node: OTHER_NODE })
  },

  'says of a lease that is renewed whether it had ended before': async (trial, store) => {
    assert.equal(await store.beat(NODE, LONG_MS), undefined)
    assert.equal(await store.beat(NODE, SHORT_MS), undefined)
    const id = await trial.create()
    assert.equal(await epochWhenFree(store, id), 2)
    assert.equal(await store.beat(NODE, LONG_MS), 'lapsed')
    assert.equal(await store.beat(NODE, LONG_MS), undefined)
  },

  'lets exactly one of many nodes take over, and epochs only grow': async (trial, store) => {
    const nodes = Array.from({ length: 20 }, (_, index) => `taker-${index}`)
    await Promise.all(nodes.map((node) => store.beat(node, LONG_MS)))
    const id = await trial.create()
    const claims = await Promise.all(nodes.map((node) => store.claim(id, node)))
    const winner = nodes[claims.findIndex(({ type }) => type === 'claimed')]!
    const losers = claims.filter(({ type }) => type !== 'claimed')
    assert.equal(losers.length, nodes.length - 1)
    for (const loser of losers) assert.deepEqual(loser, { type: 'owned', node: winner })
    for (const epoch of [3, 4, 5]) assert.equal((await trial.claim(id, winner)).epoch, epoch)
  },

  'gives every claim an epoch of its own, however many come at once': async (trial) => {
    const id = await trial.create()
    const claims = await Promise.all(Array.from({ length: 50 }, () => trial.claim(id)))
    const epochs = claims.map(({ epoch }) => epoch ?? 0).toSorted((one, other) => one - other)
    const expected = Array.from({ length: 50 }, (_, index) => index + 2)
    assert.deepEqual(epochs, expected)
  },

  'gives a session away when its owner releases it, under its own epoch only': async (trial) => {
    const { store } = trial
    await store.beat(NODE, LONG_MS)
    const id = await trial.create()
    await trial.append(id, { pending: true })
    await store.release(id, 2)
    assert.equal((await store.claim(id, OTHER_NODE)).type, 'owned')
    await store.release(id, 1)
    assert.ok((await trial.list({ pendingFor: OTHER_NODE, limit: 500 })).includes(id))
    assert.equal((await trial.claim(id, OTHER_NODE)).epoch, 2)
    assert.equal(await trial.append(id, { after: 2 }), 'stale')
  },

  'loads the whole log where there is no snapshot': async (trial) => {
    const id = await trial.create()
    await trial.append(id, { events: [bodyOf(2), bodyOf(3)] })
    const claim = await trial.claim(id, OTHER_NODE)
    assert.deepEqual([claim.snapshot, claim.row.seq, claim.row.updatedAt], [null, 3, 2_000])
    assert.deepEqual(claim.tail, eventsFrom(1, 3))
  },

  'loads the latest snapshot and only the events after it': async (trial, store) => {
    const id = await trial.create()
    await store.append([
      sampleAppend(id, { events: [bodyOf(2), bodyOf(3)], snapshot: '{"fold":3}' }),
      sampleAppend(id, { after: 3, snapshot: '{"fold":4}' }),
      sampleAppend(id, { after: 4, events: [bodyOf(5), bodyOf(6)] }),
    ])
    const claim = await trial.claim(id)
    assert.equal(claim.snapshot, '{"fold":4}')
    assert.deepEqual(claim.tail, eventsFrom(5, 6))
  },

  'loads an empty tail right after a snapshot': async (trial) => {
    const id = await trial.create()
    await trial.append(id, { snapshot: '{"fold":2}' })
    const claim = await trial.claim(id)
    assert.deepEqual([claim.snapshot, claim.tail], ['{"fold":2}', []])
  },

  'loads a closed session without giving it to anybody': async (trial, store) => {
    await store.beat(NODE, LONG_MS)
    const id = await trial.createClosed()
    for (const node of [OTHER_NODE, NODE]) {
      const claim = await trial.claim(id, node)
      assert.deepEqual([claim.epoch, claim.row.state], [null, 'closed'])
      assert.deepEqual(claim.tail, eventsFrom(1, 2))
    }
  },

  'says that an erased session is erased': async (trial, store) => {
    const id = await trial.createClosed()
    await store.erase(id)
    assert.deepEqual(await store.claim(id, NODE), { type: 'erased' })
  },
}

/** Asks until the owner's lease has ended: the store's own clock decides when. */
async function epochWhenFree(store: Store, session: string): Promise<number | null> {
  for (;;) {
    const claim = await store.claim(session, OTHER_NODE)
    if (claim.type === 'claimed') return claim.epoch
    assert.equal(claim.type, 'owned')
    await setImmediate()
  }
}
