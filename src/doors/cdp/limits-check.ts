/** Checks changed limits at the start, alone and in combination. */
import { constants } from 'node:buffer'
import type { BrowserPool } from '../../browsers/index.ts'
import { invalid } from '../../core/index.ts'
import type { CdpLimits } from './limits.ts'
import { NAMES_BYTES } from './uplink.ts'

/** After a larger message Chromium stops reading. */
const CHROMIUM_BYTES_MAX = 104_857_600

/** Throws if a limit is invalid, or if two of them contradict each other. */
export function checkLimits(
  cdp: CdpLimits,
  pool: Pick<BrowserPool, 'limits' | 'names' | 'spec'>,
): void {
  const browser = pool.limits
  checkEach('cdpLimits', cdp)
  checkEach('browserLimits', browser)
  const { underwayBytesMax, messageBytesMax, pingMs, deadMs } = cdp
  // With more, no confirmation would be requested, and messages would never be sent.
  atMost('cdpLimits.signBytes', cdp.signBytes, 'underwayBytesMax', underwayBytesMax)
  const largest = CHROMIUM_BYTES_MAX - NAMES_BYTES
  atMost('cdpLimits.messageBytesMax', messageBytesMax, 'what Chromium reads', largest)
  const string = constants.MAX_STRING_LENGTH
  atMost('browserLimits.messageBytesMax', browser.messageBytesMax, 'the longest string', string)
  if (pingMs >= deadMs) {
    throw invalid('cdpLimits.pingMs', `must be less than deadMs: ${pingMs}, ${deadMs}`)
  }
  const inFlight = messageBytesMax + underwayBytesMax
  const isAddressed = pool.names.some((name) => 'address' in pool.spec(name))
  if (!isAddressed || browser.unreadBytesMax >= inFlight) return
  const both = 'cdpLimits.messageBytesMax and underwayBytesMax together'
  const why = `must be at least ${both}: ${browser.unreadBytesMax} is less than ${inFlight}`
  throw invalid('browserLimits.unreadBytesMax', why)
}

function checkEach(where: string, limits: Readonly<Record<string, number>>): void {
  for (const [name, limit] of Object.entries(limits)) {
    // A time limit may be 0; a count or size must be at least 1.
    const least = name.endsWith('Ms') ? 0 : 1
    if (Number.isSafeInteger(limit) && limit >= least) continue
    throw invalid(`${where}.${name}`, `must be a whole number, ${least} or more, not ${limit}`)
  }
}

function atMost(name: string, given: number, what: string, most: number): void {
  if (given > most) throw invalid(name, `must be at most ${what}: ${given} is more than ${most}`)
}
