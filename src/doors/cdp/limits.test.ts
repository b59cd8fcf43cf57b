import { describe, expect, it } from 'vitest'
import { BrowserPool, type BrowserLimits } from '../../browsers/index.ts'
import { CDP_LIMITS, checkLimits } from './limits.ts'

const clock = { now: () => 0, monotonic: () => 0, after: () => () => undefined }

function pool(limits: Partial<BrowserLimits> = {}): BrowserPool {
  return new BrowserPool({ browsers: { far: { address: 'ws://far' } }, clock, limits })
}

describe('bounds of browsers and their clients', () => {
  it('make sense as they are', () => {
    expect(() => checkLimits(CDP_LIMITS, pool())).not.toThrow()
  })

  it.each([
    [{ underwayBytesMax: 1_000 }, {}, /^cdpLimits.signBytes .*underwayBytesMax: 524288 .* 1000$/],
    [{ deadMs: 15_000 }, {}, /^cdpLimits.pingMs must be less than deadMs: 15000, 15000$/],
    [{ messageBytesMax: 104_857_600 }, {}, /^cdpLimits.messageBytesMax .*what Chromium reads/],
    [{}, { unreadBytesMax: 1e8 }, /^browserLimits.unreadBytesMax .*messageBytesMax and underway/],
    [{}, { messageBytesMax: 2 ** 40 }, /^browserLimits.messageBytesMax must be at most/],
    [{ openingMax: 0 }, {}, /^cdpLimits.openingMax must be a whole number, 1 or more, not 0$/],
    [{ clientsMax: 1.5 }, {}, /^cdpLimits.clientsMax must be a whole number/],
    [{}, { startMs: Number.NaN }, /^browserLimits.startMs must be a number, 0 or more/],
    [{}, { idleMs: -1 }, /^browserLimits.idleMs must be a number, 0 or more/],
  ])('are refused at the start, and both named: %j %j', (cdp, browser, message) => {
    const check = (): void => checkLimits({ ...CDP_LIMITS, ...cdp }, pool(browser))
    expect(check).toThrow(expect.objectContaining({ code: 'invalid_field' }))
    expect(check).toThrow(message)
  })
})
