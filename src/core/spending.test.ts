import { describe, expect, it } from 'vitest'
import { HoldfastError } from './errors.ts'
import { DaySpendings } from './spending.ts'
import type { BudgetOptions, Spending } from './budgets.ts'

const DAY_MS = 86_400_000
const USAGE = { inputTokens: 6, outputTokens: 4, cachedTokens: 0, costUsd: 1 }

/** A node whose clock is moved by hand, on a store that may fail. */
function node(options: BudgetOptions) {
  const rows = new Map<string, Spending>()
  const timers = new Map<number, () => void>()
  const state = { at: 100 * DAY_MS, isFailing: false, told: [] as string[], ended: [] as string[] }
  let timer = 0
  const add = (one: Spending): Spending => {
    const name = `${one.day} ${one.principal}`
    const before = rows.get(name)
    const total = { ...one }
    if (before !== undefined) {
      total.tokensPerDay += before.tokensPerDay
      total.costUsdPerDay += before.costUsdPerDay
      total.runningMsPerDay += before.runningMsPerDay
    }
    rows.set(name, total)
    return total
  }
  const context = {
    store: {
      spend: async (used: readonly Spending[]) => {
        if (state.isFailing) throw new Error('no store')
        return used.map(add)
      },
    },
    clock: {
      now: () => state.at,
      monotonic: () => state.at,
      after: (_ms: number, run: () => void) => {
        const id = (timer += 1)
        timers.set(id, run)
        return () => void timers.delete(id)
      },
    },
    digest: (data: string | Uint8Array) => String(data),
    diagnose: (code: string) => void state.told.push(code),
    counters: { budgetRefusals: 0, budgetEnds: 0 },
    endTurn: (session: string, turn: string) => void state.ended.push(`${session} ${turn}`),
  }
  /** Lets time pass, runs what is due, and waits for what that begins. */
  const pass = async (ms: number): Promise<void> => {
    state.at += ms
    for (const [id, run] of [...timers]) {
      timers.delete(id)
      run()
    }
    await new Promise((resolve) => setImmediate(resolve))
  }
  return { spendings: new DaySpendings(context, options), rows, timers, state, pass }
}

describe('what a principal spends', () => {
  it('is added up by day, and begins anew with each', async () => {
    const { spendings, rows, pass } = node({ default: { tokensPerDay: 10 } })
    const bob = spendings.of('bob')!
    await spendings.measuring(bob)
    spendings.use(bob, USAGE)
    expect(() => spendings.assertLeft(bob, false)).toThrow(HoldfastError)
    await pass(DAY_MS)
    await spendings.measuring(bob)
    expect(() => spendings.assertLeft(bob, false)).not.toThrow()
    expect([...rows].map(([name, { tokensPerDay }]) => [name, tokensPerDay])).toEqual([
      ['100 budget bob', 10],
      ['101 budget bob', 0],
    ])
  })

  it('has the time of turns until midnight on the day before', async () => {
    const { spendings, rows, pass, state } = node({ default: { runningMsPerDay: DAY_MS } })
    const bob = spendings.of('bob')!
    await spendings.measuring(bob)
    spendings.start(bob, 's', 't')
    state.at += DAY_MS - 1_500
    await pass(1_000)
    await pass(1_000)
    expect(rows.get('100 budget bob')?.runningMsPerDay).toBe(DAY_MS - 500)
    spendings.end(bob, 's', 't')
    await pass(0)
    expect(rows.get('101 budget bob')?.runningMsPerDay).toBe(1_000)
  })

  it('is kept while the store fails, and reported once it does not', async () => {
    const { spendings, rows, pass, state, timers } = node({ default: { tokensPerDay: 100 } })
    const bob = spendings.of('bob')!
    await spendings.measuring(bob)
    state.isFailing = true
    spendings.use(bob, USAGE)
    await pass(1_000)
    expect(state.told).toContain('budgets_not_stored')
    expect(bob.used.tokensPerDay).toBe(10)
    state.isFailing = false
    await pass(1_000)
    expect(rows.get('100 budget bob')?.tokensPerDay).toBe(10)
    await pass(1_000)
    expect(timers.size).toBe(0)
  })

  it('ends its turns at the bound if that is wanted, and is told once', async () => {
    const { spendings, state, pass } = node({ default: { costUsdPerDay: 1 }, onExceeded: 'end' })
    const bob = spendings.of('bob')!
    spendings.start(bob, 's', 't1')
    spendings.use(bob, USAGE)
    await pass(0)
    expect(state.ended).toContain('s t1')
    expect(() => spendings.assertLeft(bob, false)).toThrow('costUsdPerDay is used up: 1 of 1')
    expect(() => spendings.assertLeft(bob, true)).toThrow(/used up$/)
    expect(state.told.filter((code) => code === 'budget_reached')).toHaveLength(1)
  })

  it('is not counted without a budget', () => {
    const { spendings } = node({ principals: { bob: { tokensPerDay: 1 } } })
    expect(spendings.of('carol')).toBeNull()
    expect(spendings.of('bob')).not.toBeNull()
    spendings.configure({})
    expect(spendings.of('bob')).toBeNull()
  })
})
