/** What `append` and `read` promise: I4 and I5. */
import assert from 'node:assert/strict'
import { PAGE_CHARS } from '../../core/store.ts'
import {
  OTHER_NODE,
  bodiesFrom,
  bodyOf,
  eventsFrom,
  sampleAppend,
  type Claims,
  type StoreTrial,
} from './samples.ts'

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
    await assertUntouched(trial, id)
  },

  'refuses an append that does not begin at the end of the log': async (trial, store) => {
    const id = await trial.create()
    const appends = [0, 2, 7].map((after) => sampleAppend(id, { after, snapshot: '{}' }))
    assert.deepEqual(await store.append(appends), ['stale', 'stale', 'stale'])
    await assertUntouched(trial, id)
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
}

async function assertUntouched(trial: StoreTrial, id: string): Promise<void> {
  const { row, events } = await trial.store.read(id, 0, 10)
  assert.deepEqual(events, eventsFrom(1, 1))
  assert.deepEqual([row?.seq, row?.updatedAt, row?.state], [1, 1_000, 'open'])
  assert.equal((await trial.claim(id, OTHER_NODE)).snapshot, null)
}
