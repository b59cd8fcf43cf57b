import { describe, expect, it } from 'vitest'
import { coreLimits, LIMIT_MAX, LIMITS, limitsFrom, type Limits } from './limits.ts'

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

describe('limits of the core', () => {
  it('are whole and finite, so that a time or a count made of them is one too', () => {
    const given = Object.keys(LIMITS).map((name) => [name, Number.POSITIVE_INFINITY])
    const unlimited = coreLimits(Object.fromEntries(given) as Partial<Limits>)
    for (const limit of Object.values(unlimited)) expect(limit).toBe(LIMIT_MAX)
    expect(Number.isSafeInteger(Date.now() + LIMIT_MAX)).toBe(true)
    expect(coreLimits({ idempotencyMs: 0.5, idempotencyKeysMax: 2 ** 60 })).toMatchObject({
      idempotencyMs: 1,
      idempotencyKeysMax: LIMIT_MAX,
    })
  })

  it('are refused where nothing could ever be done with none', () => {
    expect(() => coreLimits({ pageEvents: 0 })).toThrow('limits.pageEvents must be at least 1')
    expect(coreLimits({ queuedTurnsMax: 0 }).queuedTurnsMax).toBe(0)
  })
})
