import { afterEach, describe, expect, it, vi } from 'vitest'
import { systemClock } from '../platform/clock.ts'
import { AccessPolicy } from './access.ts'
import { SERVER_LIMITS } from './limits.ts'

/** Every token is good until it is taken back. */
function policyOf(taken: ReadonlySet<string>): AccessPolicy {
  const tokens = {
    scopesOf: (token: string) => (taken.has(token) ? null : (['watch'] as const)),
    revision: () => taken.size,
    close: () => undefined,
  }
  return new AccessPolicy('127.0.0.1', systemClock, { tokens }, null)
}

describe('what was let in by a token', () => {
  afterEach(() => vi.useRealTimers())

  it('ends once if its token is taken back, and not if it was over, in whatever order', () => {
    vi.useFakeTimers()
    const taken = new Set<string>()
    const policy = policyOf(taken)
    const ended: string[] = []
    const hold = (token: string) => policy.hold(token, ['watch'], () => void ended.push(token))
    const [first, , third, , , last] = ['a', 'b', 'c', 'd', 'e', 'f'].map(hold)
    for (const release of [first, last, third, first]) release?.()
    hold('g')
    for (const token of ['a', 'b', 'c', 'e', 'f', 'g']) taken.add(token)
    vi.advanceTimersByTime(SERVER_LIMITS.revocationMs)
    taken.add('d')
    vi.advanceTimersByTime(SERVER_LIMITS.revocationMs)
    policy.close()
    expect(ended.toSorted()).toEqual(['b', 'd', 'e', 'g'])
  })
})
