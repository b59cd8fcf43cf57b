/** What `list`, `changes` and the status in a session's row promise. */
import assert from 'node:assert/strict'
import { LIMIT_MAX } from '../../core/limits.ts'
import type { ListPage, ListQuery, SessionChange, Store } from '../../core/store.ts'
import { NODE, OTHER_NODE, bodyOf, eventsFrom, sampleAppend, type Claims } from './samples.ts'

/** About 2026. */
const NOW = 1_800_000_000_000
const SESSIONS = 8
const APPENDS = 30

export const listClaims: Claims = {
  'lists sessions newest first, by when they were made': async (trial) => {
    const ids = await trial.createMany(5)
    await trial.append(ids[0]!, { at: 9_000 })
    assert.deepEqual(await trial.list(), ids.toReversed())
  },

  'lists in pages that neither repeat nor skip, while sessions are made': async (trial, store) => {
    const ids = await trial.createMany(7)
    const pages = await pagesOf(store, { limit: 3 }, () => trial.create())
    assert.deepEqual(pages.flat(), ids.toReversed())
    assert.equal(pages.length, 3)
  },

  'ends a list whose last page is full': async (trial, store) => {
    await trial.createMany(4)
    const pages = await pagesOf(store, { limit: 2 })
    const sizes = pages.map(({ length }) => length)
    assert.deepEqual(sizes, [2, 2])
  },

  'refuses a cursor that it never gave out': async (trial, store) => {
    await trial.createMany(2)
    for (const cursor of ['', 'nonsense!', '-1', 'c', 'c0', '1; DROP TABLE sessions', '\0']) {
      await assert.rejects(store.list({ limit: 1, cursor }), { code: 'invalid_field' })
    }
  },

  'lists by state': async (trial) => {
    const open = await trial.create()
    const closed = await trial.createClosed()
    assert.deepEqual(await trial.list({ state: 'open' }), [open])
    assert.deepEqual(await trial.list({ state: 'closed' }), [closed])
  },

  'lists the open and the closed sessions of a key': async (trial) => {
    const closed = await trial.createClosed({ key: 'alice' })
    await trial.create({ key: 'bob' })
    const open = await trial.create({ key: 'alice' })
    assert.deepEqual(await trial.list({ key: 'alice' }), [open, closed])
    assert.deepEqual(await trial.list({ key: 'alice', state: 'closed' }), [closed])
    assert.deepEqual(await trial.list({ key: 'ALICE' }), [])
  },

  'lists by a label, in pages': async (trial, store) => {
    const blue = [
      await trial.create({ labels: { team: 'blue', note: 'a\0b' } }),
      await trial.create({ labels: { team: 'blue' } }),
      await trial.createClosed({ labels: { team: 'blue' } }),
    ]
    await trial.create({ labels: { team: 'red', note: 'a' } })
    await trial.create({ labels: { colour: 'blue' } })
    const label = { name: 'team', value: 'blue' }
    assert.deepEqual((await pagesOf(store, { label, limit: 2 })).flat(), blue.toReversed())
    assert.deepEqual(await trial.list({ label: { name: 'note', value: 'a\0b' } }), [blue[0]])
    assert.deepEqual(await trial.list({ label, state: 'open' }), [blue[1], blue[0]])
  },

  'finds no inherited property as a label': async (trial) => {
    await trial.create()
    const label = { name: 'constructor', value: 'Object' }
    assert.deepEqual(await trial.list({ label }), [])
  },

  'shows no internal session, whatever is asked for': async (trial) => {
    const labels = { team: 'blue' }
    await trial.create({ internal: true, key: 'hidden', labels })
    await trial.createClosed({ internal: true, key: 'gone', labels })
    const label = { name: 'team', value: 'blue' }
    const states = [{ state: 'open' }, { state: 'closed' }] as const
    const queries = [{}, ...states, { key: 'hidden' }, { label }]
    for (const query of queries) assert.deepEqual(await trial.list(query), [])
  },

  'finds work that no other living node owns': async (trial, store) => {
    const [stranded, held, , done] = await trial.createMany(4)
    const hidden = await trial.create({ internal: true })
    await pend(store, [stranded!, held!, hidden])
    await trial.append(done!, { closed: true, pending: true })
    await store.claim(held!, OTHER_NODE)
    const find = (pendingFor = 'third') => trial.list({ pendingFor })
    assert.deepEqual(await find(), [hidden, held, stranded])
    await store.beat(OTHER_NODE, 60_000)
    assert.deepEqual(await find(), [hidden, stranded])
    await store.beat(NODE, 60_000)
    assert.deepEqual(await find(), [])
    assert.deepEqual(await find(NODE), [hidden, stranded])
    await store.beat(OTHER_NODE, 0)
    assert.deepEqual(await find(), [held])
  },

  'finds no work in a session once its turns are over': async (trial) => {
    const id = await trial.create()
    await trial.append(id, { pending: true })
    await trial.append(id, { after: 2 })
    assert.deepEqual(await trial.list({ pendingFor: NODE }), [])
  },

  'finds open sessions that have expired, internal ones too': async (trial) => {
    const early = await trial.create({ expiresAt: 5_000 })
    const hidden = await trial.create({ expiresAt: 6_000, internal: true })
    await trial.create()
    const closed = await trial.create({ expiresAt: 5_000 })
    await trial.append(closed, { closed: true, expiresAt: 5_000 })
    const find = (expiredAt: number) => trial.list({ expiredAt })
    assert.deepEqual(await find(4_999), [])
    assert.deepEqual(await find(5_000), [early])
    assert.deepEqual(await find(6_000), [hidden, early])
  },

  'follows a time of expiry wherever an append moves it': async (trial) => {
    const id = await trial.create({ expiresAt: 5_000 })
    const find = (expiredAt: number) => trial.list({ expiredAt })
    let after = 1
    for (const expiresAt of [9_000, null, 3_000, 60_000, 40_000]) {
      const at = after < 4 ? 2_000 : 50_000
      assert.equal(await trial.append(id, { after, at, expiresAt }), 'appended')
      after += 1
      assert.deepEqual(await find((expiresAt ?? 99_001) - 1), [])
      if (expiresAt !== null) assert.deepEqual(await find(expiresAt), [id])
    }
  },

  'finds closed sessions by when they last changed, internal ones too': async (trial, store) => {
    const [early, late, open] = await trial.createMany(3)
    const hidden = await trial.create({ internal: true })
    await store.append([
      sampleAppend(late!, { closed: true, at: 7_000 }),
      sampleAppend(early!, { closed: true, at: 5_000 }),
      sampleAppend(hidden, { closed: true, at: 5_000 }),
      sampleAppend(open!, { at: 5_000 }),
    ])
    const find = (closedBefore: number) => trial.list({ closedBefore })
    assert.deepEqual(await find(4_999), [])
    assert.deepEqual(await find(5_000), [hidden, early])
    await store.erase(early!)
    assert.deepEqual(await find(9_000), [hidden, late])
  },

  'takes any time that a limit can lead to': async (trial, store) => {
    const id = await trial.create({ expiresAt: NOW + LIMIT_MAX })
    const times = { at: 2_000, expiresAt: NOW + LIMIT_MAX }
    assert.equal(await trial.append(id, times), 'appended')
    const find = (query: Partial<ListQuery>) => trial.list({ ...query, limit: LIMIT_MAX })
    assert.deepEqual(await find({ expiredAt: NOW }), [])
    assert.deepEqual(await find({ expiredAt: Number.MAX_SAFE_INTEGER }), [id])
    assert.deepEqual(await find({ closedBefore: NOW - LIMIT_MAX }), [])
    assert.deepEqual((await store.read(id, 0, LIMIT_MAX)).events, eventsFrom(1, 2))
  },

  'pages through what a sweep finds': async (trial, store) => {
    const ids = await trial.createMany(5)
    await pend(store, ids)
    const pages = await pagesOf(store, { pendingFor: NODE, limit: 3 })
    assert.deepEqual(pages.flat(), ids.toReversed())
  },

  'pages through expired and closed sessions although some of them have gone': async (trial) => {
    const { store } = trial
    const ids = await trial.createMany(5, { expiresAt: 5_000 })
    const close = (id: string) => trial.append(id, { closed: true, at: 6_000, expiresAt: null })
    const expired = await pagesOf(store, { expiredAt: 5_000, limit: 2 }, (page) =>
      Promise.all(page.map(close)),
    )
    assert.deepEqual(expired.flat(), ids.toReversed())
    const closed = await pagesOf(store, { closedBefore: 6_000, limit: 2 }, (page) =>
      Promise.all(page.map((id) => store.erase(id))),
    )
    assert.deepEqual(closed.flat(), ids.toReversed())
  },

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
    const appendTo = async (id: string) => {
      for (let after = 1; after <= APPENDS; after += 1) {
        assert.equal(await trial.append(id, { after }), 'appended')
      }
    }
    const appending = Promise.all(ids.map(appendTo)).finally(() => (isOver = true))
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

/** The ids of all pages; something may happen after each page. */
async function pagesOf(
  store: Store,
  query: ListQuery,
  afterPage: (ids: readonly string[]) => Promise<unknown> = async () => undefined,
): Promise<readonly (readonly string[])[]> {
  const pages: string[][] = []
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page: ListPage = await store.list(cursor === undefined ? query : { ...query, cursor })
    const ids = page.sessions.map(({ id }) => id)
    pages.push(ids)
    cursor = page.nextCursor
    await afterPage(ids)
  }
  return pages
}

async function pend(store: Store, ids: readonly string[]): Promise<void> {
  await store.append(ids.map((id) => sampleAppend(id, { pending: true })))
}

async function endOf(store: Store): Promise<number> {
  return (await store.changes(null, 0)).position
}

/** Follows until all is over; returns the last seq that was reported of each session. */
async function follow(store: Store, start: number, limit: number, isOver: () => boolean) {
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

function seen(changes: readonly SessionChange[]): readonly string[] {
  return changes.map(({ row, after, seq }) => `${row.id}: ${after} to ${seq}`)
}
