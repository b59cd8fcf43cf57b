import { expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { LIMITS } from './limits.ts'
import { Losses, SessionLoader } from './loading.ts'
import type { Claim } from './store.ts'

it('blames the node that held the session last', () => {
  const losses = new Losses()
  losses.add('s')
  expect(losses.reasonOf('s', false, true)).toBe('hold_lost')
  losses.add('s')
  // Another node has had it since.
  expect(losses.reasonOf('s', true, true)).toBe('node_lost')
  expect(losses.reasonOf('s', false, true)).toBe('node_lost')
  expect(losses.reasonOf('s', false, false)).toBe('server_crashed')
})

it('forgets a session that it lost when another node has it, and when it is over', () => {
  const losses = new Losses()
  const over = { type: 'claimed', epoch: null } as Claim
  for (const claim of [{ type: 'owned', node: 'b' }, { type: 'erased' }, over] as const) {
    losses.add('s')
    expect(losses.judge('s', claim)).toBe(claim)
    // That node may have given it back, so that it is not taken over.
    expect(losses.reasonOf('s', false, true)).toBe('node_lost')
  }
  losses.add('s')
  losses.judge('s', { type: 'claimed', epoch: 2 } as Claim)
  expect(losses.reasonOf('s', false, true)).toBe('hold_lost')
})

it('folds a closed session whose snapshot is outdated once, not for every request', async () => {
  const store = new MemoryStore()
  const options = { key: null, agent: 'echo', internal: false, labels: {} }
  const rest = { reconnect: 'reopen', exclusive: false, graceMs: 0, ttlMs: null }
  const created = { type: 'session.created', seq: 1, at: 1, id: 's', ...options, ...rest }
  const place = {
    principal: 'default',
    explicit: true,
    node: 'a',
    at: 1,
    expiresAt: null,
    body: JSON.stringify(created),
  }
  await store.reserve({ id: 's', ...options, ...place })
  const closed = { type: 'session.closed', seq: 2, at: 2, reason: 'done' }
  const end = { events: [JSON.stringify(closed)], closed: true, pending: false, expiresAt: null }
  await store.append([{ session: 's', epoch: 1, after: 1, snapshot: '{}', at: 2, ...end }])
  let reads = 0
  const read = store.read.bind(store)
  store.read = (...place) => ((reads += 1), read(...place))
  const told: string[] = []
  const clock = { now: () => 1, monotonic: () => 1, after: () => () => undefined }
  const context = { store, clock, digest: String, limits: LIMITS }
  const loader = new SessionLoader({ ...context, diagnose: (code) => void told.push(code) }, 'a')
  const load = () => loader.readClosed('s')
  const loads = await Promise.all([load(), load()])
  for (const session of [...loads, await load()]) {
    expect(session).toMatchObject({ id: 's', seq: 2, closed: { reason: 'done' } })
  }
  expect([reads, told]).toEqual([1, ['snapshot_outdated']])
})
