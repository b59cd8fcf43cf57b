/**
 * How a request becomes a turn: at once and durable (`submitTurn`), or by waiting in the lane
 * until it runs (`enterLane`). I11: a refusal with 429 means that nothing happened.
 */
import { HoldfastError } from './errors.ts'
import type { Member, Pending, QueuedEntry, WaitingEntry } from './lanes.ts'
import type { LiveSession } from './live.ts'
import type { Principal } from './principal.ts'
import { idempotencyMismatch, turnOfKeys, turnSeq, type Input, type RequestKey } from './turns.ts'

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
export function enterLane(live: LiveSession, request: TurnRequest): Promise<string> {
  return live.requestKeys.pass(request.keys, () => enter(live, request))
}

async function enter(live: LiveSession, request: TurnRequest): Promise<string> {
  live.assertHeld()
  const known = knownTurn(live, request.keys)
  if (known !== null) return known
  const pending = pendingRequest(live, request.keys)
  if (pending?.entry === null) return pending.member.admitted
  if (pending !== null) {
    pending.member.callers += 1
    return waitFor(live, pending.entry, pending.member, request)
  }
  assertRoom(live, request)
  const member = live.lane.newMember(request)
  const entry = placeIn(live, member, request.busy)
  live.pump()
  return waitFor(live, entry, member, request)
}

/** Records the turn in the queue at once; it survives a crash there. Returns its id. */
export function submitTurn(live: LiveSession, request: TurnRequest): Promise<string> {
  return live.requestKeys.pass(request.keys, () => submit(live, request))
}

async function submit(live: LiveSession, request: TurnRequest): Promise<string> {
  live.assertHeld()
  const { lane } = live
  const known = knownTurn(live, request.keys)
  if (known !== null) return known
  const pending = pendingRequest(live, request.keys)
  if (pending?.entry === null) return pending.member.admitted
  if (pending === null) assertRoom(live, request)
  // One that waits already has its room, its place and its mode; its callers get this turn too.
  const member = pending?.member ?? lane.newMember(request)
  const { collect, interrupts } = pending?.entry ?? modeOf(request.busy)
  const { input, chars, keys, since, by } = member
  const entry: QueuedEntry = { type: 'queued', turn: null, chars, interrupts, by }
  if (pending === null) lane.push(entry)
  else lane.replace({ member, entry: pending.entry }, entry)
  lane.track(member, null)
  const now = live.now()
  const expiresAt = request.waitMs === null ? null : now + request.waitMs
  const queuedAt = since === null ? null : Math.min(since, now)
  const command = { type: 'submit', input, keys, collect, expiresAt, queuedAt, by } as const
  live.submit(command, entry, lane.before(entry)).then(member.admit, member.refuse)
  return member.admitted
}

type Mode = { readonly collect: boolean; readonly interrupts: boolean }

function modeOf(busy: BusyPolicy): Mode {
  return { collect: busy === 'collect', interrupts: busy === 'interrupt' }
}

/** One that is durable, but not acted on yet, is found again when this request is decided. */
function knownTurn(live: LiveSession, keys: readonly RequestKey[]): string | null {
  const known = turnOfKeys(live.session, keys) ?? live.requestKeys.turnOf(keys)
  return known !== null && (turnSeq(known) ?? 0) <= live.session.seq ? known : null
}

/** The request of these keys that the log does not have yet; throws if it has another body. */
function pendingRequest(live: LiveSession, keys: readonly RequestKey[]): Pending | null {
  for (const { key, digest } of keys) {
    const found = live.lane.pending(key)
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
  if (busy === 'reject' && live.busy) throw busyError(live, live.lane.length, null)
  const { requests } = live.lane
  const isFull = requests >= limits.queuedTurnsMax
  // The first may be as large as it likes: it does not wait for room.
  if (isFull || (requests > 0 && live.lane.chars + chars > limits.queuedCharsMax)) {
    throw busyError(live, live.lane.length, 'queue_full')
  }
}

function placeIn(live: LiveSession, member: Member, busy: BusyPolicy): WaitingEntry {
  const { lane, holder } = live
  const mode = modeOf(busy)
  const joined = mode.collect ? lane.joinable(member.chars, holder.limits.inputBytesMax) : null
  const entry: WaitingEntry = joined ?? { type: 'waiting', ...mode, members: [] }
  entry.members = [...entry.members, member]
  if (joined === null) lane.push(entry)
  lane.track(member, entry)
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
  member.since ??= Math.max(clock.now(), live.session.updatedAt)
  return new Promise((resolve, reject) => {
    const leave = (error: HoldfastError): void => {
      // It is being recorded.
      if (!live.lane.has(entry) || !entry.members.includes(member)) return
      settle()
      leaveLane(live, entry, member)
      reject(error)
    }
    const cancelTimer = clock.after(waitMs ?? limits.waitMs, () => {
      // I11: what it has interrupted cannot be undone, so it is not refused any more.
      if (!live.interruptsFor(entry)) leave(busyError(live, live.lane.position(entry), 'wait_over'))
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

/** The last caller of a request takes it along. */
function leaveLane(live: LiveSession, entry: WaitingEntry, member: Member): void {
  member.callers -= 1
  if (member.callers > 0) return
  live.lane.forget(member)
  live.lane.withdraw(member, entry)
  live.interruptIfDue()
}

/** `limit`: which one was reached; null if the caller did not want to wait. */
function busyError(
  live: LiveSession,
  ahead: number,
  limit: 'queue_full' | 'wait_over' | null,
): HoldfastError {
  const position = ahead + 1
  if (limit !== null) {
    const message = limit === 'queue_full' ? 'the queue is full' : 'a turn waited too long'
    const facts = { reason: limit, session: live.id, waiting: live.lane.length }
    live.holder.diagnose('limit_reached', `a turn was refused: ${message}`, facts)
  }
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
