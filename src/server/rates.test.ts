import { describe, expect, it } from 'vitest'
import { clientOf, Rates, type RateLimits } from './rates.ts'

const FAR = '203.0.113.7'
const OTHER = '203.0.113.8'

class FakeClock {
  ms = 0
  monotonic(): number {
    return this.ms
  }
}

function ratesOf(limits: Partial<RateLimits>) {
  const clock = new FakeClock()
  return { clock, rates: new Rates(clock, limits) }
}

/** How often it does not throw, of so many times. */
function passes(times: number, attempt: () => void): number {
  let passed = 0
  for (let n = 0; n < times; n += 1) {
    try {
      attempt()
      passed += 1
    } catch {
      // Counted by not being counted.
    }
  }
  return passed
}

describe('requests', () => {
  const limits = { requestsBurst: 4, requestsPerSecond: 2 }

  it('are admitted up to the burst, then as fast as time allows', () => {
    const { clock, rates } = ratesOf(limits)
    expect(passes(9, () => rates.admit(FAR))).toBe(4)
    clock.ms += 499
    expect(passes(9, () => rates.admit(FAR))).toBe(0)
    clock.ms += 1
    expect(passes(9, () => rates.admit(FAR))).toBe(1)
    clock.ms += 3_600_000
    expect(passes(9, () => rates.admit(FAR))).toBe(4)
  })

  it('that are refused say when to come back, and do not put that off', () => {
    const { clock, rates } = ratesOf(limits)
    passes(9, () => rates.admit(FAR))
    const refusal = { code: 'too_many', details: { retryAfterMs: 500 } }
    expect(() => rates.admit(FAR)).toThrow(expect.objectContaining(refusal))
    clock.ms += 500
    expect(() => rates.admit(FAR)).not.toThrow()
  })

  it('with a good token do not count with those of others at its address', () => {
    const { rates } = ratesOf(limits)
    passes(9, () => rates.admit(FAR))
    passes(9, () => rates.admit(FAR, () => 'one'))
    expect(passes(4, () => rates.admit(FAR, () => 'other'))).toBe(4)
    expect(() => rates.admit(FAR, () => 'one')).toThrow('too many requests')
  })

  it('of one client do not count for another, and on loopback not at all', () => {
    const { rates } = ratesOf(limits)
    passes(9, () => rates.admit(FAR))
    expect(passes(4, () => rates.admit(OTHER))).toBe(4)
    expect(passes(99, () => rates.admit('127.0.0.1'))).toBe(99)
  })
})

describe('bad tokens', () => {
  it('are 20 in a minute by default, on loopback too', () => {
    const { clock, rates } = ratesOf({})
    for (let n = 0; n < 20; n += 1) rates.failed('127.0.0.1')
    expect(() => rates.failed('127.0.0.1')).toThrow('too many bad tokens')
    expect(() => rates.failed(FAR)).not.toThrow()
    clock.ms += 60_000
    expect(passes(99, () => rates.failed('127.0.0.1'))).toBe(20)
  })
})

describe('connections', () => {
  it('of one client are bounded, and make room when they end', () => {
    const { rates } = ratesOf({ connectionsPerClientMax: 2 })
    expect([1, 2, 3].map(() => rates.connected(FAR))).toEqual([true, true, false])
    expect(rates.connected(OTHER)).toBe(true)
    rates.disconnected(FAR)
    expect([1, 2].map(() => rates.connected(FAR))).toEqual([true, false])
  })
})

describe('memory', () => {
  it('is bounded: the client that was silent for longest is forgotten', () => {
    const { rates } = ratesOf({ requestsBurst: 1, requestsPerSecond: 1, clientsMax: 2 })
    for (const address of [FAR, OTHER, '203.0.113.9']) rates.admit(address)
    expect(() => rates.admit(OTHER)).toThrow('too many requests')
    expect(() => rates.admit(FAR)).not.toThrow()
  })
})

describe('a client', () => {
  it.each([
    ['203.0.113.7', '203.0.113.7'],
    ['::ffff:203.0.113.7', '203.0.113.7'],
    ['::ffff:127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:DB8:1:2::9', '2001:db8:1:2'],
    ['2001:db8::9', '2001:db8:0:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
  ])('at %s is %s', (address, client) => {
    expect(clientOf(address)).toBe(client)
  })
})
