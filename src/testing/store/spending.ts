/** What principals have used on a day, added up by all nodes. */
import type { Spending } from '../../core/budgets.ts'
import assert from 'node:assert/strict'
import type { Claims } from './samples.ts'

const DAY = 20_000

function spent(principal: string, tokensPerDay: number, day = DAY): Spending {
  return { principal, day, tokensPerDay, costUsdPerDay: tokensPerDay / 4, runningMsPerDay: 0.5 }
}

/** A store without budgets has nothing to claim here. */
export const spendingClaims: Claims = {
  'adds up what is spent, by principal and day, and answers in order': async (_, store) => {
    if (store.spend === undefined) return
    const first = await store.spend([spent('a', 8), spent('b', 4), spent('a', 2, DAY + 1)])
    assert.deepEqual(amounts(first), [8, 4, 2])
    const second = await store.spend([spent('b', 1), spent('a', 0), spent('c', 3)])
    assert.deepEqual(amounts(second), [5, 8, 3])
    assert.equal(second[1]?.costUsdPerDay, 2)
    assert.equal(second[1]?.runningMsPerDay, 1)
  },

  'loses nothing of what many spend at once': async (_, store) => {
    if (store.spend === undefined) return
    const names = ['a', 'b', 'c']
    const spending = Array.from({ length: 30 }, (__, index) => {
      const [one, other] = [names[index % 3] ?? '', names[(index + 1) % 3] ?? '']
      return store.spend?.([spent(one, 1), spent(other, 1)]) ?? Promise.resolve([])
    })
    await Promise.all(spending)
    assert.deepEqual(amounts(await store.spend(names.map((name) => spent(name, 0)))), [20, 20, 20])
  },
}

function amounts(rows: readonly Spending[]): readonly number[] {
  return rows.map(({ tokensPerDay }) => tokensPerDay)
}
