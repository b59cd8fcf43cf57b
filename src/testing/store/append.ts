/** What `append` and `read` promise: I4 and I5. */
import assert from 'node:assert/strict'
import { PAGE_CHARS, type Store } from '../../core/store.ts'
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

export const appendClaims: Claims = {
  'extends a log without a gap': async (store) => {
    const id = await create(store)
    for (let after = 1; after < 20; after += 1) {
      assert.deepEqual(await store.append([sampleAppend(id, { after })]), ['appended'])
    }
    const { row, events } = await store.read(id, 0, 100)
    assert.deepEqual(events, eventsFrom(1, 20))
    assert.equal(row?.seq, 20)
  },

  'keeps the order of many events in one append': async (store) => {
    const id = await create(store)
    const events = eventsFrom(2, 101).map(({ body }) => body)
    assert.deepEqual(await store.append([sampleAppend(id, { events })]), ['appended'])
    assert.deepEqual((await store.read(id, 0, 200)).events, eventsFrom(1, 101))
  },

  'refuses an epoch that is past, and one that was never given': async (store) => {
    const id = await create(store)
    assertClaimed(await store.claim(id, OTHER_NODE))
    const appends = [1, 3].map((epoch) => sampleAppend(id, { epoch, snapshot: '{}', at: 9_000 }))
    assert.deepEqual(await store.append(appends), ['stale', 'stale'])
    await assertUntouched(store, id)
  },

  'refuses an append that does not begin at the end of the log': async (store) => {
    const id = await create(store)
    const appends = [0, 2, 7].map((after) => sampleAppend(id, { after, snapshot: '{}' }))
    assert.deepEqual(await store.append(appends), ['stale', 'stale', 'stale'])
    await assertUntouched(store, id)
  },

  'refuses an append to a session that was never made': async (store) => {
    assert.deepEqual(await store.append([sampleAppend('nobody', { after: 0 })]), ['stale'])
    assert.deepEqual(await store.read('nobody', 0, 10), { row: null, events: [] })
  },

  'appends nothing after a session was closed': async (store) => {
    const id = await createClosed(store)
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

  'lets exactly one of two appends at one position through': async (store) => {
    const id = await create(store)
    const outcomes = await Promise.all([
      store.append([sampleAppend(id)]),
      store.append([sampleAppend(id)]),
    ])
    assert.deepEqual(outcomes.flat().toSorted(), ['appended', 'stale'])
    assert.deepEqual((await store.read(id, 0, 10)).events, eventsFrom(1, 2))
  },

  'judges each append of a batch by itself, in order': async (store) => {
    const ids = [await create(store), await create(store), await create(store)] as const
    const outcomes = await store.append([
      sampleAppend(ids[0]),
      sampleAppend(ids[1], { epoch: 9, events: [bodyOf(2), bodyOf(3)], closed: true }),
      sampleAppend(ids[0], { after: 2 }),
      sampleAppend(ids[0], { after: 2 }),
      sampleAppend(ids[2], { closed: true }),
      sampleAppend(ids[2], { after: 2 }),
    ])
    const expected = ['appended', 'stale', 'appended', 'stale', 'appended', 'stale']
    assert.deepEqual(outcomes, expected)
    const logs = await Promise.all(ids.map((id) => store.read(id, 0, 10)))
    assert.deepEqual(
      logs.map(({ row }) => [row?.seq, row?.state]),
      [
        [3, 'open'],
        [1, 'open'],
        [2, 'closed'],
      ],
    )
  },

  'extends many logs in one call': async (store) => {
    const ids = await Promise.all(Array.from({ length: 300 }, () => create(store)))
    const outcomes = await store.append(ids.map((id) => sampleAppend(id)))
    assert.deepEqual(new Set(outcomes), new Set(['appended']))
    const logs = await Promise.all(ids.map((id) => store.read(id, 1, 10)))
    for (const { events } of logs) assert.deepEqual(events, eventsFrom(2, 2))
  },

  'answers an empty batch with no outcomes': async (store) => {
    assert.deepEqual(await store.append([]), [])
  },

  'takes an append without events as a change of the row only': async (store) => {
    const id = await create(store)
    const quiet = sampleAppend(id, { events: [], snapshot: '{"fold":1}', at: 3_000 })
    assert.deepEqual(await store.append([quiet]), ['appended'])
    const { row, events } = await store.read(id, 0, 10)
    assert.deepEqual([row?.seq, row?.updatedAt, events.length], [1, 3_000, 1])
    const claim = await store.claim(id, NODE)
    assertClaimed(claim)
    assert.deepEqual([claim.snapshot, claim.tail], ['{"fold":1}', []])
  },

  'reads a log in pages, oldest first': async (store) => {
    const id = await create(store)
    const events = eventsFrom(2, 25).map(({ body }) => body)
    await store.append([sampleAppend(id, { events })])
    assert.deepEqual((await store.read(id, 0, 10)).events, eventsFrom(1, 10))
    assert.deepEqual((await store.read(id, 10, 10)).events, eventsFrom(11, 20))
    assert.deepEqual((await store.read(id, 20, 10)).events, eventsFrom(21, 25))
    assert.deepEqual((await store.read(id, 25, 10)).events, [])
    assert.deepEqual((await store.read(id, 99, 10)).events, [])
  },

  'reads any page of long logs that grew side by side': async (store) => {
    const ids = [await create(store), await create(store), await create(store)]
    for (let after = 1; after < 400; after += 3) {
      const events = eventsFrom(after + 1, after + 3).map(({ body }) => body)
      await store.append(ids.map((id) => sampleAppend(id, { after, events })))
    }
    for (let after = 0; after < 400; after += 9) {
      const pages = await Promise.all(ids.map((id) => store.read(id, after, 70)))
      for (const { events } of pages) {
        assert.deepEqual(events, eventsFrom(after + 1, Math.min(after + 70, 400)))
      }
    }
  },

  'keeps bodies of a megabyte, and every character of them': async (store) => {
    const id = await create(store)
    const odd = JSON.stringify({ text: 'e\u0301 é 🪸 \0 \ud800 \u2028 "\\' })
    const large = JSON.stringify({ text: '🪸'.repeat(262_144) })
    await store.append([sampleAppend(id, { events: [odd, large], snapshot: large })])
    const { events } = await store.read(id, 1, 10)
    assert.deepEqual(
      events.map(({ body }) => body === odd || body === large),
      [true, true],
    )
    const claim = await store.claim(id, NODE)
    assertClaimed(claim)
    assert.ok(claim.snapshot === large)
  },

  'ends a page that has much text, after one event at least': async (store) => {
    const id = await create(store)
    const event = (chars: number): string => JSON.stringify({ text: 'x'.repeat(chars) })
    const events = [event(10), event(PAGE_CHARS), event(PAGE_CHARS), event(10)]
    await store.append([sampleAppend(id, { events })])
    for (const after of [1, 2, 3]) {
      const page = await store.read(id, after, 10)
      assert.equal(page.events[0]?.seq, after + 1)
      const chars = page.events.reduce((sum, { body }) => sum + body.length, 0)
      assert.ok(chars <= 2 * PAGE_CHARS, `a page of ${chars} characters`)
      assert.equal(page.row?.seq, 5)
    }
  },
}

async function assertUntouched(store: Store, id: string): Promise<void> {
  const { row, events } = await store.read(id, 0, 10)
  assert.deepEqual(events, eventsFrom(1, 1))
  assert.deepEqual([row?.seq, row?.updatedAt, row?.state], [1, 1_000, 'open'])
  const claim = await store.claim(id, OTHER_NODE)
  assertClaimed(claim)
  assert.equal(claim.snapshot, null)
}
