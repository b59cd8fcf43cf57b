import { describe, expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { sampleAppend, sampleReservation } from '../testing/store/samples.ts'
import { ChangeFeed } from './commits.ts'
import type { Clock } from './clock.ts'
import { LIMITS } from './limits.ts'
import type { ChangePage } from './store.ts'

/** Timers that run when they are told to. */
class Timers implements Pick<Clock, 'after'> {
  readonly due: { ms: number; run: () => void }[] = []

  after(ms: number, run: () => void): () => void {
    const timer = { ms, run }
    this.due.push(timer)
    return () => {
      const index = this.due.indexOf(timer)
      if (index >= 0) this.due.splice(index, 1)
    }
  }

  async fire(): Promise<number | undefined> {
    while (this.due.length === 0) await new Promise(setImmediate)
    const timer = this.due.shift()
    timer?.run()
    return timer?.ms
  }
}

function world() {
  const store = new MemoryStore()
  const timers = new Timers()
  const clock: Clock = { now: () => 0, monotonic: () => 0, after: timers.after.bind(timers) }
  const feed = new ChangeFeed({ store, clock, limits: LIMITS })
  let reads = 0
  const changes = store.changes.bind(store)
  store.changes = (after, limit) => {
    reads += 1
    return changes(after, limit)
  }
  const create = (id: string, internal = false): Promise<unknown> =>
    store.reserve(sampleReservation({ id, internal }))
  return { store, timers, feed, create, reads: () => reads }
}

function ids(page: IteratorResult<ChangePage, void>): readonly string[] | undefined {
  return page.value?.changes.map(({ row }) => row.id)
}

describe('a follower of the change feed', () => {
  it('is told of what changed after its position, and then of what changes', async () => {
    const { store, timers, feed, create } = world()
    await create('before')
    const { position } = await store.changes(null, 0)
    await create('a')
    const follower = feed.follow({ after: position })
    expect(ids(await follower.next())).toEqual(['a'])
    const next = follower.next()
    // Waits for another node.
    while (timers.due.length === 0) await new Promise(setImmediate)
    await create('b')
    feed.committed()
    feed.committed()
    expect(timers.due.map(({ ms }) => ms)).toEqual([100])
    await timers.fire()
    expect(ids(await next)).toEqual(['b'])
  })

  it('finds what another node has committed, without being woken', async () => {
    const { timers, feed, create } = world()
    const next = feed.follow({}).next()
    while (timers.due.length === 0) await new Promise(setImmediate)
    await create('a')
    expect(await timers.fire()).toBe(500)
    expect(ids(await next)).toEqual(['a'])
  })

  it('is told of no internal session, and goes on after it', async () => {
    const { feed, create } = world()
    const follower = feed.follow({ after: 0 })
    await create('hidden', true)
    await create('a')
    expect(ids(await follower.next())).toEqual(['a'])
  })

  it('misses no commit between its read and its wait', async () => {
    const { store, feed, create } = world()
    const changes = store.changes.bind(store)
    let isFirst = true
    store.changes = async (after, limit) => {
      const page = await changes(after, limit)
      if (isFirst) {
        isFirst = false
        await create('a')
        feed.committed()
      }
      return page
    }
    expect(ids(await feed.follow({ after: 0 }).next())).toEqual(['a'])
  })

  it('shares its reads with those at the same position', async () => {
    const { feed, timers, create, reads } = world()
    const followers = Array.from({ length: 20 }, () => feed.follow({ after: 0 }).next())
    while (timers.due.length === 0) await new Promise(setImmediate)
    expect(reads()).toBe(1)
    await create('a')
    await timers.fire()
    await Promise.all(followers)
    expect(reads()).toBe(2)
  })

  it('ends with its signal, and when Holdfast is closed', async () => {
    const { feed, timers } = world()
    const stop = new AbortController()
    const stopped = feed.follow({ signal: stop.signal }).next()
    const closed = feed.follow({}).next()
    while (timers.due.length === 0) await new Promise(setImmediate)
    stop.abort()
    expect(await stopped).toEqual({ done: true, value: undefined })
    feed.close()
    expect(await closed).toEqual({ done: true, value: undefined })
    expect(timers.due).toEqual([])
  })

  it('waits for nothing more if it is closed, or left, while it reads (seed 3949)', async () => {
    for (const end of ['close', 'abort'] as const) {
      const { store, feed, timers } = world()
      const stop = new AbortController()
      const changes = store.changes.bind(store)
      store.changes = async (after, limit) => {
        const page = await changes(after, limit)
        if (end === 'close') feed.close()
        else stop.abort()
        return page
      }
      const next = await feed.follow({ after: 0, signal: stop.signal }).next()
      expect([next, timers.due]).toEqual([{ done: true, value: undefined }, []])
    }
  })

  it('learns that its position is gone', async () => {
    const { store, feed, create } = world()
    await create('a')
    for (let after = 1; after < 20_000; after += 1)
      await store.append([sampleAppend('a', { after })])
    const { position } = await store.changes(null, 0)
    await expect(feed.follow({ after: 0 }).next()).rejects.toMatchObject({ code: 'changes_gone' })
    await expect(store.changes(position - 10_000, 1)).resolves.toMatchObject({})
  })
})
