/** The real clock, randomness and digest, which callers pass to the core; and waiting. */
import { hash, randomFillSync } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
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

export const systemDigest: Digest = (data, encoding) =>
  hash('sha256', data, encoding ?? 'base64url')

/** Calls `run` when the signal aborts, at once if it has. Returns a function that prevents that. */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  if (signal.aborted) run()
  else signal.addEventListener('abort', run, { once: true })
  return () => signal.removeEventListener('abort', run)
}

/** The result of the work, or a rejection when the signal aborts; the work itself continues. */
export function unlessAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const ignore = onAbort(signal, () => reject(signal.reason as Error))
    work.finally(ignore).then(resolve, reject)
  })
}

/** Resolves after `ms`, or rejects with the signal's reason when it is aborted. */
export async function wait(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => signal.throwIfAborted())
}
