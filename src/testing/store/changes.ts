/** What `changes` and the status in a session's row promise. */
import assert from 'node:assert/strict'
import type { Store } from '../../core/store.ts'
import {
  assertClaimed,
  bodyOf,
  create,
  createClosed,
  OTHER_NODE,
  sampleAppend,
  type Claims,
} from './samples.ts'

type ChangedRange = readonly [session: string, after: number, seq: number]

const SESSIONS = 8
const APPENDS = 30

export const changeClaims: Claims = {
  'reports sessions that were created, appended to and closed, with their rows': async (store) => {
    const start = await endOf(store)
    const [one, other] = [await create(store, { key: 'alice' }), await create(store)]
    await store.append([sampleAppend(one, { events: [bodyOf(2), bodyOf(3)], status: 'running' })])
    await store.append([sampleAppend(other, { closed: true })])
    const { changes, position } = await store.changes(start, 100)
    assert.deepEqual(seen(changes), [
      [one, 0, 3],
      [other, 0, 2],
    ])
    const shown = changes.map(({ row: { key, state, status } }) => [key, state, status])
    assert.deepEqual(shown, [
      ['alice', 'open', 'running'],
      [null, 'closed', 'closed'],
    ])
    assert.deepEqual(await store.changes(position, 100), { changes: [], position })
  },

  'reports the next change from where the last one ended': async (store) => {
    const id = await create(store)
    const start = await endOf(store)
    await store.append([sampleAppend(id)])
    const { position } = await store.changes(start, 100)
    await store.append([sampleAppend(id, { after: 2 })])
    assert.deepEqual(seen((await store.changes(position, 100)).changes), [[id, 2, 3]])
    assert.deepEqual(seen((await store.changes(start, 100)).changes), [[id, 1, 3]])
  },

  'reports no append that changed nothing': async (store) => {
    const id = await create(store)
    assertClaimed(await store.claim(id, OTHER_NODE))
    const start = await endOf(store)
    assert.deepEqual(await store.append([sampleAppend(id)]), ['stale'])
    assert.deepEqual((await store.changes(start, 100)).changes, [])
  },

  'reports an erasure, and gives out no position twice': async (store) => {
    const id = await createClosed(store)
    const start = await endOf(store)
    await store.erase(id)
    const { changes, position } = await store.changes(start, 100)
    assert.deepEqual(
      changes.map(({ row }) => [row.id, row.state]),
      [[id, 'erased']],
    )
    assert.ok(position > start)
  },

  'refuses a position that it never gave out': async (store) => {
    await create(store)
    const position = await endOf(store)
    for (const strange of [position + 1, position + 1_000, -1]) {
      await assert.rejects(store.changes(strange, 10), { code: 'changes_gone' })
    }
  },

  'reports every change once to each follower, in the order of each log, while many append': async (
    store,
  ) => {
    const start = await endOf(store)
    const ids = await Promise.all(Array.from({ length: SESSIONS }, () => create(store)))
    let isOver = false
    const appending = Promise.all(ids.map((id) => appendAll(store, id))).finally(() => {
      isOver = true
    })
    const following = [1, 3, 7, 100].map((limit) => follow(store, start, limit, () => isOver))
    for (const logs of await Promise.all(following)) {
      assert.deepEqual(new Set(logs.keys()), new Set(ids))
      assert.deepEqual([...logs.values()], Array(SESSIONS).fill(APPENDS + 1))
    }
    await appending
  },

  'shows the status that the last append has set, and keeps it where one sets none': async (
    store,
  ) => {
    const id = await create(store)
    const shown = async () => {
      const [row] = (await store.list({ limit: 1 })).sessions
      return [row?.status, row?.queuedTurns]
    }
    assert.deepEqual(await shown(), ['idle', 0])
    await store.append([sampleAppend(id, { status: 'waiting', queuedTurns: 3 })])
    assert.deepEqual(await shown(), ['waiting', 3])
    await store.append([sampleAppend(id, { after: 2, status: 'failed' })])
    await store.append([sampleAppend(id, { after: 3 })])
    assert.deepEqual(await shown(), ['failed', 0])
    await store.append([sampleAppend(id, { after: 4, closed: true })])
    assert.deepEqual(await shown(), ['closed', 0])
  },
}

async function endOf(store: Store): Promise<number> {
  return (await store.changes(null, 0)).position
}

/** Follows until all is over; returns the last seq that was reported of each session. */
async function follow(
  store: Store,
  start: number,
  limit: number,
  isOver: () => boolean,
): Promise<ReadonlyMap<string, number>> {
  const logs = new Map<string, number>()
  let position = start
  for (;;) {
    const wasOver = isOver()
    const page = await store.changes(position, limit)
    assert.ok(page.position >= position)
    if (wasOver && page.changes.length === 0) return logs
    position = page.position
    for (const { row, after, seq } of page.changes) {
      assert.equal(after, logs.get(row.id) ?? 0, `${row.id}: it goes on where it ended`)
      assert.ok(seq > after && row.seq >= seq)
      logs.set(row.id, seq)
    }
  }
}

async function appendAll(store: Store, id: string): Promise<void> {
  for (let after = 1; after <= APPENDS; after += 1) {
    assert.deepEqual(await store.append([sampleAppend(id, { after })]), ['appended'])
  }
}

function seen(changes: Awaited<ReturnType<Store['changes']>>['changes']): readonly ChangedRange[] {
  return changes.map(({ row, after, seq }) => [row.id, after, seq])
}
