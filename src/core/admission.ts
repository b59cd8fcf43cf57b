/**
 * How a request becomes a turn: at once and durable (`submitTurn`), or by waiting in the lane
 * until it runs (`enterLane`). I11: a refusal with 429 means that nothing happened.
 */
import { HoldfastError } from './errors.ts'
import { newMember, type Member, type QueuedEntry, type WaitingEntry } from './lanes.ts'
import type { LiveSession } from './live.ts'
import { idempotencyMismatch, turnOfKeys, type Input, type RequestKey } from './turns.ts'

export const BUSY_POLICIES = ['queue', 'reject', 'interrupt', 'collect'] as const

/** What a request does when the lane is not free. */
export type BusyPolicy = (typeof BUSY_POLICIES)[number]

export type TurnRequest = {
  readonly input: Input
  readonly keys: readonly RequestKey[]
  readonly busy: BusyPolicy
  /**
   * How long it may wait for the lane; null: the default, or for an admitted turn as long as it
   * takes.
   */
  readonly waitMs: number | null
  /** Looked at only if it has to wait: most do not. */
  readonly caller: CallerPresence
}

export type CallerPresence = {
  /** Aborted when the caller goes away: a request that was not admitted leaves the lane. */
  readonly signal?: AbortSignal
}

/**
 * Waits for the lane and returns the turn's id once it has started, or was there already by its
 * key.
 */
export async function enterLane(live: LiveSession, request: TurnRequest): Promise<string> {
  live.assertHeld()
  const known = turnOfKeys(live.session, request.keys)
  if (known !== null) return known
  const waiting = sameRequest(live, request.keys)
  if (waiting !== null) return waitFor(live, waiting.entry, waiting.member, request)
  assertRoom(live, request.busy)
  const entry = placeIn(live, request)
  const member = entry.members.at(-1) as Member
  if (request.busy === 'interrupt') interruptRunning(live)
  live.pump()
  return waitFor(live, entry, member, request)
}

/** Records the turn in the queue at once; it survives a crash there. Returns its id. */
export async function submitTurn(live: LiveSession, request: TurnRequest): Promise<string> {
  live.assertHeld()
  const { input, keys, busy, waitMs } = request
  const known = turnOfKeys(live.session, keys)
  if (known !== null) return known
  assertRoom(live, busy)
  if (busy === 'interrupt') interruptRunning(live)
  const entry: QueuedEntry = { type: 'queued', turn: null }
  const { last } = live.lane
  live.lane.push(entry)
  const expiresAt = waitMs === null ? null : live.holder.clock.now() + waitMs
  const collect = busy === 'collect'
  return live.submit({ type: 'submit', input, keys, collect, expiresAt }, entry, last)
}

function sameRequest(live: LiveSession, keys: readonly RequestKey[]) {
  for (const { key, digest } of keys) {
    const found = live.lane.member(key)
    if (found === null) continue
    if (found.member.keys.some((known) => known.key === key && known.digest !== digest)) {
      throw idempotencyMismatch(key)
    }
    found.member.callers += 1
    return found
  }
  return null
}

function assertRoom(live: LiveSession, busy: BusyPolicy): void {
  if (live.holder.draining) throw new HoldfastError('draining', 'the server is about to stop')
  if (busy === 'reject' && live.busy) throw busyError(live, live.lane.length)
  if (live.lane.length >= live.holder.limits.queuedTurnsMax) throw busyError(live, live.lane.length)
}

function placeIn(live: LiveSession, { input, keys, busy }: TurnRequest): WaitingEntry {
  const collect = busy === 'collect'
  const member = newMember(input, keys)
  const joined = collect ? live.lane.joinable() : null
  if (joined !== null) {
    joined.members = [...joined.members, member]
    return joined
  }
  const entry: WaitingEntry = { type: 'waiting', collect, members: [member] }
  live.lane.push(entry)
  return entry
}

function interruptRunning(live: LiveSession): void {
  const { running } = live.session
  // Whoever waits for that turn learns of it there; here nobody waits for the answer.
  if (running !== null) live.cancel(running.id, 'interrupted_by_newer').catch(() => undefined)
}

/** The member's admission, bounded by the caller's patience and presence. */
function waitFor(
  live: LiveSession,
  entry: WaitingEntry,
  member: Member,
  { waitMs, caller }: TurnRequest,
): Promise<string> {
  if (!live.lane.has(entry)) return member.admitted
  const { signal } = caller
  const { clock, limits } = live.holder
  return new Promise((resolve, reject) => {
    const leave = (error: HoldfastError): void => {
      if (!live.lane.has(entry)) return
      settle()
      leaveLane(live, entry, member)
      reject(error)
    }
    const cancelTimer = clock.after(waitMs ?? limits.waitMs, () =>
      leave(busyError(live, live.lane.position(entry))),
    )
    const callerGone = (): void => leave(new HoldfastError('turn_over', 'the caller went away'))
    const settle = (): void => {
      cancelTimer()
      signal?.removeEventListener('abort', callerGone)
    }
    signal?.addEventListener('abort', callerGone)
    if (signal?.aborted === true) callerGone()
    member.admitted.then(resolve, reject).finally(settle)
  })
}

/**
 * The last caller of a request takes it along; the last request of an entry takes its place along.
 */
function leaveLane(live: LiveSession, entry: WaitingEntry, member: Member): void {
  member.callers -= 1
  if (member.callers > 0) return
  entry.members = entry.members.filter((other) => other !== member)
  if (entry.members.length === 0) live.lane.remove(entry)
}

function busyError(live: LiveSession, ahead: number): HoldfastError {
  const position = ahead + 1
  live.holder.counters.turnsRefused += 1
  return new HoldfastError(
    'session_busy',
    `session ${live.id} is busy: place ${position} in its queue`,
    {
      position,
      retryAfterMs: 1_000,
    },
  )
}
