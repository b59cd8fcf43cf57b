import { describe, expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { until } from '../../test/support/gate.ts'
import { SharedCounts, UsedRate } from './shared-counts.ts'
import type { NodeCounts, Store } from './store.ts'

/** A store that several nodes share, as far as counts go. */
class Counting {
  readonly published = new Map<string, NodeCounts>()
  exchanges = 0
  isDown = false

  get store(): Pick<Store, 'cluster'> {
    return {
      cluster: { exchangeCounts: this.exchange } as unknown as NonNullable<Store['cluster']>,
    }
  }

  readonly exchange = async (node: string, counts: NodeCounts | null) => {
    this.exchanges += 1
    if (this.isDown) throw new Error('down')
    if (counts !== null) this.published.set(node, counts)
    return [...this.published].flatMap(([other, theirs]) => (other === node ? [] : [theirs]))
  }
}

/** A node whose next exchange comes when `tick` is called. */
function nodeOn(store: Pick<Store, 'cluster'>, node: string) {
  const time = { ms: 0 }
  const codes: string[] = []
  let due: (() => void) | null = null
  const counts = new SharedCounts({
    node,
    store,
    clock: {
      monotonic: () => time.ms,
      after: (_, run) => {
        due = run
        return () => (due = null)
      },
    },
    diagnose: (code) => void codes.push(code),
  })
  counts.start()
  const own: Record<string, number> = {}
  counts.add({ counts: () => Object.entries(own) })
  const tick = async (ms = 1_000): Promise<void> => {
    time.ms += ms
    const run = due
    due = null
    run?.()
    await until(() => due !== null)
  }
  return { counts, own, tick, time, codes, isWaiting: () => due !== null }
}

describe('SharedCounts', () => {
  it('tells each node the sums of the others', async () => {
    const { store } = new Counting()
    const [a, b, c] = [nodeOn(store, 'a'), nodeOn(store, 'b'), nodeOn(store, 'c')]
    Object.assign(a.own, { x: 2, y: 1 })
    Object.assign(b.own, { x: 0.25 })
    for (const node of [a, b, c, a]) await node.tick()
    expect([a, b, c].map(({ counts }) => counts.others('x'))).toEqual([0.25, 2, 2.25])
    a.own['x'] = 0
    for (const node of [a, b]) await node.tick()
    expect(b.counts.others('x')).toBe(0)
  })

  it('publishes while there is something, and once more when that is over', async () => {
    const counting = new Counting()
    const a = nodeOn(counting.store, 'a')
    await a.tick()
    expect(counting.published.has('a')).toBe(false)
    a.own['x'] = 1
    await a.tick()
    expect(counting.published.get('a')).toEqual({ x: 1 })
    a.own['x'] = 0
    await a.tick()
    expect(counting.published.get('a')).toEqual({})
  })

  it('publishes no more than the largest thousand of a source', async () => {
    const counting = new Counting()
    const a = nodeOn(counting.store, 'a')
    for (let index = 1; index <= 1_500; index += 1) a.own[`n${index}`] = index
    await a.tick()
    const published = counting.published.get('a') ?? {}
    expect(Object.keys(published)).toHaveLength(1_000)
    expect(published['n1500']).toBe(1_500)
  })

  it('forgets the others when the store is away for long, and says so', async () => {
    const counting = new Counting()
    const [a, b] = [nodeOn(counting.store, 'a'), nodeOn(counting.store, 'b')]
    a.own['x'] = 1
    for (const node of [a, b]) await node.tick()
    counting.isDown = true
    await b.tick(9_000)
    expect(b.counts.others('x')).toBe(1)
    await b.tick(9_000)
    expect([b.counts.others('x'), b.codes[0]]).toEqual([0, 'counts_not_exchanged'])
    counting.isDown = false
    await b.tick()
    expect(b.counts.others('x')).toBe(1)
  })

  it('asks nothing where nothing is counted, and no store of one node', async () => {
    const counting = new Counting()
    const idle = new SharedCounts({
      ...{ node: 'a', store: counting.store, diagnose: () => undefined },
      clock: { monotonic: () => 0, after: (_, run) => (setImmediate(run), () => undefined) },
    })
    idle.start()
    await new Promise((resolve) => setImmediate(resolve))
    idle.stop()
    expect(counting.exchanges).toBe(0)
    const alone = nodeOn(new MemoryStore() as Store, 'a')
    expect([alone.isWaiting(), alone.counts.isShared]).toEqual([false, false])
  })
})

describe('UsedRate', () => {
  it('gives back as much on all nodes together as on one', () => {
    const perMs = 0.01
    const rates = [new UsedRate(), new UsedRate(), new UsedRate()]
    let used = [30, 20, 10]
    rates.forEach((rate, index) => rate.set(used[index]!, 0))
    for (let now = 100; now <= 3_000; now += 100) {
      const sum = used.reduce((total, one) => total + one)
      const before = used
      used = rates.map((rate, index) => rate.usedAt(now, perMs, sum - before[index]!))
      rates.forEach((rate, index) => rate.set(used[index]!, now))
    }
    expect(used.reduce((total, one) => total + one)).toBeCloseTo(60 - 30, 5)
  })
})
