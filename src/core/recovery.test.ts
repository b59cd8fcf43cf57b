import { describe, expect, it } from 'vitest'
import type { Diagnostic } from './diagnostics.ts'
import { diagnoseTo } from './diagnostics.ts'
import { HoldfastError } from './errors.ts'
import { LIMITS } from './limits.ts'
import { Sweeper, type SweptNode } from './recovery.ts'
import type { ListQuery, SessionRow, Store } from './store.ts'

const NO_ARCHIVE = {
  retention: [],
  archive: null,
  counters: { sessionsRetired: 0, sessionsArchived: 0 },
}

/** A house of expired and of long closed sessions, and one sweep at a time. */
function house(
  count: number,
  fails: (id: string) => Error | null = () => null,
  lease: { leftMs: number } | null = null,
) {
  const open = new Set(Array.from({ length: count }, (_, n) => `open${n}`))
  const closed = new Set(Array.from({ length: count }, (_, n) => `closed${n}`))
  const diagnostics: Diagnostic[] = []
  const pages: ListQuery[] = []
  let sweep = (): void => undefined
  const list = async (query: ListQuery) => {
    pages.push(query)
    const of = query.expiredAt === undefined ? closed : open
    const all = query.pendingFor === undefined ? [...of] : []
    const rows = all.map((id) => ({ id, number: Number(id.replace(/\D+/, '')), updatedAt: 0 }))
    const found = rows.filter(({ number }) => number < Number(query.cursor ?? Infinity))
    const page = found.sort((a, b) => b.number - a.number).slice(0, query.limit)
    const nextCursor = found.length > page.length ? String(page.at(-1)?.number) : null
    return { sessions: page as unknown as SessionRow[], nextCursor }
  }
  const act = async (from: Set<string>, id: string): Promise<void> => {
    const failure = fails(id)
    if (failure !== null) throw failure
    from.delete(id)
  }
  const swept: SweptNode = {
    node: 'a',
    store: { list } as unknown as Store,
    clock: {
      now: () => 1e12,
      monotonic: () => 0,
      after: (_ms, run) => ((sweep = run), () => undefined),
    },
    limits: { ...LIMITS, listMax: 500 },
    diagnose: diagnoseTo((diagnostic) => diagnostics.push(diagnostic)),
    open: async (id) => ({ post: () => act(open, id) }) as never,
    erase: (id) => act(closed, id),
    lease,
    heldSession: () => null,
    trim: () => undefined,
    ...NO_ARCHIVE,
  }
  const sweeper = new Sweeper(swept)
  const runSweep = async (): Promise<void> => {
    const before = sweep
    before()
    await expect.poll(() => sweep === before).toBe(false)
  }
  return { open, closed, diagnostics, pages, sweeper, runSweep }
}

it('closes every expired session and erases every old log, however many there are', async () => {
  const { open, closed, sweeper, runSweep, diagnostics } = house(1_700)
  await sweeper.start()
  await runSweep()
  expect([open.size, closed.size, diagnostics]).toEqual([0, 0, []])
  sweeper.stop()
})

it('works on a bounded number in one sweep, and goes on behind them in the next', async () => {
  const { open, closed, sweeper, runSweep } = house(6_000)
  await sweeper.start()
  await runSweep()
  expect([open.size, closed.size]).toEqual([1_000, 1_000])
  await runSweep()
  expect([open.size, closed.size]).toEqual([0, 0])
  sweeper.stop()
})

it('is not held up by those that always fail, and reports them', async () => {
  // More than a page, and more than a sweep, of the newest ones: they come first.
  const isBad = (id: string): boolean => Number(id.replace(/\D+/, '')) >= 100
  const { open, closed, sweeper, runSweep, diagnostics } = house(5_700, (id) =>
    isBad(id) ? new HoldfastError('store_corrupt', 'its log is torn') : null,
  )
  await sweeper.start()
  for (let sweep = 0; sweep < 2; sweep += 1) await runSweep()
  expect([...open, ...closed].filter((id) => !isBad(id))).toEqual([])
  expect(diagnostics[0]).toMatchObject({
    code: 'sweep_failed',
    facts: { reason: 'expire', session: 'open5699', error: 'its log is torn' },
  })
  sweeper.stop()
})

it('does not report what another node holds, or what is closed by now', async () => {
  const { sweeper, runSweep, diagnostics } = house(10, (id) =>
    id.startsWith('open')
      ? new HoldfastError('not_owner', 'another node holds it')
      : new HoldfastError('session_closed', 'it is closed'),
  )
  await sweeper.start()
  await runSweep()
  expect(diagnostics).toEqual([])
  sweeper.stop()
})

it('opens no expired session without a lease, and all of them when it is back', async () => {
  const lease = { leftMs: 2 }
  const opened: string[] = []
  // Lost in the middle of a sweep.
  const open = (id: string): null => {
    if (id.startsWith('open')) lease.leftMs = opened.push(id) === 2 ? 0 : 1
    return null
  }
  const { open: left, sweeper, runSweep } = house(1_000, open, lease)
  await sweeper.start()
  await runSweep()
  expect([opened.length, left.size]).toEqual([2, 998])
  lease.leftMs = 1
  await runSweep()
  expect(left.size).toBe(0)
  sweeper.stop()
})

describe('sessions that were lost with the lease', () => {
  function leaseless(open: () => Promise<never>) {
    const timers: { readonly ms: number; readonly run: () => void }[] = []
    const told: string[] = []
    const lease = { leftMs: 0 }
    const clock = { now: () => 0, monotonic: () => 0 }
    const swept = {
      node: 'a',
      store: {} as Store,
      clock: { ...clock, after: (ms: number, run: () => void) => (timers.push({ ms, run }), run) },
      limits: LIMITS,
      diagnose: diagnoseTo(({ code }) => void told.push(code)),
      lease,
      open,
      erase: async () => undefined,
      heldSession: () => null,
      trim: () => undefined,
      ...NO_ARCHIVE,
    }
    const sweeper = new Sweeper(swept)
    for (const id of ['x', 'y', 'z']) sweeper.pickUp(id)
    return { timers, told, lease }
  }

  it('are not tried without one, and tried together when it is back', async () => {
    let opened = 0
    const { timers, told, lease } = leaseless(async () => ((opened += 1), {}) as never)
    for (let tries = 0; tries < 4; tries += 1) {
      timers[tries]?.run()
      await expect.poll(() => timers.length).toBe(tries + 2)
    }
    expect([opened, told]).toEqual([0, []])
    lease.leftMs = 1
    timers[4]?.run()
    await expect.poll(() => opened).toBe(3)
  })

  it('are tried less often while it is lost in each try, and not reported one by one', async () => {
    const error = new HoldfastError('lease_lost', 'this node has lost its lease')
    const { timers, told, lease } = leaseless(() => Promise.reject(error))
    lease.leftMs = 1
    for (let tries = 0; tries < 4; tries += 1) {
      timers[tries]?.run()
      await expect.poll(() => timers.length).toBe(tries + 2)
      // The interval is decided when the last of them has failed.
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    expect(told).toEqual([])
    expect(timers.at(-1)?.ms).toBe(1_000)
  })
})
