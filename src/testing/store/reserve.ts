/**
 * What `reserve`, `erase` and `close` promise: I1, and what explicit ids and keys may and may not
 * do; the content of a session is removed and its id stays known; all that is under way settles,
 * and nothing is answered afterwards.
 */
import assert from 'node:assert/strict'
import { NODE, OTHER_NODE, bodyOf, freshId, sampleReservation, type Claims } from './samples.ts'

/** Composed and decomposed characters, emoji, spaces, and a long one. */
const ODD_TEXTS = ['\u00e9', 'e\u0301', '🪸', '👩‍👩‍👧', ' a', 'A', '', 'k'.repeat(512)]
/** U+0000 beside its absence, quotation marks, and lone surrogates. */
const UNSAFE = ['a', 'a\0', 'a\0b', '\0', '"a\\u0000"', '"a"', '\ud800', '\udfff', '\ufffd']

export const reserveClaims: Claims = {
  'gives a key to exactly one of many that ask at once': async (trial) => {
    const answers = await trial.race(100, { key: 'alice' })
    assert.equal(answers.filter(({ type }) => type === 'created').length, 1)
    assert.equal(answers.filter(({ type }) => type === 'found').length, 99)
    assert.equal(new Set(answers.map(({ id }) => id)).size, 1)
    assert.deepEqual(await trial.list({ limit: 200 }), [answers[0]!.id])
  },

  'creates the log, the key and the ownership in one step': async (trial, store) => {
    const labels = { team: 'blue', '': 'empty name' }
    const wanted = sampleReservation({ key: 'alice', labels, body: bodyOf(1, 'first') })
    const reserved = await store.reserve(wanted)
    assert.deepEqual(reserved, { type: 'created', id: wanted.id, epoch: 1 })
    const { row, events } = await store.read(wanted.id, 0, 10)
    assert.deepEqual(events, [{ seq: 1, body: bodyOf(1, 'first') }])
    const { id, key, agent, internal, at } = wanted
    const listed = { status: 'idle', queuedTurns: 0, attached: 0 }
    const fresh = { state: 'open', seq: 1, ...listed, shares: [] }
    const bytes = bodyOf(1, 'first').length
    const times = { createdAt: at, updatedAt: at }
    assert.deepEqual(row, {
      id,
      principal: 'default',
      key,
      agent,
      internal,
      labels,
      ...fresh,
      bytes,
      ...times,
    })
    assert.equal(await trial.append(wanted.id), 'appended')
  },

  'creates a session for each that asks without a key': async (trial) => {
    const answers = await trial.race(50)
    assert.equal(new Set(answers.map(({ id }) => id)).size, 50)
    assert.ok(answers.every(({ type }) => type === 'created'))
  },

  'keeps keys apart that differ in any code unit': async (trial, store) => {
    const created = new Map<string, string>()
    for (const key of [...ODD_TEXTS, ...UNSAFE]) created.set(key, await trial.create({ key }))
    for (const [key, id] of created) {
      assert.deepEqual(await trial.reserve({ key }), { type: 'found', id })
      const [row, ...others] = (await store.list({ key, limit: 10 })).sessions
      assert.deepEqual([row?.id, row?.key, others], [id, key, []])
    }
  },

  'finds the open session of an explicit id, or creates it': async (trial) => {
    const id = freshId()
    const ask = () => trial.reserve({ id, explicit: true })
    assert.deepEqual(await ask(), { type: 'created', id, epoch: 1 })
    assert.deepEqual(await ask(), { type: 'found', id })
  },

  'gives an explicit id to exactly one of many that ask at once': async (trial) => {
    const id = freshId()
    const answers = await trial.race(100, { id, explicit: true })
    assert.equal(answers.filter(({ type }) => type === 'created').length, 1)
    assert.ok(answers.every((answer) => answer.id === id))
  },

  'finds an explicit id under its own key, and without naming the key': async (trial) => {
    const id = await trial.create({ explicit: true, key: 'alice' })
    const withKey = await trial.reserve({ id, explicit: true, key: 'alice' })
    assert.deepEqual(withKey, { type: 'found', id })
    assert.deepEqual(await trial.reserve({ id, explicit: true }), { type: 'found', id })
  },

  'refuses an explicit id whose key belongs to another session': async (trial, store) => {
    const holder = await trial.create({ key: 'alice' })
    const fresh = sampleReservation({ explicit: true, key: 'alice' })
    assert.deepEqual(await store.reserve(fresh), { type: 'taken', id: holder })
    assert.equal((await store.read(fresh.id, 0, 1)).row, null)
    const bob = await trial.create({ key: 'bob' })
    const existing = await trial.reserve({ id: bob, explicit: true, key: 'alice' })
    assert.deepEqual(existing, { type: 'taken', id: holder })
  },

  'refuses to give an existing explicit id another key': async (trial) => {
    const id = await trial.create({ key: 'alice' })
    const asked = await trial.reserve({ id, explicit: true, key: 'bob' })
    assert.deepEqual(asked, { type: 'taken', id })
    await trial.create({ key: 'bob' })
  },

  'never gives out a closed or erased explicit id again': async (trial, store) => {
    const id = await trial.createClosed()
    const ask = () => trial.reserve({ id, explicit: true, key: 'new' })
    assert.deepEqual(await ask(), { type: 'closed', id, state: 'closed' })
    assert.equal(await store.erase(id), true)
    assert.deepEqual(await ask(), { type: 'closed', id, state: 'erased' })
    await trial.create({ key: 'new' })
  },

  'never makes two sessions of one id': async (trial) => {
    const id = await trial.create({ body: bodyOf(1, 'first') })
    const twin = trial.reserve({ id, key: 'twin', body: bodyOf(1, 'second') })
    await assert.rejects(twin, { code: 'internal' })
    assert.deepEqual(await trial.events(id), [{ seq: 1, body: bodyOf(1, 'first') }])
    await trial.create({ key: 'twin' })
  },

  'frees a key in the same step that closes its session': async (trial) => {
    const first = await trial.create({ key: 'alice' })
    const [outcome, answers] = await Promise.all([
      trial.append(first, { closed: true }),
      trial.race(50, { key: 'alice' }),
    ])
    assert.equal(outcome, 'appended')
    const second = await trial.reserve({ key: 'alice' })
    assert.notEqual(second.id, first)
    assert.ok(answers.filter(({ type }) => type === 'created').length <= 1)
    assert.ok(answers.every(({ id }) => id === first || id === second.id))
    assert.deepEqual(await trial.list({ key: 'alice' }), [second.id, first])
  },

  'lets an internal session hold a key like any other': async (trial) => {
    const id = await trial.create({ key: 'hidden', internal: true })
    assert.deepEqual(await trial.reserve({ key: 'hidden' }), { type: 'found', id })
  },

  'makes the asking node the owner, which lives only while it beats': async (trial, store) => {
    await trial.claim(await trial.create(), OTHER_NODE)
    await store.beat(NODE, 60_000)
    const owned = await trial.create()
    assert.deepEqual(await store.claim(owned, OTHER_NODE), { type: 'owned', node: NODE })
  },

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
