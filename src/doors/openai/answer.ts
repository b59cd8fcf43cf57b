/** A turn's answer, message by message, in parts as they come, and what it cost. */
import { AnswerText, HoldfastError, type Delta, type SessionEvent } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { turnOutcome, type TurnOutcome } from '../../wire/answer-text.ts'
import { streamTexts } from '../event-stream.ts'
import type { Exchange } from '../exchange.ts'
import type { Headers } from '../refusals.ts'
import { openAiError, turnFailure } from './errors.ts'
import type { AdmittedTurn } from './targets.ts'

/** A message of an answer; a turn that was cut short has not finished its last one. */
export type AnswerMessage = { readonly text: string; readonly isPartial: boolean }

export type AnswerEnd = { readonly outcome: TurnOutcome; readonly usage: TokenUsage }

export type AnswerPart =
  /** A piece of message number `message`, counted from 0. */
  | { readonly type: 'text'; readonly message: number; readonly text: string }
  /** Nothing is added to that message any more: all of its text. */
  | ({ readonly type: 'message'; readonly message: number } & AnswerMessage)
  | ({ readonly type: 'end' } & AnswerEnd)

export type TurnAnswer = AnswerEnd & { readonly messages: readonly AnswerMessage[] }

/** Until the turn is over, or the caller has gone. */
async function* answerParts(
  { session, turn }: AdmittedTurn,
  signal?: AbortSignal,
): AsyncGenerator<readonly AnswerPart[]> {
  const after = Number(turn.slice(1)) - 1
  const read = answerReader()
  for await (const items of session.feed({ after, presence: false, signal })) {
    const parts = items.flatMap(({ event }) =>
      'turn' in event && event.turn === turn ? read(event) : [],
    )
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

/** The returned function reads the events of one turn, in their order. */
function answerReader(): (event: SessionEvent | Delta) => readonly AnswerPart[] {
  const answer = new AnswerText()
  let messages = 0
  let usage = NO_USAGE
  return (event) => {
    const message = messages
    if (event.type === 'delta') return [{ type: 'text', message, text: answer.delta(event.text) }]
    if (event.type === 'message.added') {
      const { text, partial } = event
      const rest = answer.message(text)
      messages += 1
      const whole = { type: 'message', message, text, isPartial: partial === true } as const
      return rest === '' ? [whole] : [{ type: 'text', message, text: rest }, whole]
    }
    const outcome = turnOutcome(event)
    if (outcome !== null) return [{ type: 'end', outcome, usage }]
    usage = addUsage(usage, readUsage(event))
    return []
  }
}

/** How a protocol writes an answer as it comes. */
export interface AnswerWriter {
  begin(): string
  write(part: AnswerPart): string
}

/**
 * Sends an answer as server-sent events, as it comes. A failure is reported in the stream, as
 * OpenAI's clients expect it: an `error` in place of the next piece.
 */
export function streamAnswer(
  exchange: Exchange,
  admitted: AdmittedTurn,
  writer: AnswerWriter,
): Promise<void> {
  return streamTexts(exchange, answerTexts(admitted, writer, exchange.signal), {
    headers: sessionHeaders(admitted),
    first: writer.begin(),
    broken: (error) => errorText(openAiError(error)),
  })
}

async function* answerTexts(admitted: AdmittedTurn, writer: AnswerWriter, signal: AbortSignal) {
  for await (const parts of answerParts(admitted, signal)) {
    yield parts.map((part) => writer.write(part)).join('')
  }
}

/** Sends the whole answer, or how the turn failed, when it is over. */
export async function sendAnswer(
  exchange: Exchange,
  admitted: AdmittedTurn,
  view: (answer: TurnAnswer) => object,
): Promise<void> {
  const answer = await wholeAnswer(admitted)
  const failure = turnFailure(answer.outcome)
  if (failure !== null) return exchange.reply(failure.status, failure.body, failure.headers)
  exchange.reply(200, view(answer), sessionHeaders(admitted))
}

/** Where to watch the turn, or to answer what the agent asks. */
export function sessionHeaders({ session, turn }: AdmittedTurn): Headers {
  const request = `${session.id}/${turn}`
  return ['X-Session-Id', session.id, 'X-Turn-Id', turn, 'X-Request-Id', request]
}

export function errorText(error: unknown): string {
  return `event: error\ndata: ${JSON.stringify({ error })}\n\n`
}

export type TokenUsage = {
  readonly input: number
  readonly output: number
  readonly cached: number
}

export const NO_USAGE: TokenUsage = { input: 0, output: 0, cached: 0 }

/** If the agent reported it: activities of the kind `usage`, in several spellings. */
export function readUsage(event: object): TokenUsage {
  const { type, kind, data } = event as { type?: unknown; kind?: unknown; data?: unknown }
  if (type !== 'turn.activity' || kind !== 'usage' || !isRecord(data)) return NO_USAGE
  const facts = isRecord(data['usage']) ? data['usage'] : data
  const number = (...names: readonly string[]): number => {
    const value = names.map((name) => facts[name]).find((found) => typeof found === 'number')
    return typeof value === 'number' && value >= 0 ? Math.trunc(value) : 0
  }
  return {
    input: number('input_tokens', 'inputTokens', 'prompt_tokens', 'input'),
    output: number('output_tokens', 'outputTokens', 'completion_tokens', 'output'),
    cached: number(
      ...['cachedTokens', 'cached_input_tokens', 'cache_read_input_tokens', 'cachedReadTokens'],
    ),
  }
}

export function addUsage(one: TokenUsage, other: TokenUsage): TokenUsage {
  return {
    input: one.input + other.input,
    output: one.output + other.output,
    cached: one.cached + other.cached,
  }
}
