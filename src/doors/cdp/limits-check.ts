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
  const { signBytes, underwayBytesMax, messageBytesMax } = cdp
  if (signBytes > underwayBytesMax) {
    // No sign would be requested, and messages would wait for ever.
    throw invalid('cdpLimits.signBytes', atMost(signBytes, 'underwayBytesMax', underwayBytesMax))
  }
  if (cdp.pingMs >= cdp.deadMs) {
    throw invalid('cdpLimits.pingMs', `must be less than deadMs: ${cdp.pingMs}, ${cdp.deadMs}`)
  }
  const largest = CHROMIUM_BYTES_MAX - NAMES_BYTES
  if (messageBytesMax > largest) {
    throw invalid(
      'cdpLimits.messageBytesMax',
      atMost(messageBytesMax, 'what Chromium reads', largest),
    )
  }
  const onTheWay = messageBytesMax + underwayBytesMax
  const isAddressed = pool.names.some((name) => 'address' in pool.spec(name))
  if (isAddressed && browser.unreadBytesMax < onTheWay) {
    const both = 'cdpLimits.messageBytesMax and underwayBytesMax together'
    const why = `must be at least ${both}: ${browser.unreadBytesMax} is less than ${onTheWay}`
    throw invalid('browserLimits.unreadBytesMax', why)
  }
  const text = constants.MAX_STRING_LENGTH
  if (browser.messageBytesMax > text) {
    const why = atMost(browser.messageBytesMax, 'the longest text there can be', text)
    throw invalid('browserLimits.messageBytesMax', why)
  }
}

function checkEach(where: string, limits: Readonly<Record<string, number>>): void {
  for (const [name, limit] of Object.entries(limits)) {
    // A time limit may be 0; a count or size must be at least 1.
    const least = name.endsWith('Ms') ? 0 : 1
    if (Number.isSafeInteger(limit) && limit >= least) continue
    throw invalid(`${where}.${name}`, `must be a whole number, ${least} or more, not ${limit}`)
  }
}

function atMost(given: number, what: string, most: number): string {
  return `must be at most ${what}: ${given} is more than ${most}`
}
