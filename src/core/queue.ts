/**
 * The queue of one session: all requests for a turn, in the order of arrival, until their turns
 * start (I3).
 *
 * A request that is submitted becomes a turn of the log at once and survives a crash. Any other
 * waits here only: it leaves no trace when its time is up and it is refused with 429 (I11). Readers
 * see both as one list. In each step of the ledger the queue records what was submitted, and starts
 * the first request if no turn runs.
 */
import { assertMayDo, assertVisible, sessionUnknown } from './access.ts'
import type { NewTurn } from './commands.ts'
import type { Batch } from './commits.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import { turnUnknown } from './history.ts'
import {
  inOrderOf,
  keysOf,
  mayBeOne,
  newTurn,
  drainingError,
  queuedRow,
  QueuedRequest,
  recordedTurn,
  type AdmittedRequest,
  type QueueRow,
} from './queued-request.ts'
import type { LooseBlobs } from './loose-blobs.ts'
import { idempotencyMismatch, type RequestKeys } from './request-keys.ts'
import { storeParts, type RequestBlobs } from './parts.ts'
import type { TurnRequest } from './requests.ts'
import { ownSettings } from './settings.ts'
import type { Input, Principal, RequestKey, Session, Settings, Turn, Usage } from './state.ts'
import { CountedTurns, type CountedTurn } from './usage.ts'

const REQUEST = 'r_'

/** Whether this is the id of a request that waits, and not of a turn. */
export function isRequestId(id: string): boolean {
  return id.startsWith(REQUEST)
}

/** The loaded session whose queue it is. */
export type QueueSession = {
  readonly id: string
  readonly session: Session
  readonly requestKeys: RequestKeys
  readonly looseBlobs: LooseBlobs
  readonly holder: CoreContext & { readonly draining: boolean }
  readonly isRunning: boolean
  now(): number
  assertHeld(): void
  readonly canSteer: boolean
  steer(message: SteeringMessage): Promise<{ turn: string; isTaken: boolean }>
  wasSteered(turn: string, key: string): Promise<boolean>
  /** Throws unless its agent can honour these. */
  assertHonoured(settings: Settings): void
  /** Throws unless its agent takes the parts of the input. */
  assertTakes(input: Input): void
  /** Takes a step of the ledger. */
  pump(): void
  cancel(turn: string, reason: string, by: Principal | null): Promise<unknown>
}

/** A further message for the running turn. */
export type SteeringMessage = Pick<NewTurn, 'input' | 'keys'> & { readonly by: Principal | null }

export class Queue {
  readonly #live: QueueSession
  #requests: QueuedRequest[]
  #submitted: QueuedRequest[] = []
  /** Requests that are not known to be in the log, by their keys: a retry shares them (I11). */
  readonly #byKey = new Map<string, QueuedRequest>()
  /** The first request, if it has asked the running turn to stop. */
  #interruptedBy: QueuedRequest | null = null
  /** What is counted of the turns that were started here, if their principals have limits. */
  readonly #counted = new CountedTurns()

  constructor(live: QueueSession, session: Session) {
    this.#live = live
    const { usage } = live.holder
    this.#requests = session.queued.map((turn) =>
      recordedTurn(turn, usage.countRecorded(turn.by, session)),
    )
  }

  use(turn: string, used: Usage): void {
    this.#counted.use(turn, used)
  }

  get length(): number {
    return this.#requests.length
  }

  /** Returns the id of the request's turn once that has started. */
  enter(request: TurnRequest): Promise<AdmittedRequest> {
    return this.#pass(request, false)
  }

  /** Records the request as a turn that waits, and returns the turn's id once it is durable. */
  submit(request: TurnRequest): Promise<AdmittedRequest> {
    return this.#pass(request, true)
  }

  #pass(request: TurnRequest, isSubmitted: boolean): Promise<AdmittedRequest> {
    const { requestKeys } = this.#live
    const { key, blobs } = request
    if (blobs === null) return requestKeys.pass(key, () => this.#add(request, isSubmitted))
    const leave = this.#live.looseBlobs.need(blobs.given ?? [])
    let stored = request
    const ready = async (): Promise<void> => void (stored = await this.#stored(request, blobs))
    const entered = requestKeys.pass(key, () => this.#add(stored, isSubmitted), ready)
    // The caller gets the refusal; here only the bytes matter.
    entered.then(
      () => leave(true),
      () => leave(false),
    )
    return entered
  }

  /** The request, once its bytes are durable. One that is to be refused has stored none. */
  async #stored(request: TurnRequest, blobs: RequestBlobs): Promise<TurnRequest> {
    const { session, holder, requestKeys } = this.#live
    const { key, access } = request
    this.#live.assertHeld()
    const isKnown = this.#pending(key) !== null || requestKeys.turnOf(key, session) !== null
    if (isKnown) return request
    this.#live.assertTakes(request.input)
    if (request.settings !== null) this.#live.assertHonoured(request.settings)
    if (!this.#isSteered(request)) this.#assertRoom(request)
    await this.#live.looseBlobs.ready()
    const input = await storeParts(holder, { session, access, input: request.input, blobs })
    return { ...request, input, blobs: null }
  }

  /** I11: a request with a known key gets the request or the turn that has the key. */
  async #add(request: TurnRequest, isSubmitted: boolean): Promise<AdmittedRequest> {
    this.#live.assertHeld()
    const pending = this.#pending(request.key)
    if (pending !== null) return this.#share(pending, request, isSubmitted)
    const known = this.#live.requestKeys.turnOf(request.key, this.#live.session)
    if (known !== null) return this.#known(request, known)
    if (request.settings !== null) this.#live.assertHonoured(request.settings)
    const isSteered = this.#isSteered(request)
    if (!isSteered) this.#assertRoom(request)
    // It may have waited since its caller was let in.
    else assertMayDo(assertVisible(request, this.#live.session), 'turn.run')
    // The request that had its key has just left: its parts are not stored, and it may come again.
    if (request.blobs !== null) throw this.#busyError(null)
    const counted = request.access === null ? null : this.#count(request)
    const settings = ownSettings(request, this.#live.session)
    const queued = new QueuedRequest({ ...request, settings }, this.#byKey)
    queued.counted = counted
    if (isSteered) return this.#steer(queued)
    this.#requests.push(queued)
    if (isSubmitted) this.#recordNext(queued, request)
    this.#step()
    return isSubmitted ? queued.admitted : this.#waitFor(queued, request)
  }

  #isSteered({ busy, settings }: TurnRequest): boolean {
    return busy === 'steer' && this.#live.canSteer && settings === null
  }

  async #known({ busy, key }: TurnRequest, turn: string): Promise<AdmittedRequest> {
    const isSteered = busy === 'steer' && (await this.#live.wasSteered(turn, key?.key ?? ''))
    return { turn, isSteered }
  }

  /** Gives it to the running turn; if the agent does not take it, it becomes a turn of its own. */
  #steer(request: QueuedRequest): Promise<AdmittedRequest> {
    const { input, by } = request
    request.state = 'starting'
    this.#live.steer({ input, keys: keysOf([request]), by }).then(({ turn, isTaken }) => {
      if (!isTaken) return this.#steerRefused(request, turn)
      request.counted?.end()
      request.admit(turn, true)
    }, request.refuse)
    return request.admitted
  }

  #steerRefused(request: QueuedRequest, turn: string): void {
    try {
      this.#live.assertHeld()
    } catch (error) {
      return request.refuse(error)
    }
    request.refusedBy = turn
    request.state = 'submitted'
    this.#requests.push(request)
    this.#submitted.push(request)
    this.#step()
  }

  #pending(key: RequestKey | null): QueuedRequest | null {
    const pending = key === null ? undefined : this.#byKey.get(key.key)
    if (pending === undefined) return null
    if (pending.key?.digest !== key?.digest) throw idempotencyMismatch(key?.key ?? '')
    return pending
  }

  /** A request that waits and is submitted becomes a turn: it keeps its place and its callers. */
  #share(
    pending: QueuedRequest,
    request: TurnRequest,
    isSubmitted: boolean,
  ): Promise<AdmittedRequest> {
    if (pending.state !== 'waiting') return pending.admitted
    pending.grants.push(request.access)
    if (isSubmitted) {
      this.#moveBehindRecorded(pending)
      this.#recordNext(pending, request)
      this.#step()
      return pending.admitted
    }
    pending.callers += 1
    return this.#waitFor(pending, request)
  }

  /** The log has turns in the order in which they are recorded. */
  #moveBehindRecorded(request: QueuedRequest): void {
    const from = this.#requests.indexOf(request)
    const last = this.#requests.findLastIndex(({ state }) => state !== 'waiting')
    if (last < from) return
    this.#requests.splice(last + 1, 0, request)
    this.#requests.splice(from, 1)
  }

  #recordNext(request: QueuedRequest, { waitMs }: TurnRequest): void {
    request.state = 'submitted'
    request.expiresAt = waitMs === null ? null : this.#live.now() + waitMs
    this.#submitted.push(request)
  }

  #assertRoom({ busy, chars }: TurnRequest): void {
    const { draining, limits } = this.#live.holder
    const { length } = this.#requests
    if (draining) throw drainingError()
    if (busy === 'reject' && (this.#live.isRunning || length > 0)) throw this.#busyError(null)
    const queuedChars = this.#requests.reduce((sum, request) => sum + request.chars, 0)
    // A single request may be of any size: it does not wait for room.
    const isTooLong = length > 0 && queuedChars + chars > limits.queuedCharsMax
    if (length >= limits.queuedTurnsMax || isTooLong) throw this.#busyError('queue_full')
  }

  /** Throws if the caller's principal, or that of the session, has reached a quota. */
  #count({ access }: TurnRequest): CountedTurn | null {
    const { session, holder, isRunning } = this.#live
    const { usage, counters } = holder
    try {
      usage.ofOwner(access, session.principal)?.assertRoom()
      const isQueued = isRunning || this.#requests.length > 0
      return usage.ofCaller(access)?.takeTurn(isQueued) ?? null
    } catch (refusal) {
      counters.turnsRefused += 1
      throw refusal
    }
  }

  /** Its admission, unless the caller's time is up or the caller goes away before. */
  #waitFor(request: QueuedRequest, { waitMs, caller }: TurnRequest): Promise<AdmittedRequest> {
    if (request.state !== 'waiting') return request.admitted
    const { clock, limits } = this.#live.holder
    // Read only now: a caller may make its signal when it is asked for.
    const { signal } = caller
    request.since ??= Math.max(clock.now(), this.#live.session.updatedAt)
    return new Promise((resolve, reject) => {
      const leave = (error: () => HoldfastError): void => {
        // One that is being recorded cannot be refused any more.
        if (request.state !== 'waiting') return
        settle()
        reject(error())
        this.#leave(request)
      }
      const cancelTimer = clock.after(waitMs ?? limits.waitMs, () => {
        // I11: what it has interrupted cannot be undone, so it is not refused any more.
        if (this.#interruptedBy !== request) leave(() => this.#busyError('wait_over', request))
      })
      const callerGone = (): void =>
        leave(() => new HoldfastError('turn_over', 'the caller went away'))
      const settle = (): void => {
        cancelTimer()
        signal?.removeEventListener('abort', callerGone)
      }
      signal?.addEventListener('abort', callerGone)
      if (signal?.aborted === true) callerGone()
      request.admitted.then(resolve, reject).finally(settle)
    })
  }

  /** The request leaves with the last of its callers. */
  #leave(request: QueuedRequest): void {
    request.callers -= 1
    if (request.callers > 0) return
    if (request.key !== null) this.#byKey.delete(request.key.key)
    request.counted?.end()
    this.#remove(request)
    this.interruptIfDue()
  }

  #remove(request: QueuedRequest): void {
    this.#requests = this.#requests.filter((other) => other !== request)
  }

  #step(): void {
    this.#live.pump()
    this.interruptIfDue()
  }

  /** Tells the running turn to stop if the first request wants that. */
  interruptIfDue(): void {
    const [first] = this.#requests
    const { running } = this.#live.session
    if (first?.busy !== 'interrupt' || running === null || this.#interruptedBy === first) return
    this.#interruptedBy = first
    // The callers of that turn learn of its end; no caller waits for this answer.
    this.#live.cancel(running.id, 'interrupted_by_newer', first.by).catch(() => undefined)
  }

  /** What the queue adds to a step of the ledger. */
  decide(batch: Batch): void {
    if (batch.events.some(({ type }) => type === 'turn.moved')) {
      this.#requests = inOrderOf(batch.session.queued, this.#requests)
    }
    for (const request of this.#submitted.splice(0)) this.#record(batch, request)
    while (batch.session.running === null && batch.session.closed === null) {
      const [first] = this.#requests
      if (first === undefined || this.#live.holder.draining) return
      if (first.turn === null) this.#startGroup(batch)
      else if (first.isUnseenIn(batch.session)) this.#cancelUnseen(batch, first.turn)
      else this.#startTurn(batch, first.turn)
    }
  }

  /** The next group, without the requests whose callers may not run turns here any more. */
  #startGroup(batch: Batch): void {
    const { session } = batch
    const unseen = this.#groupAt(0).filter((request) => request.isUnseenIn(session))
    if (unseen.length === 0) return this.#startRequests(batch, this.#groupAt(0))
    for (const request of unseen) {
      this.#remove(request)
      request.refuse(sessionUnknown(session.id))
    }
  }

  /** A recorded turn leaves the queue with its end in the log. */
  #cancelUnseen(batch: Batch, turn: string): void {
    this.#requests.shift()?.counted?.end()
    batch.add({ type: 'cancel', turn, reason: 'access_lost', by: null })
  }

  #record(batch: Batch, request: QueuedRequest): void {
    const { input, busy, by, expiresAt, since, settings, refusedBy } = request
    const before = this.#requests[this.#requests.indexOf(request) - 1]
    const waiting = batch.session.queued.find(({ id }) => id === before?.turn)
    const isAlike = mayBeOne([waiting ?? request, request], this.#live.holder.limits)
    const event = batch.add(
      {
        type: 'submit',
        ...{ input, keys: keysOf([request]), expiresAt, settings, refusedBy, by },
        collect: busy === 'collect',
        joins: isAlike && waiting !== undefined ? waiting.id : null,
        queuedAt: since === null ? null : Math.min(since, batch.at),
      },
      ([admitted]) => request.admit(turnIn(admitted)),
      request.refuse,
    )?.[0]
    request.state = 'queued'
    request.turn = event === undefined ? null : turnIn(event)
    if (event?.type === 'turn.queued') return
    if (event?.type === 'turn.joined') before?.grants.push(...request.grants)
    request.counted?.end()
    this.#remove(request)
  }

  #startTurn(batch: Batch, turn: string): void {
    const { counted = null } = this.#requests.shift() ?? {}
    if (counted !== null) this.#counted.start(this.#live.id, turn, counted)
    const isQueued = batch.session.queued.some(({ id }) => id === turn)
    // It may have been cancelled in this very step.
    if (isQueued && batch.add({ type: 'start', turn }) === null) {
      throw new HoldfastError('internal', `turn ${turn} cannot be started`)
    }
  }

  #startRequests(batch: Batch, requests: readonly QueuedRequest[]): void {
    this.#requests.splice(0, requests.length)
    for (const request of requests) request.state = 'starting'
    const events = batch.add(
      { type: 'start', turn: newTurn(requests, batch.at) },
      ([started]) => requests.forEach(({ admit }) => admit(turnIn(started))),
      (refusal) => requests.forEach(({ refuse }) => refuse(refusal)),
    )
    for (const { counted } of requests) {
      if (counted !== null) this.#counted.start(this.#live.id, turnIn(events?.[0]), counted)
    }
  }

  /**
   * The requests from here on that will be one turn: one, or neighbours that are to be collected,
   * as many as would do as one request.
   */
  #groupAt(index: number): readonly QueuedRequest[] {
    const { limits } = this.#live.holder
    const group: QueuedRequest[] = []
    let chars = 0
    for (const request of this.#requests.slice(index)) {
      chars += request.chars
      const isCollected = request.busy === 'collect' && request.state === 'waiting'
      const isAlike = chars <= limits.inputBytesMax && mayBeOne([...group, request], limits)
      if (group.length > 0 && (!isCollected || !isAlike)) return group
      group.push(request)
      if (!isCollected) return group
    }
    return group
  }

  /** A turn of the log does not wait any more. */
  removeTurn(turn: string): void {
    this.#counted.end(turn)
    const request = this.#requests.find((other) => other.turn === turn)
    if (request === undefined) return
    request.counted?.end()
    this.#remove(request)
  }

  /** All that waits, in order. */
  rows(turns: readonly Turn[]): readonly QueueRow[] {
    return this.#groups().flatMap((group, index) =>
      group.flatMap((request) => this.#row(request, index + 1, turns)),
    )
  }

  #groups(): readonly (readonly QueuedRequest[])[] {
    const groups: (readonly QueuedRequest[])[] = []
    for (let index = 0; index < this.#requests.length;) {
      const group = this.#groupAt(index)
      groups.push(group)
      index += group.length
    }
    return groups
  }

  #row(request: QueuedRequest, position: number, turns: readonly Turn[]): readonly QueueRow[] {
    const { busy, since, by } = request
    if (request.state === 'waiting') {
      request.id ??= REQUEST + this.#live.holder.entropy.id()
      return [{ request: request.id, state: 'waiting', position, since, by, busy }]
    }
    // One that is not in the log yet may still be refused: it is not shown.
    const turn = turns.find(({ id }) => id === request.turn)
    return turn === undefined ? [] : [queuedRow(turn, position, busy)]
  }

  /** Takes back a request that waits here only: nothing of it has happened. */
  cancelRequest(id: string): void {
    this.#live.assertHeld()
    const found = this.#requests.find((request) => request.id === id)
    if (found?.state !== 'waiting') throw turnUnknown(this.#live.id, id)
    this.#remove(found)
    found.refuse(new HoldfastError('cancelled', 'the request was cancelled while it waited'))
    this.interruptIfDue()
  }

  /** Refuses the requests that wait here only; turns of the log keep their places. */
  refuseWaiting(error: HoldfastError): void {
    const waiting = this.#requests.filter(({ state }) => state === 'waiting')
    this.#requests = this.#requests.filter(({ state }) => state !== 'waiting')
    for (const { refuse } of waiting) refuse(error)
  }

  /** The session is not held any more: every request that is not known to be recorded fails. */
  lose(error: HoldfastError): void {
    this.refuseWaiting(error)
    for (const { refuse } of this.#submitted.splice(0)) refuse(error)
    for (const { counted } of this.#requests) counted?.end()
    this.#counted.end(null)
  }

  /** `limit`: which one was reached; null if the caller did not want to wait. */
  #busyError(limit: 'queue_full' | 'wait_over' | null, request?: QueuedRequest): HoldfastError {
    const { id: session, holder } = this.#live
    const groups = this.#groups()
    const before = groups.findIndex((group) => request !== undefined && group.includes(request))
    const position = (before < 0 ? groups.length : before) + 1
    if (limit !== null) {
      const message = limit === 'queue_full' ? 'the queue is full' : 'a turn waited too long'
      const facts = { reason: limit, session, waiting: groups.length }
      holder.diagnose('limit_reached', `a turn was refused: ${message}`, facts)
    }
    holder.counters.turnsRefused += 1
    const message = `session ${session} is busy: place ${position} in its queue`
    return new HoldfastError('session_busy', message, { position, retryAfterMs: 1_000 })
  }
}

function turnIn(event: object | undefined): string {
  return event !== undefined && 'turn' in event ? String(event.turn) : ''
}
