/** What `changes` and the status in a session's row promise. */
import assert from 'node:assert/strict'
import type { SessionChange, Store } from '../../core/store.ts'
import { OTHER_NODE, bodyOf, type Claims, type StoreTrial } from './samples.ts'

const SESSIONS = 8
const APPENDS = 30

export const changeClaims: Claims = {
  'reports sessions that were created, appended to and closed, with their rows': async (trial) => {
    const { store } = trial
    const start = await endOf(store)
    const [one, other] = [await trial.create({ key: 'alice' }), await trial.create()]
    await trial.append(one, { events: [bodyOf(2), bodyOf(3)], status: 'running' })
    await trial.append(other, { closed: true })
    const { changes, position } = await store.changes(start, 100)
    assert.deepEqual(seen(changes), [`${one}: 0 to 3`, `${other}: 0 to 2`])
    const shown = changes.map(({ row: { key, state, status } }) => `${key} ${state} ${status}`)
    assert.deepEqual(shown, ['alice open running', 'null closed closed'])
    assert.deepEqual(await store.changes(position, 100), { changes: [], position })
  },

  'reports the next change from where the last one ended': async (trial, store) => {
    const id = await trial.create()
    const start = await endOf(store)
    await trial.append(id)
    const { position } = await store.changes(start, 100)
    await trial.append(id, { after: 2 })
    assert.deepEqual(seen((await store.changes(position, 100)).changes), [`${id}: 2 to 3`])
    assert.deepEqual(seen((await store.changes(start, 100)).changes), [`${id}: 1 to 3`])
  },

  'reports no append that changed nothing': async (trial, store) => {
    const id = await trial.create()
    await trial.claim(id, OTHER_NODE)
    const start = await endOf(store)
    assert.equal(await trial.append(id), 'stale')
    assert.deepEqual((await store.changes(start, 100)).changes, [])
  },

  'reports an erasure, and gives out no position twice': async (trial, store) => {
    const id = await trial.createClosed()
    const start = await endOf(store)
    await store.erase(id)
    const { changes, position } = await store.changes(start, 100)
    const shown = changes.map(({ row }) => `${row.id} ${row.state}`)
    assert.deepEqual(shown, [`${id} erased`])
    assert.ok(position > start)
  },

  'refuses a position that it never gave out': async (trial, store) => {
    await trial.create()
    const position = await endOf(store)
    for (const strange of [position + 1, position + 1_000, -1]) {
      await assert.rejects(store.changes(strange, 10), { code: 'changes_gone' })
    }
  },

  'reports every change once to each follower, in the order of each log, while many append': async (
    trial,
  ) => {
    const { store } = trial
    const start = await endOf(store)
    const ids = await Promise.all(Array.from({ length: SESSIONS }, () => trial.create()))
    let isOver = false
    const appending = Promise.all(ids.map((id) => appendAll(trial, id))).finally(
      () => (isOver = true),
    )
    const following = [1, 3, 7, 100].map((limit) => follow(store, start, limit, () => isOver))
    for (const logs of await Promise.all(following)) {
      assert.deepEqual(new Set(logs.keys()), new Set(ids))
      assert.deepEqual([...logs.values()], Array(SESSIONS).fill(APPENDS + 1))
    }
    await appending
  },

  'shows the status that the last append has set, and keeps it where one sets none': async (
    trial,
  ) => {
    const { store } = trial
    const id = await trial.create()
    const shown = async () => {
      const [row] = (await store.list({ limit: 1 })).sessions
      return [row?.status, row?.queuedTurns]
    }
    assert.deepEqual(await shown(), ['idle', 0])
    await trial.append(id, { status: 'waiting', queuedTurns: 3 })
    assert.deepEqual(await shown(), ['waiting', 3])
    await trial.append(id, { after: 2, status: 'failed' })
    await trial.append(id, { after: 3 })
    assert.deepEqual(await shown(), ['failed', 0])
    await trial.append(id, { after: 4, closed: true })
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

async function appendAll(trial: StoreTrial, id: string): Promise<void> {
  for (let after = 1; after <= APPENDS; after += 1) {
    assert.equal(await trial.append(id, { after }), 'appended')
  }
}

function seen(changes: readonly SessionChange[]): readonly string[] {
  return changes.map(({ row, after, seq }) => `${row.id}: ${after} to ${seq}`)
}
