/** What `reserve` promises: I1, and what explicit ids and keys may and may not do. */
import assert from 'node:assert/strict'
import {
  NODE,
  OTHER_NODE,
  assertClaimed,
  assertCreated,
  bodyOf,
  create,
  createClosed,
  freshId,
  idsOf,
  sampleAppend,
  sampleReservation,
  type Claims,
} from './samples.ts'

/**
 * Composed and decomposed é, emoji, U+0000 beside its absence, lone surrogates, quotation marks,
 * spaces.
 */
const ODD_KEYS = [
  '\u00e9',
  'e\u0301',
  '🪸',
  '👩‍👩‍👧',
  'a',
  'a\0',
  'a\0b',
  '\0',
  '"a\\u0000"',
  '"a"',
  '\ud800',
  '\udfff',
  '\ufffd',
  ' a',
  'A',
  '',
  'k'.repeat(512),
]

export const reserveClaims: Claims = {
  'gives a key to exactly one of many that ask at once': async (store) => {
    const asked = Array.from({ length: 100 }, () => sampleReservation({ key: 'alice' }))
    const answers = await Promise.all(asked.map((one) => store.reserve(one)))
    assert.equal(answers.filter(({ type }) => type === 'created').length, 1)
    assert.equal(answers.filter(({ type }) => type === 'found').length, 99)
    assert.equal(new Set(answers.map(({ id }) => id)).size, 1)
    assert.deepEqual(await idsOf(store.list({ limit: 200 })), [answers[0]!.id])
  },

  'creates the log, the key and the ownership in one step': async (store) => {
    const labels = { team: 'blue', '': 'empty name' }
    const wanted = sampleReservation({ key: 'alice', labels, body: bodyOf(1, 'first') })
    const reserved = await store.reserve(wanted)
    assert.deepEqual(reserved, { type: 'created', id: wanted.id, epoch: 1 })
    const { row, events } = await store.read(wanted.id, 0, 10)
    assert.deepEqual(events, [{ seq: 1, body: bodyOf(1, 'first') }])
    const { id, key, agent, internal, at } = wanted
    const fresh = {
      state: 'open',
      seq: 1,
      status: 'idle',
      queuedTurns: 0,
      createdAt: at,
      updatedAt: at,
    }
    assert.deepEqual(row, { id, key, agent, internal, labels, ...fresh })
    assert.deepEqual(await store.append([sampleAppend(wanted.id)]), ['appended'])
  },

  'creates a session for each that asks without a key': async (store) => {
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => store.reserve(sampleReservation())),
    )
    assert.equal(new Set(answers.map(({ id }) => id)).size, 50)
    assert.ok(answers.every(({ type }) => type === 'created'))
  },

  'keeps keys apart that differ in any code unit': async (store) => {
    const created = []
    for (const key of ODD_KEYS) created.push(await create(store, { key }))
    for (const [index, key] of ODD_KEYS.entries()) {
      const again = await store.reserve(sampleReservation({ key }))
      assert.deepEqual(again, { type: 'found', id: created[index] })
      const { sessions } = await store.list({ key, limit: 10 })
      assert.deepEqual(
        sessions.map((row) => [row.id, row.key]),
        [[created[index], key]],
      )
    }
  },

  'finds the open session of an explicit id, or creates it': async (store) => {
    const id = freshId()
    const ask = () => store.reserve(sampleReservation({ id, explicit: true }))
    assert.deepEqual(await ask(), { type: 'created', id, epoch: 1 })
    assert.deepEqual(await ask(), { type: 'found', id })
  },

  'gives an explicit id to exactly one of many that ask at once': async (store) => {
    const id = freshId()
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => store.reserve(sampleReservation({ id, explicit: true }))),
    )
    assert.equal(answers.filter(({ type }) => type === 'created').length, 1)
    assert.ok(answers.every((answer) => answer.id === id))
  },

  'finds an explicit id under its own key, and without naming the key': async (store) => {
    const id = await create(store, { explicit: true, key: 'alice' })
    const withKey = sampleReservation({ id, explicit: true, key: 'alice' })
    assert.deepEqual(await store.reserve(withKey), { type: 'found', id })
    const withoutKey = sampleReservation({ id, explicit: true })
    assert.deepEqual(await store.reserve(withoutKey), { type: 'found', id })
  },

  'refuses an explicit id whose key belongs to another session': async (store) => {
    const holder = await create(store, { key: 'alice' })
    const fresh = sampleReservation({ explicit: true, key: 'alice' })
    assert.deepEqual(await store.reserve(fresh), { type: 'taken', id: holder })
    assert.equal((await store.read(fresh.id, 0, 1)).row, null)
    const bob = await create(store, { key: 'bob' })
    const existing = sampleReservation({ id: bob, explicit: true, key: 'alice' })
    assert.deepEqual(await store.reserve(existing), { type: 'taken', id: holder })
  },

  'refuses to give an existing explicit id another key': async (store) => {
    const id = await create(store, { key: 'alice' })
    const asked = sampleReservation({ id, explicit: true, key: 'bob' })
    assert.deepEqual(await store.reserve(asked), { type: 'taken', id })
    assertCreated(await store.reserve(sampleReservation({ key: 'bob' })))
  },

  'never gives out a closed or erased explicit id again': async (store) => {
    const id = await createClosed(store)
    const ask = () => store.reserve(sampleReservation({ id, explicit: true, key: 'new' }))
    assert.deepEqual(await ask(), { type: 'closed', id, state: 'closed' })
    assert.equal(await store.erase(id), true)
    assert.deepEqual(await ask(), { type: 'closed', id, state: 'erased' })
    assertCreated(await store.reserve(sampleReservation({ key: 'new' })))
  },

  'never makes two sessions of one id': async (store) => {
    const id = await create(store, { body: bodyOf(1, 'first') })
    const twin = sampleReservation({ id, key: 'twin', body: bodyOf(1, 'second') })
    await assert.rejects(store.reserve(twin), { code: 'internal' })
    const { events } = await store.read(id, 0, 10)
    assert.deepEqual(events, [{ seq: 1, body: bodyOf(1, 'first') }])
    assertCreated(await store.reserve(sampleReservation({ key: 'twin' })))
  },

  'frees a key in the same step that closes its session': async (store) => {
    const first = await create(store, { key: 'alice' })
    const [outcomes, ...answers] = await Promise.all([
      store.append([sampleAppend(first, { closed: true })]),
      ...Array.from({ length: 50 }, () => store.reserve(sampleReservation({ key: 'alice' }))),
    ])
    assert.deepEqual(outcomes, ['appended'])
    const second = await store.reserve(sampleReservation({ key: 'alice' }))
    assert.notEqual(second.id, first)
    assert.ok(answers.filter(({ type }) => type === 'created').length <= 1)
    assert.ok(answers.every(({ id }) => id === first || id === second.id))
    assert.deepEqual(await idsOf(store.list({ key: 'alice', limit: 9 })), [second.id, first])
  },

  'lets an internal session hold a key like any other': async (store) => {
    const id = await create(store, { key: 'hidden', internal: true })
    const again = await store.reserve(sampleReservation({ key: 'hidden' }))
    assert.deepEqual(again, { type: 'found', id })
  },

  'makes the asking node the owner, which lives only while it beats': async (store) => {
    const id = await create(store)
    const taken = await store.claim(id, OTHER_NODE)
    assertClaimed(taken)
    await store.beat(NODE, 60_000)
    const owned = await create(store)
    assert.deepEqual(await store.claim(owned, OTHER_NODE), { type: 'owned', node: NODE })
  },
}
