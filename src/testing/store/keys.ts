/** What `findKeys` promises: a key is known from its append on, until it is too old or too many. */
import assert from 'node:assert/strict'
import { LIMIT_MAX } from '../../core/limits.ts'
import type { KeyedTurn, KeyQuery, Store } from '../../core/store.ts'
import { sampleAppend, type Claims } from './samples.ts'

const keyed = (key: string, at = 2_000): KeyedTurn => ({ key, digest: 'd', turn: 't2', at })
const kept = (added: readonly KeyedTurn[], since = 0, max = 100) => ({ added, since, max })
const named = (names: readonly string[]) => kept(names.map((name) => keyed(name)))

export const keyClaims: Claims = {
  'finds a request key as soon as its append is answered, and no other': async (trial, store) => {
    const [id, other] = [await trial.create(), await trial.create()]
    const keys = named(['one', 'two'])
    await store.append([sampleAppend(id, { keys }), sampleAppend(other)])
    assert.deepEqual(await find(store, id, { key: 'one' }), [keyed('one')])
    assert.deepEqual(await find(store, id, { key: 'on' }), [])
    assert.deepEqual(await find(store, id, { key: 'one', since: 2_001 }), [])
    assert.deepEqual(await find(store, other, { key: 'one' }), [])
    assert.deepEqual(await find(store, 'missing', { key: 'one' }), [])
  },

  'finds all request keys, the newest first': async (trial, store) => {
    const id = await trial.create()
    const names = ['b', 'a:2', 'a:1', 'a', 'a:3']
    await trial.append(id, { keys: named(names) })
    assert.deepEqual(await namesIn(store, id, { limit: 2 }), ['a:3', 'a'])
    assert.deepEqual(await namesIn(store, id), ['a:3', 'a', 'a:1', 'a:2', 'b'])
  },

  'keeps every character of a request key': async (trial, store) => {
    const id = await trial.create()
    const names = ['"', 'quo"te', 'nul\0', 'lone\ud800', '{,}', 'back\\slash', 'é\u{1f980}', "'"]
    await trial.append(id, { keys: named(names) })
    for (const key of names) assert.deepEqual(await find(store, id, { key }), [keyed(key)])
  },

  'does not record the keys of an append that is stale': async (trial, store) => {
    const id = await trial.create()
    assert.equal(await trial.append(id, { epoch: 9, keys: named(['one']) }), 'stale')
    assert.deepEqual(await find(store, id), [])
  },

  'forgets request keys by time, and beyond the number the oldest first': async (trial, store) => {
    const id = await trial.create()
    await trial.append(id, { keys: kept([keyed('1', 10), keyed('2', 20), keyed('3', 30)]) })
    await trial.append(id, { after: 2, keys: kept([keyed('4', 40)], 20) })
    assert.deepEqual(await namesIn(store, id), ['4', '3', '2'])
    await trial.append(id, { after: 3, keys: kept([keyed('5', 50)], 0, 2) })
    assert.deepEqual(await namesIn(store, id), ['5', '4'])
    await trial.append(id, { after: 4, keys: kept([keyed('6', 60)], 0, 0) })
    assert.deepEqual(await namesIn(store, id), [])
  },

  'forgets none where neither age nor number is limited': async (trial, store) => {
    const id = await trial.create()
    const unlimited = { since: -LIMIT_MAX, max: LIMIT_MAX }
    await trial.append(id, { keys: { ...named(['1']), ...unlimited } })
    await trial.append(id, { after: 2, keys: { ...named(['2']), ...unlimited } })
    const all = { since: -LIMIT_MAX, limit: LIMIT_MAX }
    assert.deepEqual(await namesIn(store, id, all), ['2', '1'])
  },

  'gives a request key that comes again its latest turn, and its place among the newest': async (
    trial,
  ) => {
    const { store } = trial
    const id = await trial.create()
    await trial.append(id, { keys: named(['1', '2']) })
    const again = { ...keyed('1', 3_000), turn: 't3' }
    await trial.append(id, { after: 2, keys: kept([again]) })
    assert.deepEqual(await find(store, id), [again, keyed('2')])
  },

  'has no request keys of a session that is closed': async (trial, store) => {
    const id = await trial.create()
    await trial.append(id, { keys: named(['one']) })
    await trial.append(id, { after: 2, closed: true })
    assert.deepEqual(await find(store, id), [])
  },
}

function find(store: Store, id: string, query: Partial<KeyQuery> = {}) {
  return store.findKeys(id, { since: 0, limit: 500, ...query })
}

async function namesIn(store: Store, id: string, query?: Partial<KeyQuery>) {
  return (await find(store, id, query)).map(({ key }) => key)
}
