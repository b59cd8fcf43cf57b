/** What `list` promises: filters, pages, and what sweeps find. */
import assert from 'node:assert/strict'
import { LIMIT_MAX } from '../../core/limits.ts'
import type { Append, ListPage, ListQuery, Store } from '../../core/store.ts'
import {
  NODE,
  OTHER_NODE,
  create,
  createClosed,
  eventsFrom,
  idsOf,
  sampleAppend,
  type Claims,
} from './samples.ts'

/** About 2026. */
const NOW = 1_800_000_000_000

export const listClaims: Claims = {
  'lists sessions newest first, by when they were made': async (store) => {
    const ids = await createMany(store, 5)
    await store.append([sampleAppend(ids[0]!, { at: 9_000 })])
    assert.deepEqual(await idsOf(store.list({ limit: 10 })), ids.toReversed())
  },

  'lists in pages that neither repeat nor skip, while sessions are made': async (store) => {
    const ids = await createMany(store, 7)
    const first = await store.list({ limit: 3 })
    await createMany(store, 2)
    const second = await store.list({ limit: 3, cursor: first.nextCursor! })
    const third = await store.list({ limit: 3, cursor: second.nextCursor! })
    const listed = [first, second, third].flatMap(({ sessions }) => sessions.map(({ id }) => id))
    assert.deepEqual(listed, ids.toReversed())
    assert.equal(third.nextCursor, null)
  },

  'ends a list whose last page is full': async (store) => {
    await createMany(store, 4)
    const first = await store.list({ limit: 2 })
    const second = await store.list({ limit: 2, cursor: first.nextCursor! })
    assert.deepEqual([second.sessions.length, second.nextCursor], [2, null])
  },

  'refuses a cursor that it never gave out': async (store) => {
    await createMany(store, 2)
    for (const cursor of ['', 'nonsense!', '-1', 'c', 'c0', '1; DROP TABLE sessions', '\0']) {
      await assert.rejects(store.list({ limit: 1, cursor }), { code: 'invalid_field' })
    }
  },

  'lists by state': async (store) => {
    const open = await create(store)
    const closed = await createClosed(store)
    assert.deepEqual(await idsOf(store.list({ state: 'open', limit: 9 })), [open])
    assert.deepEqual(await idsOf(store.list({ state: 'closed', limit: 9 })), [closed])
  },

  'lists the open and the closed sessions of a key': async (store) => {
    const closed = await createClosed(store, { key: 'alice' })
    await create(store, { key: 'bob' })
    const open = await create(store, { key: 'alice' })
    assert.deepEqual(await idsOf(store.list({ key: 'alice', limit: 9 })), [open, closed])
    assert.deepEqual(await idsOf(store.list({ key: 'alice', state: 'closed', limit: 9 })), [closed])
    assert.deepEqual(await idsOf(store.list({ key: 'ALICE', limit: 9 })), [])
  },

  'lists by a label, in pages': async (store) => {
    const blue = [
      await create(store, { labels: { team: 'blue', note: 'a\0b' } }),
      await create(store, { labels: { team: 'blue' } }),
      await createClosed(store, { labels: { team: 'blue' } }),
    ]
    await create(store, { labels: { team: 'red', note: 'a' } })
    await create(store, { labels: { colour: 'blue' } })
    const label = { name: 'team', value: 'blue' }
    const first = await store.list({ label, limit: 2 })
    const second = await store.list({ label, limit: 2, cursor: first.nextCursor! })
    const listed = [...first.sessions, ...second.sessions].map(({ id }) => id)
    assert.deepEqual(listed, blue.toReversed())
    const noted = store.list({ label: { name: 'note', value: 'a\0b' }, limit: 9 })
    assert.deepEqual(await idsOf(noted), [blue[0]])
    const open = store.list({ label, state: 'open', limit: 9 })
    assert.deepEqual(await idsOf(open), [blue[1], blue[0]])
  },

  'finds no inherited property as a label': async (store) => {
    await create(store)
    const label = { name: 'constructor', value: 'Object' }
    assert.deepEqual(await idsOf(store.list({ label, limit: 9 })), [])
  },

  'shows no internal session, whatever is asked for': async (store) => {
    const labels = { team: 'blue' }
    await create(store, { internal: true, key: 'hidden', labels })
    await createClosed(store, { internal: true, key: 'gone', labels })
    const label = { name: 'team', value: 'blue' }
    const queries = [{}, { state: 'open' }, { state: 'closed' }, { key: 'hidden' }, { label }]
    for (const query of queries) {
      assert.deepEqual(await idsOf(store.list({ limit: 9, ...query } as ListQuery)), [])
    }
  },

  'finds work that no other living node owns': async (store) => {
    const [stranded, held, idle, done] = await createMany(store, 4)
    const hidden = await create(store, { internal: true })
    await pend(store, [stranded!, held!, hidden])
    await store.append([sampleAppend(done!, { closed: true, pending: true })])
    await store.claim(held!, OTHER_NODE)
    const find = (pendingFor = 'third') => idsOf(store.list({ pendingFor, limit: 9 }))
    assert.deepEqual(await find(), [hidden, held, stranded])
    await store.beat(OTHER_NODE, 60_000)
    assert.deepEqual(await find(), [hidden, stranded])
    await store.beat(NODE, 60_000)
    assert.deepEqual(await find(), [])
    assert.deepEqual(await find(NODE), [hidden, stranded])
    await store.beat(OTHER_NODE, 0)
    assert.deepEqual(await find(), [held])
    assert.ok(idle !== undefined)
  },

  'finds no work in a session once its turns are over': async (store) => {
    const id = await create(store)
    await pend(store, [id])
    await store.append([sampleAppend(id, { after: 2 })])
    assert.deepEqual(await idsOf(store.list({ pendingFor: NODE, limit: 9 })), [])
  },

  'finds open sessions that have expired, internal ones too': async (store) => {
    const early = await create(store, { expiresAt: 5_000 })
    const hidden = await create(store, { expiresAt: 6_000, internal: true })
    await create(store)
    const closed = await create(store, { expiresAt: 5_000 })
    await store.append([sampleAppend(closed, { closed: true, expiresAt: 5_000 })])
    const find = (expiredAt: number) => idsOf(store.list({ expiredAt, limit: 9 }))
    assert.deepEqual(await find(4_999), [])
    assert.deepEqual(await find(5_000), [early])
    assert.deepEqual(await find(6_000), [hidden, early])
  },

  'follows a time of expiry wherever an append moves it': async (store) => {
    const id = await create(store, { expiresAt: 5_000 })
    const find = (expiredAt: number) => idsOf(store.list({ expiredAt, limit: 9 }))
    let after = 1
    const move = async (changes: Partial<Append>) => {
      assert.deepEqual(await store.append([sampleAppend(id, { after, ...changes })]), ['appended'])
      after += 1
    }
    await move({ expiresAt: 9_000 })
    assert.deepEqual([await find(8_999), await find(9_000)], [[], [id]])
    await move({ expiresAt: null })
    assert.deepEqual(await find(99_000), [])
    await move({ expiresAt: 3_000 })
    assert.deepEqual([await find(2_999), await find(3_000)], [[], [id]])
    await move({ at: 50_000, expiresAt: 60_000 })
    assert.deepEqual([await find(59_999), await find(60_000)], [[], [id]])
    await move({ at: 50_000, expiresAt: 40_000, epoch: 1 })
    assert.deepEqual([await find(39_999), await find(40_000)], [[], [id]])
  },

  'finds closed sessions by when they last changed, internal ones too': async (store) => {
    const [early, late, open] = await createMany(store, 3)
    const hidden = await create(store, { internal: true })
    await store.append([
      sampleAppend(late!, { closed: true, at: 7_000 }),
      sampleAppend(early!, { closed: true, at: 5_000 }),
      sampleAppend(hidden, { closed: true, at: 5_000 }),
      sampleAppend(open!, { at: 5_000 }),
    ])
    const find = (closedBefore: number) => idsOf(store.list({ closedBefore, limit: 9 }))
    assert.deepEqual(await find(4_999), [])
    assert.deepEqual(await find(5_000), [hidden, early])
    await store.erase(early!)
    assert.deepEqual(await find(9_000), [hidden, late])
  },

  'takes any time that a limit can lead to': async (store) => {
    const id = await create(store, { expiresAt: NOW + LIMIT_MAX })
    const times = { at: 2_000, expiresAt: NOW + LIMIT_MAX }
    assert.deepEqual(await store.append([sampleAppend(id, times)]), ['appended'])
    const find = (query: Partial<ListQuery>) => idsOf(store.list({ ...query, limit: LIMIT_MAX }))
    assert.deepEqual(await find({ expiredAt: NOW }), [])
    assert.deepEqual(await find({ expiredAt: Number.MAX_SAFE_INTEGER }), [id])
    assert.deepEqual(await find({ closedBefore: NOW - LIMIT_MAX }), [])
    const { events } = await store.read(id, 0, LIMIT_MAX)
    assert.deepEqual(events, eventsFrom(1, 2))
  },

  'pages through what a sweep finds': async (store) => {
    const ids = await createMany(store, 5)
    await pend(store, ids)
    const first = await store.list({ pendingFor: NODE, limit: 3 })
    const second = await store.list({ pendingFor: NODE, limit: 3, cursor: first.nextCursor! })
    const listed = [...first.sessions, ...second.sessions].map(({ id }) => id)
    assert.deepEqual(listed, ids.toReversed())
  },

  'pages through expired and closed sessions although some of them have gone': async (store) => {
    const ids: string[] = []
    for (let n = 0; n < 5; n += 1) ids.push(await create(store, { expiresAt: 5_000 }))
    const close = (id: string) =>
      store.append([sampleAppend(id, { closed: true, at: 6_000, expiresAt: null })])
    for (const query of [{ expiredAt: 5_000 }, { closedBefore: 6_000 }]) {
      const found: string[] = []
      let cursor: string | null = null
      do {
        const page: ListPage = await store.list({ ...query, limit: 2, ...(cursor && { cursor }) })
        cursor = page.nextCursor
        for (const { id } of page.sessions) {
          found.push(id)
          await ('expiredAt' in query ? close(id) : store.erase(id))
        }
      } while (cursor !== null)
      assert.deepEqual(found, ids.toReversed())
    }
  },
}

async function createMany(store: Store, count: number): Promise<readonly string[]> {
  const ids: string[] = []
  for (let made = 0; made < count; made += 1) ids.push(await create(store))
  return ids
}

async function pend(store: Store, ids: readonly string[]): Promise<void> {
  await store.append(ids.map((id) => sampleAppend(id, { pending: true })))
}
