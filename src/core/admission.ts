/**
 * How a request becomes a turn: at once and durable (`submitTurn`), or by waiting in the lane
 * until it runs (`enterLane`). I11: a refusal with 429 means that nothing happened.
 */
import { HoldfastError } from './errors.ts'
import { newMember, type Member, type QueuedEntry, type WaitingEntry } from './lanes.ts'
import type { LiveSession } from './live.ts'
import type { Principal } from './principal.ts'
import { idempotencyMismatch, turnOfKeys, type Input, type RequestKey } from './turns.ts'

export const BUSY_POLICIES = ['queue', 'reject', 'interrupt', 'collect'] as const

/** What a request does when the lane is not free. */
export type BusyPolicy = (typeof BUSY_POLICIES)[number]

export type TurnRequest = {
  readonly input: Input
  /** How large it is, as JSON text. */
  readonly chars: number
  readonly keys: readonly RequestKey[]
  readonly busy: BusyPolicy
  /**
   * How long it may wait for the lane; null: the default, or for an admitted turn as long as it
   * takes.
   */
  readonly waitMs: number | null
  /** Looked at only if it has to wait: most do not. */
  readonly caller: CallerPresence
  readonly by: Principal
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
  assertRoom(live, request)
  const entry = placeIn(live, request)
  const member = entry.members.at(-1) as Member
  live.pump()
  return waitFor(live, entry, member, request)
}

/** Records the turn in the queue at once; it survives a crash there. Returns its id. */
export async function submitTurn(live: LiveSession, request: TurnRequest): Promise<string> {
  live.assertHeld()
  const { input, keys, busy, waitMs, by } = request
  const known = turnOfKeys(live.session, keys)
  if (known !== null) return known
  assertFits(live, keys)
  assertRoom(live, request)
  const interrupts = busy === 'interrupt'
  const { chars } = request
  const entry: QueuedEntry = { type: 'queued', turn: null, chars, interrupts, by }
  const { last } = live.lane
  live.lane.push(entry)
  const expiresAt = waitMs === null ? null : live.holder.clock.now() + waitMs
  const collect = busy === 'collect'
  return live.submit({ type: 'submit', input, keys, collect, expiresAt, by }, entry, last)
}

/** The request that waits under one of these keys; throws if it has another body. */
function sameRequest(live: LiveSession, keys: readonly RequestKey[]) {
  const found = assertFits(live, keys)
  if (found !== null) found.member.callers += 1
  return found
}

function assertFits(live: LiveSession, keys: readonly RequestKey[]) {
  for (const { key, digest } of keys) {
    const found = live.lane.member(key)
    if (found === null) continue
    if (found.member.keys.some((known) => known.key === key && known.digest !== digest)) {
      throw idempotencyMismatch(key)
    }
    return found
  }
  return null
}

function assertRoom(live: LiveSession, { busy, chars }: TurnRequest): void {
  const { draining, limits } = live.holder
  if (draining) throw new HoldfastError('draining', 'the server is about to stop')
  if (busy === 'reject' && live.busy) throw busyError(live, live.lane.length)
  const { requests } = live.lane
  const isFull = requests >= limits.queuedTurnsMax
  // The first may be as large as it likes: it does not wait for room.
  if (isFull || (requests > 0 && live.lane.chars + chars > limits.queuedCharsMax)) {
    throw busyError(live, live.lane.length)
  }
}

function placeIn(live: LiveSession, request: TurnRequest): WaitingEntry {
  const { busy, chars } = request
  const collect = busy === 'collect'
  const member = newMember(request)
  const joined = collect ? live.lane.joinable(chars, live.holder.limits.inputBytesMax) : null
  if (joined !== null) {
    joined.members = [...joined.members, member]
    return joined
  }
  const interrupts = busy === 'interrupt'
  const entry: WaitingEntry = { type: 'waiting', collect, interrupts, members: [member] }
  live.lane.push(entry)
  return entry
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
    const cancelTimer = clock.after(waitMs ?? limits.waitMs, () => {
      // I11: what it has interrupted cannot be undone, so it is not refused any more.
      if (!live.interruptsFor(entry)) leave(busyError(live, live.lane.position(entry)))
    })
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
  live.interruptIfDue()
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
