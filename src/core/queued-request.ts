/** A request for a turn while it is in the queue, and the turn that requests become. */
import { mayDo, scopesOn, type Access } from './access.ts'
import type { NewTurn } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import { partsFit } from './parts.ts'
import type { BusyPolicy, TurnRequest } from './requests.ts'
import { sameSettings } from './settings.ts'
import {
  LOCAL,
  type Input,
  type Principal,
  type RequestKey,
  type Session,
  type Settings,
  type Turn,
} from './state.ts'
import { inputText, joinInputs } from './turns.ts'
import type { CountedTurn } from './usage.ts'

/** The turn that a request became, or that has taken it as a further message. */
export type AdmittedRequest = { readonly turn: string; readonly isSteered: boolean }

/** A request until its turn starts; callers with the same idempotency key share it. */
export class QueuedRequest {
  readonly input: Input
  readonly chars: number
  readonly key: RequestKey | null
  readonly busy: Exclude<BusyPolicy, 'reject' | 'steer'>
  /** Null for a turn of a log of 0.1.0. */
  readonly by: Principal | null
  /** What its callers were granted, and those whose requests joined its turn in the log. */
  readonly grants: (Access | null)[]
  /** Of its turn alone; null: those of the session. */
  readonly settings: Settings | null
  /**
   * `waiting`: only here. `submitted`: to be recorded in the next step. `queued`: its turn waits in
   * the log, or will when this step is durable. `starting`: it has left the queue.
   */
  state: 'waiting' | 'submitted' | 'queued' | 'starting' = 'waiting'
  /** The id of its turn, once that is decided. */
  turn: string | null = null
  /** When a recorded turn stops waiting. */
  expiresAt: number | null = null
  /** When it began to wait; null if it did not have to. */
  since: number | null = null
  /** A name for readers of the queue, given when they first see it. */
  id: string | null = null
  /** It leaves the queue with the last of its callers. */
  callers = 1
  /** The turn that was to take it, and did not. */
  refusedBy: string | null = null
  /** Null: its principal has no limits. */
  counted: CountedTurn | null = null
  readonly admitted: Promise<AdmittedRequest>
  readonly admit: (turn: string, isSteered?: boolean) => void
  readonly refuse: (error: unknown) => void

  /** `byKey`: has it until it is admitted or refused. */
  constructor(request: NewRequest, byKey: Map<string, QueuedRequest>) {
    const { input, chars, key, busy, by, access, settings } = request
    this.grants = [access]
    this.settings = settings
    this.input = input
    this.chars = chars
    this.key = key
    this.busy = busy === 'reject' || busy === 'steer' ? 'queue' : busy
    this.by = by
    let resolve!: (admitted: AdmittedRequest) => void
    let reject!: (error: unknown) => void
    this.admitted = new Promise<AdmittedRequest>((settle, fail) => {
      resolve = settle
      reject = fail
    })
    this.admit = (turn, isSteered = false) => {
      if (key !== null) byKey.delete(key.key)
      resolve({ turn, isSteered })
    }
    this.refuse = (error) => {
      if (key !== null) byKey.delete(key.key)
      this.counted?.end()
      reject(error)
    }
    if (key !== null) byKey.set(key.key, this)
  }

  /** None of its callers may run turns in the session any more. */
  isUnseenIn(session: Session): boolean {
    const by = this.by ?? LOCAL
    return this.grants.every(
      (access) => access !== null && !mayDo(scopesOn({ by, access }, session), 'turn.run'),
    )
  }
}

type NewRequest = Omit<TurnRequest, 'by' | 'waitMs' | 'caller' | 'blobs' | 'onNobody'> & {
  readonly by: Principal | null
}

/**
 * A turn that the log had when the session was loaded. What its caller was granted is not in the
 * log, so that it starts in any case.
 */
export function recordedTurn(turn: Turn, counted: CountedTurn | null): QueuedRequest {
  const { id, input, collect, by, queuedAt, expiresAt, settings = null } = turn
  const chars = inputText(input).length
  const busy = collect ? 'collect' : 'queue'
  const asked = { input, chars, key: null, busy, by, access: null, settings } as const
  const request = new QueuedRequest(asked, new Map())
  return Object.assign(request, { state: 'queued', turn: id, expiresAt, since: queuedAt, counted })
}

/** The turns of the log in its order; a request that waits here only keeps its place. */
export function inOrderOf(
  queued: readonly Turn[],
  requests: readonly QueuedRequest[],
): QueuedRequest[] {
  const places = new Map(queued.map(({ id }, place) => [id, place]))
  const placeOf = ({ turn }: QueuedRequest) => places.get(turn ?? '') ?? -1
  const inLog = requests.filter((request) => placeOf(request) >= 0)
  const next = inLog.toSorted((one, other) => placeOf(one) - placeOf(other)).values()
  return requests.map((request) =>
    placeOf(request) < 0 ? request : (next.next().value ?? request),
  )
}

/** Whether one turn may have been asked for by all of these. */
export function mayBeOne(
  all: readonly Pick<Turn | QueuedRequest, 'input' | 'settings'>[],
  limits: Limits,
): boolean {
  const [first, ...others] = all.map(({ settings = null }) => settings)
  const inputs = all.map(({ input }) => input)
  return others.every((other) => sameSettings(first ?? null, other)) && partsFit(inputs, limits)
}

export function keysOf(requests: readonly QueuedRequest[]): readonly RequestKey[] {
  return requests.flatMap(({ key }) => (key === null ? [] : [key]))
}

export function newTurn(requests: readonly QueuedRequest[], at: number): NewTurn {
  const since = requests.flatMap((request) => (request.since === null ? [] : [request.since]))
  return {
    input: requests.map(({ input }) => input).reduce(joinInputs),
    keys: keysOf(requests),
    by: requests.flatMap(({ by }) => (by === null ? [] : [by])),
    // The clock may have been set back meanwhile: a turn does not wait for less than no time.
    queuedAt: since.length === 0 ? null : Math.min(...since, at),
    settings: requests[0]?.settings ?? null,
  }
}

/** A request or a turn that waits, as readers see it. */
export type QueueRow = {
  /** 1 is next. Requests that will be collected in one turn share a position. */
  readonly position: number
  /** When it began to wait; null in logs of 0.1.0. */
  readonly since: number | null
  readonly by: Principal | null
  readonly busy: 'queue' | 'interrupt' | 'collect'
} & (
  | { readonly turn: string; readonly state: 'queued' }
  /** Not admitted: it leaves no trace if its time is up, or if it is cancelled. */
  | { readonly request: string; readonly state: 'waiting' }
)

export function drainingError(): HoldfastError {
  return new HoldfastError('draining', 'the server is about to stop')
}

export function queuedRow(
  { id: turn, queuedAt: since, by, collect }: Turn,
  position: number,
  busy: QueueRow['busy'] = 'queue',
): QueueRow {
  return { turn, state: 'queued', position, since, by, busy: collect ? 'collect' : busy }
}
