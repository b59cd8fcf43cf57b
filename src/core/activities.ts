/**
 * What a runner tells about its work besides the answer: a tool it used, what that said, what the
 * turn cost, why a backend failed. Kept in the log for people and programs; nothing decides by it.
 */
import { HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import type { Draft, Session } from './session.ts'

/** `kind` says what `data` is: `tool_use`, `tool_result`, `usage`, `diagnosis`, … */
export type Activity = { readonly kind: string; readonly data: unknown }

export type ActivityEvent = {
  readonly type: 'turn.activity'
  readonly turn: string
} & Activity

export type ActivityCommand = {
  readonly type: 'activity'
  readonly turn: string
  readonly activity: Activity
}

/** Names what was left out at the end of a turn that did more than is recorded. */
export const DROPPED_KIND = 'activities_dropped'

const KIND = /^[\w.:-]{1,64}$/
/** How much of an activity that is too large is kept, in characters. */
const HEAD_CHARS = 2_000

export function decideActivity(
  session: Session,
  { turn, activity }: ActivityCommand,
): readonly Draft[] {
  if (session.running?.id !== turn) {
    throw new HoldfastError('turn_over', `turn ${turn} does not run`)
  }
  return [{ type: 'turn.activity', turn, kind: activity.kind, data: activity.data }]
}

/** As the log keeps it: one that is too large leaves its size and its beginning. */
export function boundActivity({ kind, data }: Activity, { activityCharsMax }: Limits): Activity {
  if (typeof kind !== 'string' || !KIND.test(kind)) {
    throw new TypeError("an activity's kind must be 1 to 64 letters, digits and _ . : -")
  }
  const json = JSON.stringify(data) ?? 'null'
  if (json.length <= activityCharsMax) return { kind, data: data ?? null }
  const head = json.slice(0, Math.min(HEAD_CHARS, activityCharsMax)).toWellFormed()
  return { kind, data: { truncated: true, chars: json.length, head } }
}
