/** Activities of agents, as the log keeps them. */
import type { Limits } from './limits.ts'
import type { Activity } from './state.ts'

/** Names what was left out at the end of a turn that did more than is recorded. */
export const DROPPED_KIND = 'activities_dropped'

const KIND = /^[\w.:-]{1,64}$/
/** How much of an activity that is too large is kept, in characters. */
const HEAD_CHARS = 2_000

/**
 * What a runner tells about its work besides the answer (a tool it used, what the turn cost), as
 * the log keeps it: one that is too large leaves its size and its beginning. Nothing decides by it.
 */
export function boundActivity({ kind, data }: Activity, { activityCharsMax }: Limits): Activity {
  if (typeof kind !== 'string' || !KIND.test(kind)) {
    throw new TypeError("an activity's kind must be 1 to 64 letters, digits and _ . : -")
  }
  const json = JSON.stringify(data) ?? 'null'
  if (json.length <= activityCharsMax) return { kind, data: data ?? null }
  const head = json.slice(0, Math.min(HEAD_CHARS, activityCharsMax)).toWellFormed()
  return { kind, data: { truncated: true, chars: json.length, head } }
}
