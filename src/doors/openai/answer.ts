/** A turn's answer, message by message, in parts as they come. */
import { AnswerText, HoldfastError, type Delta, type SessionEvent } from '../../core/index.ts'
import type { TurnOutcome } from './errors.ts'
import type { AdmittedTurn } from './turn-targets.ts'
import { addUsage, NO_USAGE, readUsage, type Usage } from './usage.ts'

/** A message of an answer; a turn that was cut short has not finished its last one. */
export type AnswerMessage = { readonly text: string; readonly isPartial: boolean }

export type AnswerPart =
  /** A piece of message number `message`, counted from 0. */
  | { readonly type: 'text'; readonly message: number; readonly text: string }
  /** Nothing is added to that message any more: all of its text. */
  | ({ readonly type: 'message'; readonly message: number } & AnswerMessage)
  | { readonly type: 'end'; readonly outcome: TurnOutcome; readonly usage: Usage }

/** All of an answer. */
export type TurnAnswer = {
  readonly messages: readonly AnswerMessage[]
  readonly outcome: TurnOutcome
  readonly usage: Usage
}

/** Until the turn is over, or the caller has gone. */
export async function* answerParts(
  { session, turn }: AdmittedTurn,
  signal?: AbortSignal,
): AsyncGenerator<readonly AnswerPart[]> {
  const after = Number(turn.slice(1)) - 1
  const reader = new AnswerReader()
  const presence = false
  for await (const items of session.feed({ after, presence, ...(signal && { signal }) })) {
    const own = items.map(({ event }) => event).filter((event) => isOf(turn, event))
    const parts = own.flatMap((event) => reader.parts(event))
    if (parts.length > 0) yield parts
    if (parts.at(-1)?.type === 'end') return
  }
  if (signal?.aborted === true) return
  throw new HoldfastError('internal', `the log of session ${session.id} ends within turn ${turn}`)
}

export async function wholeAnswer(admitted: AdmittedTurn): Promise<TurnAnswer> {
  const messages: AnswerMessage[] = []
  for await (const parts of answerParts(admitted)) {
    for (const part of parts) {
      if (part.type === 'message') messages.push(part)
      if (part.type === 'end') return { messages, outcome: part.outcome, usage: part.usage }
    }
  }
  throw new HoldfastError('internal', 'an answer without an end')
}

function isOf(turn: string, event: SessionEvent | Delta): boolean {
  return 'turn' in event && event.turn === turn
}

/** Where in the answer we are. */
class AnswerReader {
  #message = 0
  readonly #answer = new AnswerText()
  #usage = NO_USAGE

  parts(event: SessionEvent | Delta): readonly AnswerPart[] {
    switch (event.type) {
      case 'delta':
        return [{ type: 'text', message: this.#message, text: this.#answer.delta(event.text) }]
      case 'message.added':
        return this.#added({ text: event.text, isPartial: event.partial === true })
      case 'turn.done':
        return this.#end({ state: 'done', error: null, reason: null })
      case 'turn.failed':
        return this.#end({ state: 'failed', error: event.error, reason: null })
      case 'turn.cancelled':
        return this.#end({ state: 'cancelled', error: null, reason: event.reason })
      case 'turn.interrupted':
        return this.#end({ state: 'interrupted', error: null, reason: event.reason })
      case 'turn.expired':
        return this.#end({ state: 'expired', error: null, reason: null })
      default:
        this.#usage = addUsage(this.#usage, readUsage(event))
        return []
    }
  }

  #added(said: AnswerMessage): readonly AnswerPart[] {
    const message = this.#message
    const rest = this.#answer.message(said.text)
    this.#message += 1
    const whole: AnswerPart = { type: 'message', message, ...said }
    return rest === '' ? [whole] : [{ type: 'text', message, text: rest }, whole]
  }

  #end(outcome: TurnOutcome): readonly AnswerPart[] {
    return [{ type: 'end', outcome, usage: this.#usage }]
  }
}
