/** The real clock, randomness and digest, which callers pass to the core. */
import { hash, randomFillSync } from 'node:crypto'
import type { Clock, Digest, Entropy } from '../core/index.ts'

/** The longest delay of a Node timer; a longer one is made of several. */
const TIMER_MS_MAX = 2_147_483_647

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, run) {
    if (ms === 0) {
      const immediate = setImmediate(run)
      return () => clearImmediate(immediate)
    }
    let timer: NodeJS.Timeout
    const arm = (left: number): void => {
      const step = Math.min(left, TIMER_MS_MAX)
      timer = setTimeout(() => (left > step ? arm(left - step) : run()), step)
    }
    arm(ms)
    return () => clearTimeout(timer)
  },
}

const ID_BYTES = 16
/** Random bytes for many ids: one large draw costs about as much as a small one. */
const pool = Buffer.alloc(ID_BYTES * 256)
let used = pool.length

function drawId(): string {
  if (used === pool.length) {
    randomFillSync(pool)
    used = 0
  }
  used += ID_BYTES
  return pool.toString('base64url', used - ID_BYTES, used)
}

export const systemEntropy: Entropy = {
  id() {
    let id = drawId()
    // A command line would take it for a flag.
    while (id.startsWith('-')) id = drawId()
    return id
  },
}

export const systemDigest: Digest = (text) => hash('sha256', text, 'base64url')
