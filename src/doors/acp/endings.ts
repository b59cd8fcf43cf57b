/** How turns end, as answers to the prompts that they are. */
import type { SessionEvent } from '../../core/index.ts'
import { isTerminal } from '../../core/turns.ts'
import { isRecord } from '../../schema/contract.ts'
import { INTERNAL, RpcError } from '../json-rpc.ts'

type TerminalEvent = Extract<
  SessionEvent,
  {
    readonly type:
      | 'turn.done'
      | 'turn.failed'
      | 'turn.cancelled'
      | 'turn.interrupted'
      | 'turn.expired'
  }
>

export type TurnEnding = {
  readonly event: TerminalEvent
  /** Why the agent stopped, if it said. */
  readonly stopReason: string
  readonly usage: unknown
}

const STOP_REASONS: ReadonlySet<unknown> = new Set(['max_tokens', 'max_turn_requests', 'refusal'])
/** Turns that have ended and may still be asked about. */
const KEPT = 64

/** Collects what the ends of turns are made of. */
export class TurnEndings {
  readonly #told = new Map<string, { stopReason: string; usage: unknown }>()
  readonly #ended = new Map<string, TurnEnding>()

  of(turn: string): TurnEnding | null {
    return this.#ended.get(turn) ?? null
  }

  /** The end of a turn, if the event is one. */
  take(event: SessionEvent): TurnEnding | null {
    if (event.type === 'turn.activity') this.#note(event)
    if (!isTerminal(event)) return null
    const ended = event as TerminalEvent
    const told = this.#told.get(ended.turn) ?? { stopReason: 'end_turn', usage: null }
    const ending = { event: ended, ...told }
    this.#told.delete(ended.turn)
    this.#ended.set(ended.turn, ending)
    const [oldest] = this.#ended.keys()
    if (this.#ended.size > KEPT && oldest !== undefined) this.#ended.delete(oldest)
    return ending
  }

  #note({ turn, kind, data }: Extract<SessionEvent, { readonly type: 'turn.activity' }>): void {
    if (!isRecord(data) || (kind !== 'stop' && kind !== 'usage')) return
    const told = this.#told.get(turn) ?? { stopReason: 'end_turn', usage: null }
    const { reason } = data
    if (kind === 'usage') told.usage = data
    else if (STOP_REASONS.has(reason)) told.stopReason = String(reason)
    this.#told.set(turn, told)
  }
}

/** The answer to the prompt of a turn that is over; throws if it is an error. */
export function promptAnswer({ event, stopReason, usage }: TurnEnding): object {
  const { turn } = event
  const known = { turn, ...(usage === null ? {} : { usage }) }
  switch (event.type) {
    case 'turn.done':
      return { stopReason, _meta: { holdfast: known } }
    case 'turn.cancelled':
      return { stopReason: 'cancelled', _meta: { holdfast: { ...known, reason: event.reason } } }
    case 'turn.failed':
      throw turnError(event.error.message, { turn, state: 'failed', code: event.error.code })
    case 'turn.interrupted': {
      const { reason } = event
      const words = `the turn was interrupted (${reason}); what it had said is kept`
      throw turnError(words, { turn, state: 'interrupted', code: 'interrupted', reason })
    }
    case 'turn.expired':
      throw turnError('the prompt waited for too long', { turn, state: 'expired', code: 'expired' })
  }
}

function turnError(message: string, data: object): RpcError {
  return new RpcError(INTERNAL, message, { ...data, retry: false })
}
