/** What `claim` and `beat` promise: I5, and that loading reads the tail only. */
import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import type { Claim, Store } from '../../core/store.ts'
import {
  NODE,
  OTHER_NODE,
  assertClaimed,
  bodyOf,
  create,
  createClosed,
  eventsFrom,
  sampleAppend,
  type Claims,
} from './samples.ts'

const LONG_MS = 60_000
const SHORT_MS = 20

export const claimClaims: Claims = {
  'knows no session that was never made': async (store) => {
    assert.deepEqual(await store.claim('nobody', NODE), { type: 'unknown' })
  },

  'refuses a session whose owner lives': async (store) => {
    await store.beat(NODE, LONG_MS)
    const id = await create(store)
    assert.deepEqual(await store.claim(id, OTHER_NODE), { type: 'owned', node: NODE })
    assert.deepEqual(await store.append([sampleAppend(id)]), ['appended'])
  },

  'gives a session to its own owner again, under a new epoch': async (store) => {
    await store.beat(NODE, LONG_MS)
    const id = await create(store)
    const again = await store.claim(id, NODE)
    assertClaimed(again)
    assert.equal(again.epoch, 2)
    assert.deepEqual(await store.append([sampleAppend(id, { epoch: 1 })]), ['stale'])
    assert.deepEqual(await store.append([sampleAppend(id, { epoch: 2 })]), ['appended'])
  },

  'gives a session away when its owner gives up its lease': async (store) => {
    await store.beat(NODE, Number.POSITIVE_INFINITY)
    const id = await create(store)
    assert.equal((await store.claim(id, OTHER_NODE)).type, 'owned')
    await store.beat(NODE, 0)
    const taken = await store.claim(id, OTHER_NODE)
    assertClaimed(taken)
    assert.equal(taken.epoch, 2)
  },

  'gives a session away when the lease of its owner has ended': async (store) => {
    await store.beat(NODE, SHORT_MS)
    const id = await create(store)
    const taken = await claimWhenFree(store, id)
    assertClaimed(taken)
    assert.equal(taken.epoch, 2)
  },

  'renews a lease from now on, not from its last end': async (store) => {
    const id = await create(store)
    await store.beat(NODE, LONG_MS)
    await store.beat(NODE, SHORT_MS)
    assertClaimed(await claimWhenFree(store, id))
    await store.beat(OTHER_NODE, SHORT_MS)
    await store.beat(OTHER_NODE, LONG_MS)
    assert.deepEqual(await store.claim(id, NODE), { type: 'owned', node: OTHER_NODE })
  },

  'says of a lease that is renewed whether it had ended before': async (store) => {
    assert.equal(await store.beat(NODE, LONG_MS), undefined)
    assert.equal(await store.beat(NODE, SHORT_MS), undefined)
    const id = await create(store)
    assertClaimed(await claimWhenFree(store, id))
    assert.equal(await store.beat(NODE, LONG_MS), 'lapsed')
    assert.equal(await store.beat(NODE, LONG_MS), undefined)
  },

  'lets exactly one of many nodes take over, and epochs only grow': async (store) => {
    const nodes = Array.from({ length: 20 }, (_, index) => `taker-${index}`)
    await Promise.all(nodes.map((node) => store.beat(node, LONG_MS)))
    const id = await create(store)
    const claims = await Promise.all(nodes.map((node) => store.claim(id, node)))
    const winners = claims.filter(({ type }) => type === 'claimed')
    assert.equal(winners.length, 1)
    const winner = nodes[claims.findIndex(({ type }) => type === 'claimed')]!
    for (const claim of claims) {
      if (claim.type !== 'claimed') assert.deepEqual(claim, { type: 'owned', node: winner })
    }
    for (const epoch of [3, 4, 5]) {
      assert.deepEqual(await epochsOf(store, id, winner, 1), [epoch])
    }
  },

  'gives every claim an epoch of its own, however many come at once': async (store) => {
    const id = await create(store)
    const epochs = await epochsOf(store, id, NODE, 50)
    assert.equal(new Set(epochs).size, 50)
    assert.deepEqual(
      epochs.toSorted((one, other) => one - other),
      Array.from({ length: 50 }, (_, index) => index + 2),
    )
  },

  'gives a session away when its owner releases it, under its own epoch only': async (store) => {
    await store.beat(NODE, LONG_MS)
    const id = await create(store)
    await store.append([sampleAppend(id, { pending: true })])
    await store.release(id, 2)
    assert.equal((await store.claim(id, OTHER_NODE)).type, 'owned')
    await store.release(id, 1)
    const listed = await store.list({ pendingFor: OTHER_NODE, limit: 500 })
    assert.ok(listed.sessions.some((row) => row.id === id))
    const taken = await store.claim(id, OTHER_NODE)
    assertClaimed(taken)
    assert.equal(taken.epoch, 2)
    assert.deepEqual(await store.append([sampleAppend(id, { after: 2 })]), ['stale'])
  },

  'loads the whole log where there is no snapshot': async (store) => {
    const id = await create(store)
    await store.append([sampleAppend(id, { events: [bodyOf(2), bodyOf(3)] })])
    const claim = await store.claim(id, OTHER_NODE)
    assertClaimed(claim)
    assert.equal(claim.snapshot, null)
    assert.deepEqual(claim.tail, eventsFrom(1, 3))
    assert.equal(claim.row.seq, 3)
    assert.equal(claim.row.updatedAt, 2_000)
  },

  'loads the latest snapshot and only the events after it': async (store) => {
    const id = await create(store)
    await store.append([
      sampleAppend(id, { events: [bodyOf(2), bodyOf(3)], snapshot: '{"fold":3}' }),
      sampleAppend(id, { after: 3, snapshot: '{"fold":4}' }),
      sampleAppend(id, { after: 4, events: [bodyOf(5), bodyOf(6)] }),
    ])
    const claim = await store.claim(id, NODE)
    assertClaimed(claim)
    assert.equal(claim.snapshot, '{"fold":4}')
    assert.deepEqual(claim.tail, eventsFrom(5, 6))
  },

  'loads an empty tail right after a snapshot': async (store) => {
    const id = await create(store)
    await store.append([sampleAppend(id, { snapshot: '{"fold":2}' })])
    const claim = await store.claim(id, NODE)
    assertClaimed(claim)
    assert.deepEqual([claim.snapshot, claim.tail], ['{"fold":2}', []])
  },

  'loads a closed session without giving it to anybody': async (store) => {
    await store.beat(NODE, LONG_MS)
    const id = await createClosed(store)
    for (const node of [OTHER_NODE, NODE]) {
      const claim = await store.claim(id, node)
      assertClaimed(claim)
      assert.deepEqual([claim.epoch, claim.row.state], [null, 'closed'])
      assert.deepEqual(claim.tail, eventsFrom(1, 2))
    }
  },

  'says that an erased session is erased': async (store) => {
    const id = await createClosed(store)
    await store.erase(id)
    assert.deepEqual(await store.claim(id, NODE), { type: 'erased' })
  },
}

/** Asks until the owner's lease has ended: the store's own clock decides when. */
async function claimWhenFree(store: Store, session: string): Promise<Claim> {
  for (;;) {
    const claim = await store.claim(session, OTHER_NODE)
    if (claim.type !== 'owned') return claim
    await setImmediate()
  }
}

async function epochsOf(
  store: Store,
  session: string,
  node: string,
  count: number,
): Promise<readonly number[]> {
  const claims = await Promise.all(Array.from({ length: count }, () => store.claim(session, node)))
  return claims.map((claim) => {
    assertClaimed(claim)
    return claim.epoch ?? 0
  })
}
