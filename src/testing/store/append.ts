/**
 * What `append`, `read` and `findKeys` promise: I4 and I5; a request key is known from its append
 * on, until it is too old or too many.
 */
import assert from 'node:assert/strict'
import { LIMIT_MAX } from '../../core/limits.ts'
import { PAGE_CHARS, type KeyedTurn, type KeyQuery, type Store } from '../../core/store.ts'
import { OTHER_NODE, bodiesFrom, bodyOf, eventsFrom, sampleAppend, type Claims } from './samples.ts'

const keyed = (key: string, at = 2_000): KeyedTurn => ({ key, digest: 'd', turn: 't2', at })
const kept = (added: readonly KeyedTurn[], since = 0, max = 100) => ({ added, since, max })
const named = (names: readonly string[]) => kept(names.map((name) => keyed(name)))

export const appendClaims: Claims = {
  'extends a log without a gap': async (trial, store) => {
    const id = await trial.create()
    for (let after = 1; after < 20; after += 1) {
      assert.equal(await trial.append(id, { after }), 'appended')
    }
    const { row, events } = await store.read(id, 0, 100)
    assert.deepEqual(events, eventsFrom(1, 20))
    assert.equal(row?.seq, 20)
  },

  'keeps the order of many events in one append': async (trial) => {
    const id = await trial.create()
    assert.equal(await trial.append(id, { events: bodiesFrom(2, 101) }), 'appended')
    assert.deepEqual(await trial.events(id), eventsFrom(1, 101))
  },

  'refuses an epoch that is past, and one that was never given': async (trial, store) => {
    const id = await trial.create()
    await trial.claim(id, OTHER_NODE)
    const appends = [1, 3].map((epoch) => sampleAppend(id, { epoch, snapshot: '{}', at: 9_000 }))
    assert.deepEqual(await store.append(appends), ['stale', 'stale'])
    await assertUntouched(store, id)
  },

  'refuses an append that does not begin at the end of the log': async (trial, store) => {
    const id = await trial.create()
    const appends = [0, 2, 7].map((after) => sampleAppend(id, { after, snapshot: '{}' }))
    assert.deepEqual(await store.append(appends), ['stale', 'stale', 'stale'])
    await assertUntouched(store, id)
  },

  'refuses an append to a session that was never made': async (trial, store) => {
    assert.equal(await trial.append('missing', { after: 0 }), 'stale')
    assert.deepEqual(await store.read('missing', 0, 10), { row: null, events: [] })
  },

  'appends nothing after a session was closed': async (trial, store) => {
    const id = await trial.createClosed()
    const late = [
      sampleAppend(id, { after: 2 }),
      sampleAppend(id, { after: 2, closed: true }),
      sampleAppend(id, { after: 1 }),
    ]
    assert.deepEqual(await store.append(late), ['stale', 'stale', 'stale'])
    const { row, events } = await store.read(id, 0, 10)
    assert.deepEqual(events, eventsFrom(1, 2))
    assert.deepEqual([row?.state, row?.seq], ['closed', 2])
  },

  'lets exactly one of two appends at one position through': async (trial) => {
    const id = await trial.create()
    const outcomes = await Promise.all([trial.append(id), trial.append(id)])
    assert.deepEqual(outcomes.toSorted(), ['appended', 'stale'])
    assert.deepEqual(await trial.events(id), eventsFrom(1, 2))
  },

  'judges each append of a batch by itself, in order': async (trial, store) => {
    const ids = await trial.createMany(3)
    const [one, other, third] = ids as [string, string, string]
    const outcomes = await store.append([
      sampleAppend(one),
      sampleAppend(other, { epoch: 9, events: [bodyOf(2), bodyOf(3)], closed: true }),
      sampleAppend(one, { after: 2 }),
      sampleAppend(one, { after: 2 }),
      sampleAppend(third, { closed: true }),
      sampleAppend(third, { after: 2 }),
    ])
    const expected = ['appended', 'stale', 'appended', 'stale', 'appended', 'stale']
    assert.deepEqual(outcomes, expected)
    const logs = await Promise.all(ids.map((id) => store.read(id, 0, 10)))
    const ends = logs.map(({ row }) => `${row?.seq} ${row?.state}`)
    assert.deepEqual(ends, ['3 open', '1 open', '2 closed'])
  },

  'extends many logs in one call': async (trial, store) => {
    const ids = await Promise.all(Array.from({ length: 300 }, () => trial.create()))
    const outcomes = await store.append(ids.map((id) => sampleAppend(id)))
    assert.deepEqual(new Set(outcomes), new Set(['appended']))
    const logs = await Promise.all(ids.map((id) => store.read(id, 1, 10)))
    for (const { events } of logs) assert.deepEqual(events, eventsFrom(2, 2))
  },

  'answers an empty batch with no outcomes': async (trial) => {
    assert.deepEqual(await trial.store.append([]), [])
  },

  'takes an append without events as a change of the row only': async (trial, store) => {
    const id = await trial.create()
    const quiet = { events: [], snapshot: '{"fold":1}', at: 3_000 }
    assert.equal(await trial.append(id, quiet), 'appended')
    const { row, events } = await store.read(id, 0, 10)
    assert.deepEqual([row?.seq, row?.updatedAt, events.length], [1, 3_000, 1])
    const claim = await trial.claim(id)
    assert.deepEqual([claim.snapshot, claim.tail], ['{"fold":1}', []])
  },

  'reads a log in pages, oldest first': async (trial, store) => {
    const id = await trial.create()
    await trial.append(id, { events: bodiesFrom(2, 25) })
    for (const after of [0, 10, 20, 25, 99]) {
      const { events } = await store.read(id, after, 10)
      assert.deepEqual(events, eventsFrom(after + 1, Math.min(after + 10, 25)))
    }
  },

  'reads any page of long logs that grew side by side': async (trial, store) => {
    const ids = await trial.createMany(3)
    for (let after = 1; after < 400; after += 3) {
      const events = bodiesFrom(after + 1, after + 3)
      await store.append(ids.map((id) => sampleAppend(id, { after, events })))
    }
    for (let after = 0; after < 400; after += 9) {
      const pages = await Promise.all(ids.map((id) => store.read(id, after, 70)))
      for (const { events } of pages) {
        assert.deepEqual(events, eventsFrom(after + 1, Math.min(after + 70, 400)))
      }
    }
  },

  'keeps bodies of a megabyte, and every character of them': async (trial) => {
    const id = await trial.create()
    const odd = JSON.stringify({ text: 'e\u0301 é 🪸 \0 \ud800 \u2028 "\\' })
    const large = JSON.stringify({ text: '🪸'.repeat(262_144) })
    await trial.append(id, { events: [odd, large], snapshot: large })
    const [first, second, ...others] = await trial.events(id, 1)
    assert.ok(first?.body === odd && second?.body === large && others.length === 0)
    assert.ok((await trial.claim(id)).snapshot === large)
  },

  'ends a page that has much text, after one event at least': async (trial, store) => {
    const id = await trial.create()
    const event = (chars: number): string => JSON.stringify({ text: 'x'.repeat(chars) })
    await trial.append(id, { events: [10, PAGE_CHARS, PAGE_CHARS, 10].map(event) })
    for (const after of [1, 2, 3]) {
      const page = await store.read(id, after, 10)
      assert.equal(page.events[0]?.seq, after + 1)
      const chars = page.events.reduce((sum, { body }) => sum + body.length, 0)
      assert.ok(chars <= 2 * PAGE_CHARS, `a page of ${chars} characters`)
      assert.equal(page.row?.seq, 5)
    }
  },

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

async function assertUntouched(store: Store, id: string): Promise<void> {
  const { row, events } = await store.read(id, 0, 10)
  assert.deepEqual(events, eventsFrom(1, 1))
  assert.deepEqual([row?.seq, row?.updatedAt, row?.state], [1, 1_000, 'open'])
  const claim = await store.claim(id, OTHER_NODE)
  assert.ok(claim.type === 'claimed' && claim.snapshot === null)
}

function find(store: Store, id: string, query: Partial<KeyQuery> = {}) {
  return store.findKeys(id, { since: 0, limit: 500, ...query })
}

async function namesIn(store: Store, id: string, query?: Partial<KeyQuery>) {
  return (await find(store, id, query)).map(({ key }) => key)
}
