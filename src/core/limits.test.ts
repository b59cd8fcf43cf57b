import { describe, expect, it } from 'vitest'
import { limitsFrom } from './limits.ts'

describe('limits that were set', () => {
  const table = { waitMs: 5, queueMax: 3 }

  it('take the place of the default ones', () => {
    expect(limitsFrom(table, { waitMs: 0, queueMax: undefined }, 'limits')).toEqual({
      waitMs: 0,
      queueMax: 3,
    })
  })

  it.each([
    [{ waitsMs: 1 }, 'there is no limit limits.waitsMs'],
    [{ toString: 1 }, 'there is no limit limits.toString'],
    [{ waitMs: -1 }, 'limits.waitMs must be a number, 0 or more, not -1'],
    [{ waitMs: Number.NaN }, 'limits.waitMs must be a number, 0 or more, not NaN'],
    [{ waitMs: '1' }, 'limits.waitMs must be a number, 0 or more, not 1'],
  ])('are refused by name if they are none: %o', (given, problem) => {
    expect(() => limitsFrom(table, given as object, 'limits')).toThrow(problem)
  })
})
