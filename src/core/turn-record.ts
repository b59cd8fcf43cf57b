/** A turn as it is read back from the log. */
import { HoldfastError } from './errors.ts'
import type { SessionEvent } from './events.ts'
import type { Principal, Input, Reply, TurnError, TurnState } from './state.ts'
import { joinInputs, queuedAtOf } from './turns.ts'

export type TurnRecord = {
  readonly id: string
  readonly state: TurnState
  readonly input: Input
  /** The last message, once there is one. */
  readonly reply: Reply | null
  readonly error: TurnError | null
  /** Why it was cancelled or interrupted. */
  readonly reason: string | null
  /** The principal that asked for it; null in logs of 0.1.0. */
  readonly by: Principal | null
  readonly queuedAt: number | null
  readonly startedAt: number | null
  readonly endedAt: number | null
}

/** Where in the log a turn begins, or null if this cannot be a turn's id. */
export function turnSeq(id: string): number | null {
  return /^t[1-9]\d{0,14}$/.test(id) ? Number(id.slice(1)) : null
}

/** Folds one more event of a turn into its record; the first must be the one that admitted it. */
export function recordTurn(record: TurnRecord | null, event: SessionEvent): TurnRecord {
  if (record === null) return newRecord(event)
  switch (event.type) {
    case 'turn.joined':
      return { ...record, input: joinInputs(record.input, event.input) }
    case 'turn.started':
      return { ...record, state: 'running', startedAt: event.at }
    case 'message.added':
      return { ...record, reply: replyOf(event) }
    case 'turn.done':
      return { ...record, state: 'done', endedAt: event.at }
    case 'turn.failed':
      return { ...record, state: 'failed', error: event.error, endedAt: event.at }
    case 'turn.cancelled':
      return { ...record, state: 'cancelled', reason: event.reason, endedAt: event.at }
    case 'turn.interrupted':
      return { ...record, state: 'interrupted', reason: event.reason, endedAt: event.at }
    case 'turn.expired':
      return { ...record, state: 'expired', endedAt: event.at }
    default:
      return record
  }
}

function newRecord(event: SessionEvent): TurnRecord {
  if (event.type !== 'turn.queued' && event.type !== 'turn.started') {
    throw new HoldfastError('turn_unknown', `no turn begins at ${event.seq}`)
  }
  const queued = event.type === 'turn.queued'
  return {
    id: event.turn,
    state: queued ? 'queued' : 'running',
    input: event.input,
    reply: null,
    error: null,
    reason: null,
    by: event.by ?? null,
    queuedAt: queuedAtOf(event),
    startedAt: queued ? null : event.at,
    endedAt: null,
  }
}

export function replyOf(event: { readonly text: string; readonly data?: unknown }): Reply {
  return event.data === undefined ? { text: event.text } : { text: event.text, data: event.data }
}

type Waiter = {
  readonly resolve: (record: TurnRecord) => void
  readonly reject: (error: unknown) => void
}

/** `record`: null for a turn that was admitted before the session was loaded. */
type OpenTurn = { record: TurnRecord | null; waiters: Waiter[] }

/**
 * The turns of a loaded session that are not over, and the callers that wait for their ends.
 *
 * A map that has grown leaves its old table to the garbage collector, which keeps all that the
 * table names until its next full run. So the entry of a turn that is over is emptied.
 */
export class OpenTurns {
  readonly #turns = new Map<string, OpenTurn>()
  readonly #read: (turn: string) => Promise<TurnRecord>

  /** `read`: reads a turn from the log. */
  constructor(read: (turn: string) => Promise<TurnRecord>) {
    this.#read = read
  }

  follow(event: SessionEvent & { readonly turn: string }): void {
    const open = this.#turns.get(event.turn)
    if (open === undefined) {
      if (event.turn !== `t${event.seq}`) return
      this.#turns.set(event.turn, { record: recordTurn(null, event), waiters: [] })
    } else if (open.record !== null) open.record = recordTurn(open.record, event)
  }

  /** Resolves when the turn is over. */
  wait(turn: string): Promise<TurnRecord> {
    return new Promise((resolve, reject) => {
      const open = this.#turns.get(turn)
      if (open !== undefined) open.waiters.push({ resolve, reject })
      else this.#turns.set(turn, { record: null, waiters: [{ resolve, reject }] })
    })
  }

  /** The turn is over. */
  end(turn: string): void {
    const open = this.#turns.get(turn)
    if (open === undefined) return
    const { record, waiters } = open
    this.#turns.delete(turn)
    open.record = null
    open.waiters = []
    for (const { resolve, reject } of waiters) {
      if (record === null) this.#read(turn).then(resolve, reject)
      else resolve(record)
    }
  }

  /** The session was released. */
  fail(error: HoldfastError): void {
    const open = [...this.#turns.values()]
    this.#turns.clear()
    for (const { reject } of open.flatMap(({ waiters }) => waiters)) reject(error)
  }
}
