/** What every filter and every order of a list promise, alone and together. */
import assert from 'node:assert/strict'
import { COUNT_MAX, type ListQuery, type SessionRow, type Store } from '../../core/store.ts'
import { NODE, sampleAppend, type Claims, type StoreTrial } from './samples.ts'

type Filters = Omit<ListQuery, 'limit' | 'cursor' | 'sort' | 'order' | 'count'>

const PAGES_MAX = 100
const KEYS = [
  'Chat:Alice',
  'chat:bob',
  'CHAT:ÉMILE',
  'mail',
  'a%b_c',
  "it's",
  'a\0b',
  '"quoted"',
  '\uFFFF',
]
const STATUSES = ['idle', 'failed', 'queued', 'running', 'waiting', 'closed'] as const
const BLUE = { name: 'team', value: 'blue' }
const COLOURED = { name: 'colour', value: 'a\0b' }

const FILTERS: readonly Filters[] = [
  {},
  ...STATUSES.map((status) => ({ status })),
  { state: 'open' },
  { state: 'closed' },
  { state: 'open', status: 'closed' },
  { state: 'closed', status: 'idle' },
  { agent: 'writer' },
  { agent: 'nobody' },
  { principal: 'bob' },
  { principal: 'bob', key: 'mail' },
  { principal: 'bob', key: 'mail', state: 'open' },
  { key: 'mail' },
  { key: 'mail', state: 'closed', agent: 'writer' },
  { label: BLUE },
  { label: [BLUE, COLOURED] },
  { label: [BLUE, { name: 'team', value: 'red' }] },
  { keyPrefix: 'chat:' },
  { keyPrefix: 'CHAT:é' },
  { keyPrefix: '\uFFFF' },
  { keyPrefix: '"' },
  { keyText: 'L' },
  { keyText: '%' },
  { keyText: "'" },
  { keyText: '\0' },
  { keyText: 'nothing has this' },
  { keyPrefix: 'chat', keyText: 'O', state: 'open' },
  { status: 'running', agent: 'writer', label: BLUE, principal: 'alice' },
  { visibleTo: ['alice', '@team'] },
  { visibleTo: ['bob'], status: 'failed' },
  { visibleTo: ['alice', '@team'], status: 'running', agent: 'writer' },
  { visibleTo: ['alice', '@team'], key: 'mail' },
  { visibleTo: ['bob', '@team'], key: 'mail', state: 'closed' },
  { visibleTo: ['alice'], principal: 'bob' },
  { visibleTo: ['bob'], keyPrefix: 'c', label: BLUE },
  { visibleTo: [] },
]

export const filterClaims: Claims = {
  'filters and sorts by all that a row says, alone and together': async (trial, store) => {
    const rows = await fill(trial)
    for (const filters of FILTERS) {
      for (const sort of ['created', 'activity'] as const) {
        const sorted = rows.filter((row) => isWanted(row, filters))
        if (sort === 'activity') sorted.sort((one, other) => one.updatedAt - other.updatedAt)
        const ids = sorted.map(({ id }) => id)
        const named = JSON.stringify({ ...filters, sort })
        assert.deepEqual(await idsOf(store, { ...filters, sort }, 4), ids.toReversed(), named)
        const ascending = { ...filters, sort, order: 'asc' } as const
        assert.deepEqual(await idsOf(store, ascending, 100), ids, `${named}, ascending`)
        const { count } = await store.list({ ...filters, sort, limit: 1, count: true })
        assert.deepEqual(count, { atLeast: ids.length, isExact: true }, `${named}, counted`)
      }
    }
  },

  'lists what a caller in very many groups may see': async (trial, store) => {
    const [own, shared] = [
      await trial.create({ principal: '@group-700' }),
      await trial.create({ principal: 'alice' }),
    ]
    await trial.append(shared, { shares: [{ with: '@group-3', scopes: ['watch'] }] })
    const visibleTo = Array.from({ length: 800 }, (_, group) => `@group-${group}`)
    for (const sort of ['created', 'activity'] as const) {
      const page = await store.list({ visibleTo, sort, limit: 9, count: true })
      assert.deepEqual(idsIn(page.sessions), [shared, own])
      assert.deepEqual(page.count, { atLeast: 2, isExact: true })
    }
  },

  'counts only if it is asked, and up to its limit': async (trial, store) => {
    const reservations = Array.from({ length: COUNT_MAX / 100 + 1 }, () => trial.create())
    await Promise.all(reservations)
    const { count } = await store.list({ limit: 1, count: true })
    assert.deepEqual(count, { atLeast: reservations.length, isExact: true })
    assert.equal((await store.list({ limit: 1 })).count, undefined)
  },

  'lists by activity as soon as an append is answered, however short ago the one before': async (
    trial,
  ) => {
    const [one, two, three] = await trial.createMany(3, { at: 10_000 })
    const list = () => trial.list({ sort: 'activity' })
    await trial.append(one!, { at: 10_001 })
    assert.deepEqual(await list(), [one, three, two])
    await trial.append(two!, { at: 10_500 })
    await trial.append(one!, { at: 10_400, after: 2 })
    assert.deepEqual(await list(), [two, one, three])
    await trial.append(three!, { at: 90_000 })
    await trial.append(one!, { at: 80_000, after: 3 })
    assert.deepEqual(await list(), [three, one, two])
    // Clocks may be set back.
    await trial.append(three!, { at: 5_000, after: 2 })
    assert.deepEqual(await list(), [one, two, three])
    await trial.append(two!, { at: 95_000, after: 2, closed: true })
    assert.deepEqual(await list(), [two, one, three])
  },

  'pages by activity that end where they ended, whatever changes meanwhile': async (
    trial,
    store,
  ) => {
    const ids = await trial.createMany(6)
    await store.append(ids.map((id, index) => sampleAppend(id, { at: 2_000 + index })))
    const first = await store.list({ sort: 'activity', limit: 2 })
    assert.deepEqual(idsIn(first.sessions), [ids[5], ids[4]])
    await trial.append(ids[4]!, { after: 2, at: 9_000 })
    await trial.append(ids[0]!, { after: 2, at: 9_500 })
    const query = { sort: 'activity', limit: 9, cursor: first.nextCursor! } as const
    assert.deepEqual(idsIn((await store.list(query)).sessions), [ids[3], ids[2], ids[1]])
  },

  'refuses a cursor of a list in another order': async (trial, store) => {
    await trial.createMany(3)
    const byActivity = await store.list({ sort: 'activity', limit: 1 })
    const byCreation = await store.list({ limit: 1 })
    const invalid = { code: 'invalid_field' }
    const mixed = { limit: 1, cursor: byActivity.nextCursor! }
    await assert.rejects(store.list(mixed), invalid)
    const other = { limit: 1, cursor: byCreation.nextCursor!, sort: 'activity' } as const
    await assert.rejects(store.list(other), invalid)
    for (const cursor of ['a', 'a1', 'a1-', 'a-1', 'azzzzzzzzzzz-1', 'a1-1-1', 'A1-1', 'a1-1 ']) {
      await assert.rejects(store.list({ limit: 1, cursor, sort: 'activity' }), invalid)
    }
  },

  'shows how many clients are attached, until the next append says otherwise': async (trial) => {
    const id = await trial.create()
    const attached = async () => (await trial.store.list({ limit: 1 })).sessions[0]?.attached
    assert.equal(await attached(), 0)
    await trial.append(id, { attached: 3, pending: true })
    assert.equal(await attached(), 3)
    await trial.append(id, { after: 2, attached: 1 })
    assert.equal(await attached(), 1)
    await trial.append(id, { after: 3, attached: 1, closed: true })
    assert.equal(await attached(), 0)
  },
}

/** Sessions of all kinds, in the order of their creation. */
async function fill(trial: StoreTrial): Promise<readonly SessionRow[]> {
  const { store } = trial
  const ids: string[] = []
  const closed = { principal: 'bob', key: 'mail', at: 500 }
  for (let time = 0; time < 3; time += 1) ids.push(await trial.createClosed(closed))
  for (let index = 0; index < 36; index += 1) {
    const labels = {
      ...(index % 2 === 0 ? { team: 'blue' } : { team: 'red' }),
      ...(index % 3 === 0 ? { colour: 'a\0b' } : {}),
    }
    const principal = ['alice', 'bob', 'carol', '@team'][index % 4]!
    const agent = index % 5 < 3 ? 'writer' : 'reader'
    const key = index % 7 === 6 ? null : KEYS[index % KEYS.length]!
    const id = await trial.create({ labels, principal, agent, key, at: 1_000 + index })
    ids.push(id)
    const status = STATUSES[index % STATUSES.length]!
    const isBusy = status === 'queued' || status === 'running' || status === 'waiting'
    const at = 50_000 + ((index * 7_919) % 36) * 400
    await trial.append(id, {
      at,
      pending: isBusy,
      closed: status === 'closed',
      ...(status === 'closed' ? {} : { status }),
      ...(index % 9 === 1 ? { shares: [{ with: 'alice', scopes: ['watch'] }] } : {}),
    })
  }
  await trial.create({ internal: true, key: 'chat:hidden', labels: { team: 'blue' }, node: NODE })
  const rows = ids.map(async (id) => (await store.read(id, 0, 0)).row!)
  return Promise.all(rows)
}

function isWanted(row: SessionRow, filters: Filters): boolean {
  const { state, status, key, agent, principal, keyPrefix, keyText, visibleTo } = filters
  const wanted = [filters.label ?? []].flat()
  const folded = row.key?.toLowerCase()
  const seenBy = [row.principal, ...row.shares.map((share) => share.with)]
  return (
    (state ?? row.state) === row.state &&
    (status ?? row.status) === row.status &&
    (key ?? row.key) === row.key &&
    (agent ?? row.agent) === row.agent &&
    (principal ?? row.principal) === row.principal &&
    wanted.every(({ name, value }) => row.labels[name] === value) &&
    (keyPrefix === undefined || folded?.startsWith(keyPrefix.toLowerCase()) === true) &&
    (keyText === undefined || folded?.includes(keyText.toLowerCase()) === true) &&
    (visibleTo === undefined || seenBy.some((one) => visibleTo.includes(one)))
  )
}

/** All pages, of which only the last may have no cursor. */
async function idsOf(store: Store, query: Filters & Partial<ListQuery>, limit: number) {
  const ids: string[] = []
  let cursor: string | null = null
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const found = await store.list({ ...query, limit, ...(cursor === null ? {} : { cursor }) })
    assert.ok(found.sessions.length <= limit)
    ids.push(...idsIn(found.sessions))
    cursor = found.nextCursor
    if (cursor === null) return ids
  }
  assert.fail('the list does not end')
}

function idsIn(rows: readonly SessionRow[]): readonly string[] {
  return rows.map(({ id }) => id)
}
