import { expect, it } from 'vitest'
import { RetentionSweep, type RetainingNode } from './retention-sweep.ts'
import type { ListQuery } from './store.ts'

it('counts no session twice after a sweep that failed', async () => {
  const rows = Array.from({ length: 7_500 }, (_, n) => {
    return { id: `s${n}`, labels: {}, agent: 'echo', principal: 'p', bytes: 1, updatedAt: 0 }
  })
  const erased: string[] = []
  let isFailing = false
  const list = async ({ cursor = '0', limit }: ListQuery) => {
    const from = Number(cursor)
    if (isFailing && from >= 6_000) throw new Error('the store is away')
    const nextCursor = from + limit < rows.length ? String(from + limit) : null
    return { sessions: rows.slice(from, from + limit), nextCursor }
  }
  const sweep = new RetentionSweep({
    ...{ node: 'n', archive: null, store: { list }, clock: { now: () => 1 } },
    ...{ limits: { retainMs: 10, listMax: 500 }, retention: [{ name: 'most', count: 7_000 }] },
    ...{ diagnose: () => undefined, counters: { sessionsRetired: 0, sessionsArchived: 0 } },
    erase: async (id: string) => void erased.push(id),
  } as unknown as RetainingNode)
  await sweep.sweep()
  isFailing = true
  await expect(sweep.sweep()).rejects.toThrow('away')
  isFailing = false
  await sweep.sweep()
  await sweep.sweep()
  expect(erased).toEqual(rows.slice(7_000).map(({ id }) => id))
})
