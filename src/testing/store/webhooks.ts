/** What a store keeps of webhooks: each is delivered by one node at a time. */
import assert from 'node:assert/strict'
import type { Store } from '../../core/store.ts'
import { NODE, OTHER_NODE, type Claims } from './samples.ts'

const HOLD_MS = 60_000

/** A store without webhooks has nothing to claim here. */
export const webhookClaims: Claims = {
  'keeps of a webhook what its node has saved last': async (_, store) => {
    if (!hasWebhooks(store)) return
    assert.deepEqual(await store.listWebhooks(), [])
    assert.equal((await store.holdWebhook('hook', NODE, HOLD_MS))?.body, null)
    for (const body of ['{"position":1}', '{"position":2}']) {
      assert.equal(await store.saveWebhook('hook', NODE, body, HOLD_MS), true)
      assert.deepEqual(await store.listWebhooks(), [{ name: 'hook', node: NODE, body }])
    }
    assert.equal((await store.holdWebhook('hook', NODE, HOLD_MS))?.body, '{"position":2}')
    assert.equal((await store.holdWebhook('other', NODE, HOLD_MS))?.body, null)
  },

  'lets no node save a webhook that it does not hold, or has given up': async (_, store) => {
    if (!hasWebhooks(store)) return
    assert.equal(await store.saveWebhook('hook', NODE, '{}', HOLD_MS), false)
    await store.holdWebhook('hook', NODE, HOLD_MS)
    assert.equal(await store.saveWebhook('hook', OTHER_NODE, '{}', HOLD_MS), false)
    assert.equal(await store.saveWebhook('hook', NODE, '{"v":1}', 0), true)
    assert.deepEqual(await store.listWebhooks(), [{ name: 'hook', node: null, body: '{"v":1}' }])
    assert.equal(await store.saveWebhook('hook', NODE, '{}', HOLD_MS), false)
    assert.equal((await store.holdWebhook('hook', OTHER_NODE, HOLD_MS))?.body, '{"v":1}')
  },

  'gives a webhook to one of many nodes, and to another only when its time is over': async (
    _,
    store,
  ) => {
    if (!hasWebhooks(store) || store.cluster === undefined) return
    const nodes = Array.from({ length: 8 }, (__, index) => `node-${index}`)
    const hold = (node: string, ms = HOLD_MS) => store.holdWebhook('hook', node, ms)
    const held = await Promise.all(nodes.map((node) => hold(node)))
    const holders = nodes.filter((__, index) => held[index] !== null)
    assert.equal(holders.length, 1)
    const [holder = ''] = holders
    assert.equal(await hold(OTHER_NODE), null)
    // It is over at once.
    assert.equal(await store.saveWebhook('hook', holder, '{}', 0.001), true)
    for (let taken = null; taken === null;) taken = await hold(OTHER_NODE)
    assert.equal(await store.saveWebhook('hook', holder, '{"late":1}', HOLD_MS), false)
    assert.deepEqual(await store.listWebhooks(), [{ name: 'hook', node: OTHER_NODE, body: '{}' }])
  },
}

function hasWebhooks(
  store: Store,
): store is Store & Required<Pick<Store, 'holdWebhook' | 'saveWebhook' | 'listWebhooks'>> {
  return store.holdWebhook !== undefined
}
