/** What `findKeys` promises: a key is known from its append on, until it is too old or too many. */
import assert from 'node:assert/strict'
import { LIMIT_MAX } from '../../core/limits.ts'
import type { AppendedKeys, KeyedTurn, KeyQuery, Store } from '../../core/store.ts'
import { create, sampleAppend, type Claims } from './samples.ts'

const keyed = (key: string, at = 2_000): KeyedTurn => ({ key, digest: 'd', turn: 't2', at })
const kept = (added: readonly KeyedTurn[], since = 0, max = 100): AppendedKeys => ({
  added,
  since,
  max,
})

export const keyClaims: Claims = {
  'finds a request key as soon as its append is answered, and no other': async (store) => {
    const [id, other] = [await create(store), await create(store)]
    const keys = [keyed('one'), keyed('two')]
    await store.append([sampleAppend(id, { keys: kept(keys) }), sampleAppend(other)])
    assert.deepEqual(await find(store, id, { key: 'one' }), [keyed('one')])
    assert.deepEqual(await find(store, id, { key: 'on' }), [])
    assert.deepEqual(await find(store, id, { key: 'one', since: 2_001 }), [])
    assert.deepEqual(await find(store, other, { key: 'one' }), [])
    assert.deepEqual(await find(store, 'nobody', { key: 'one' }), [])
  },

  'finds request keys by how they begin, the newest first': async (store) => {
    const id = await create(store)
    const names = ['b', 'a:2', 'a:1', 'a', 'a:3']
    await store.append([sampleAppend(id, { keys: kept(names.map((key) => keyed(key))) })])
    const found = await find(store, id, { prefix: 'a:', limit: 2 })
    assert.deepEqual(namesOf(found), ['a:3', 'a:1'])
    assert.deepEqual(namesOf(await find(store, id, {})), ['a:3', 'a', 'a:1', 'a:2', 'b'])
  },

  'keeps every character of a request key': async (store) => {
    const id = await create(store)
    const names = ['"', 'quo"te', 'nul\0', 'lone\ud800', '{,}', 'back\\slash', 'é\u{1f980}', "'"]
    await store.append([sampleAppend(id, { keys: kept(names.map((key) => keyed(key))) })])
    for (const key of names) assert.deepEqual(await find(store, id, { key }), [keyed(key)])
  },

  'finds request keys by how they begin, whatever characters follow or begin them': async (
    store,
  ) => {
    const id = await create(store)
    const last = '\u{10ffff}'
    const names = [
      'a',
      `a${last}${last}`,
      'a\ud7ff',
      'a\0',
      'a\ud800',
      last,
      `${last}${last}b`,
      '"q',
      '\0',
    ]
    await store.append([sampleAppend(id, { keys: kept(names.map((key) => keyed(key))) })])
    const prefixes = [
      '',
      'a',
      `a${last}`,
      'a\ud7ff',
      'a\0',
      last,
      `${last}${last}`,
      '"',
      '"q',
      '\0',
      'b',
    ]
    for (const prefix of prefixes) {
      const expected = names.filter((name) => name.startsWith(prefix)).toReversed()
      assert.deepEqual(namesOf(await find(store, id, { prefix })), expected, JSON.stringify(prefix))
    }
  },

  'does not record the keys of an append that is stale': async (store) => {
    const id = await create(store)
    const stale = sampleAppend(id, { epoch: 9, keys: kept([keyed('one')]) })
    assert.deepEqual(await store.append([stale]), ['stale'])
    assert.deepEqual(await find(store, id, {}), [])
  },

  'forgets request keys by time, and beyond the number the oldest first': async (store) => {
    const id = await create(store)
    const one = sampleAppend(id, { keys: kept([keyed('1', 10), keyed('2', 20), keyed('3', 30)]) })
    await store.append([one])
    await store.append([sampleAppend(id, { after: 2, keys: kept([keyed('4', 40)], 20) })])
    assert.deepEqual(namesOf(await find(store, id, {})), ['4', '3', '2'])
    await store.append([sampleAppend(id, { after: 3, keys: kept([keyed('5', 50)], 0, 2) })])
    assert.deepEqual(namesOf(await find(store, id, {})), ['5', '4'])
    await store.append([sampleAppend(id, { after: 4, keys: kept([keyed('6', 60)], 0, 0) })])
    assert.deepEqual(namesOf(await find(store, id, {})), [])
  },

  'forgets none where neither age nor number is limited': async (store) => {
    const id = await create(store)
    const unlimited = { since: -LIMIT_MAX, max: LIMIT_MAX }
    await store.append([sampleAppend(id, { keys: { added: [keyed('1')], ...unlimited } })])
    const keys = { added: [keyed('2')], ...unlimited }
    await store.append([sampleAppend(id, { after: 2, keys })])
    const found = await find(store, id, { since: -LIMIT_MAX, limit: LIMIT_MAX })
    assert.deepEqual(namesOf(found), ['2', '1'])
  },

  'gives a request key that comes again its latest turn, and its place among the newest': async (
    store,
  ) => {
    const id = await create(store)
    await store.append([sampleAppend(id, { keys: kept([keyed('1'), keyed('2')]) })])
    const again = { ...keyed('1', 3_000), turn: 't3' }
    await store.append([sampleAppend(id, { after: 2, keys: kept([again]) })])
    assert.deepEqual(await find(store, id, {}), [again, keyed('2')])
  },

  'has no request keys of a session that is closed': async (store) => {
    const id = await create(store)
    await store.append([sampleAppend(id, { keys: kept([keyed('one')]) })])
    await store.append([sampleAppend(id, { after: 2, closed: true })])
    assert.deepEqual(await find(store, id, {}), [])
  },
}

function find(store: Store, id: string, query: Partial<KeyQuery>): Promise<readonly KeyedTurn[]> {
  return store.findKeys(id, { since: 0, limit: 500, ...query })
}

function namesOf(keys: readonly KeyedTurn[]): readonly string[] {
  return keys.map(({ key }) => key)
}
