/** Every limit of the CDP door, named with its unit, and the check of limits that were changed. */
import { constants } from 'node:buffer'
import type { BrowserPool } from '../../browsers/index.ts'
import { invalid } from '../../core/index.ts'

export const CDP_LIMITS = {
  /** One message of a client. After a message of 100 MiB Chromium stops reading. */
  messageBytesMax: 100_000_000,
  /** Data in flight to a browser, and after how much the browser is asked to confirm it. */
  underwayBytesMax: 2_097_152,
  signBytes: 524_288,
  /** Commands with smaller params do not count against `pendingBytesMax`. */
  smallBytes: 4_096,
  /** Values in a command: 30 million of them block a browser for five seconds. */
  valuesMax: 4_194_304,
  /** Values in a command that a rule reads. */
  readValuesMax: 262_144,
  /** A message that the scan does not accept, and that has to be parsed. */
  oddBytesMax: 1_048_576,
  /** Commands of one client without a reply, and how many more of `Target`. */
  pendingMax: 16_384,
  pendingTargetMax: 1_024,
  pendingBytesMax: 268_435_456,
  /** Sessions of one client; pages, contexts and clients of one browser session. */
  sessionsMax: 4_096,
  targetsMax: 512,
  /** Pages and contexts that one browser session opens or closes at once; more wait. */
  openingMax: 8,
  contextsMax: 256,
  clientsMax: 1_024,
  /** Downloads of one browser session, and how often they are measured, with an egress rule. */
  downloadBytesMax: 1_073_741_824,
  downloadsMs: 2_000,
  /** Params of a command that makes a page or a context. */
  makingCharsMax: 262_144,
  /** Browser sessions, and their clients, on one shared browser. */
  browserSessionsMax: 256,
  browserClientsMax: 2_048,
  /** Data that a client has not read when the next message comes. */
  unreadBytesMax: 134_217_728,
  /** The same for all clients of a server: the client with the most is cut first. */
  unreadTotalBytesMax: 1_073_741_824,
  /** Silence after which a client is pinged, and after which its connection is cut. */
  pingMs: 15_000,
  deadMs: 40_000,
  /** After how long without a connection the server acts for a client. */
  absentMs: 2_000,
  /** Unconfirmed messages of a resumable client. */
  heldBytesMax: 67_108_864,
  /** The same for all of them: the client with the most ends first. */
  heldTotalBytesMax: 1_073_741_824,
  /** One recording, and its data that is not written yet. */
  recordBytesMax: 1_073_741_824,
  recordUnwrittenBytesMax: 16_777_216,
  /** Of a larger message only id, method and session are recorded. */
  recordMessageBytesMax: 4_194_304,
  /** How long an unused browser session is kept, unless its creator sets `ttlMs`. */
  idleSessionMs: 3_600_000,
} as const

export type CdpLimits = { readonly [Name in keyof typeof CDP_LIMITS]: number }

/** After a larger message Chromium stops reading. */
const CHROMIUM_BYTES_MAX = 104_857_600
/** By this much a message may grow when its ids are replaced. */
export const NAMES_BYTES = 128

/** Throws if a limit is invalid, or if two of them contradict each other. */
export function checkLimits(cdp: CdpLimits, pool: BrowserPool): void {
  const { limits: browser, names } = pool
  for (const [name, limit] of Object.entries(cdp)) checkWhole(`cdpLimits.${name}`, limit)
  for (const [name, limit] of Object.entries(browser)) checkWhole(`browserLimits.${name}`, limit)
  const { underwayBytesMax, messageBytesMax, pingMs, deadMs } = cdp
  // With more, no confirmation would be requested, and messages would never be sent.
  atMost('cdpLimits.signBytes', cdp.signBytes, 'underwayBytesMax', underwayBytesMax)
  const [chromium, string] = [CHROMIUM_BYTES_MAX - NAMES_BYTES, constants.MAX_STRING_LENGTH]
  atMost('cdpLimits.messageBytesMax', messageBytesMax, 'what Chromium reads', chromium)
  atMost('browserLimits.messageBytesMax', browser.messageBytesMax, 'the longest string', string)
  if (pingMs >= deadMs) {
    throw invalid('cdpLimits.pingMs', `must be less than deadMs: ${pingMs}, ${deadMs}`)
  }
  const inFlight = messageBytesMax + underwayBytesMax
  const isAddressed = names.some((name) => 'address' in pool.spec(name))
  if (!isAddressed || browser.unreadBytesMax >= inFlight) return
  const both = 'cdpLimits.messageBytesMax and underwayBytesMax together'
  const why = `must be at least ${both}: ${browser.unreadBytesMax} is less than ${inFlight}`
  throw invalid('browserLimits.unreadBytesMax', why)
}

/** A time limit may be 0; a count or size must be at least 1. */
function checkWhole(name: string, limit: number): void {
  const least = name.endsWith('Ms') ? 0 : 1
  if (Number.isSafeInteger(limit) && limit >= least) return
  throw invalid(name, `must be a whole number, ${least} or more, not ${limit}`)
}

function atMost(name: string, given: number, what: string, most: number): void {
  if (given > most) throw invalid(name, `must be at most ${what}: ${given} is more than ${most}`)
}

/** Keeps a map within a size: its oldest entry is forgotten. */
export function dropOldest<Key>(map: Map<Key, unknown>, sizeMax: number): void {
  const [oldest] = map.keys()
  if (map.size > sizeMax && oldest !== undefined) map.delete(oldest)
}

/** The largest items to drop, so that the others together are within a total. */
export function largestBeyond<Item>(
  items: Iterable<Item>,
  bytesOf: (item: Item) => number,
  totalMax: number,
): readonly Item[] {
  const sized = Array.from(items, (item) => ({ item, bytes: bytesOf(item) }))
  let excess = sized.reduce((sum, { bytes }) => sum + bytes, -totalMax)
  const beyond: Item[] = []
  for (const { item, bytes } of sized.sort((one, other) => other.bytes - one.bytes)) {
    if (excess <= 0) break
    excess -= bytes
    beyond.push(item)
  }
  return beyond
}
