/** A response as OpenAI's clients read it: the object, and the events of its stream. */
import type { TurnState } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import type { AnswerMessage, AnswerWriter, TokenUsage, TurnAnswer } from './answer.ts'
import { DeltaPieces } from './delta-pieces.ts'
import { turnFailure } from './errors.ts'
import { itemId, itemView, textPart } from './items.ts'
import type { ResponseBody } from './schemas.ts'
import { conversationOf, type AdmittedTurn } from './targets.ts'

export type ResponseFacts = {
  readonly admitted: AdmittedTurn
  /** Seconds since 1970. */
  readonly created: number
  readonly model: string
  /** The request, for fields that are only echoed. */
  readonly body: Partial<ResponseBody>
}

function responseId({ session, turn }: AdmittedTurn): string {
  return `resp_${session.id}_${turn}`
}

/** The response object of OpenAI's API; `answer` is null until the turn is over. */
export function responseView(
  { admitted, created, model, body }: ResponseFacts,
  state: TurnState,
  answer: TurnAnswer | null,
) {
  const failure = answer === null ? null : turnFailure(answer.outcome)
  const { code, message } = failure?.body.error ?? {}
  const conversation = conversationOf(body)
  return {
    id: responseId(admitted),
    object: 'response',
    created_at: created,
    status: STATUS[state],
    background: body.background === true,
    error: failure === null ? null : { code, message },
    incomplete_details: null,
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    model,
    output: (answer?.messages ?? []).map((said, index) => messageItem(admitted, index, said)),
    parallel_tool_calls: true,
    previous_response_id: body.previous_response_id ?? null,
    conversation: conversation === undefined ? undefined : { id: conversation },
    store: body.store !== false,
    temperature: body.temperature ?? null,
    text: { format: { type: 'text' } },
    tool_choice: 'auto',
    tools: [],
    top_p: body.top_p ?? null,
    truncation: 'disabled',
    metadata: isRecord(body.metadata) ? body.metadata : {},
    usage: answer === null ? null : usageView(answer.usage),
  }
}

const STATUS: Readonly<Record<TurnState, string>> = {
  queued: 'queued',
  running: 'in_progress',
  done: 'completed',
  failed: 'failed',
  cancelled: 'cancelled',
  interrupted: 'failed',
  expired: 'failed',
}

function usageView({ input, output, cached }: TokenUsage) {
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cached },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output,
  }
}

function messageItem({ session, turn }: AdmittedTurn, index: number, said: AnswerMessage) {
  const id = itemId(session.id, 't', Number(turn.slice(1)), index)
  return itemView({ id, role: 'assistant', content: said.text, isPartial: said.isPartial })
}

/**
 * A response as it comes: OpenAI's typed events, from `created` to its end, after the event with
 * the number `after`.
 *
 * The events are numbered 0, 1, 2, …. The numbers follow from the log: a text is sent in pieces
 * that follow from the text alone (`DeltaPieces`), not in those in which the agent said it.
 */
export function responseEventWriter(facts: ResponseFacts, after = -1): AnswerWriter {
  const messages: AnswerMessage[] = []
  /** The message that is being written. */
  let open = -1
  let pieces = new DeltaPieces()
  let next = 0

  function event(type: string, more: object, number = next): string {
    next = number + 1
    if (number <= after) return ''
    const data = { type, sequence_number: number, ...more }
    return `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`
  }

  function deltas(place: object, texts: readonly string[]): string {
    return texts
      .map((delta) => event('response.output_text.delta', { ...place, delta, logprobs: [] }))
      .join('')
  }

  function openMessage(index: number, place: object): string {
    open = index
    pieces = new DeltaPieces()
    const empty = messageItem(facts.admitted, index, { text: '', isPartial: true })
    const item = { ...empty, status: 'in_progress', content: [] }
    return (
      event('response.output_item.added', { output_index: index, item }) +
      event('response.content_part.added', { ...place, part: textPart('') })
    )
  }

  function closeMessage(index: number, place: object, said: AnswerMessage): string {
    const { text } = said
    messages.push(said)
    const item = messageItem(facts.admitted, index, said)
    return (
      deltas(place, pieces.end()) +
      event('response.output_text.done', { ...place, text, logprobs: [] }) +
      event('response.content_part.done', { ...place, part: textPart(text) }) +
      event('response.output_item.done', { output_index: index, item })
    )
  }

  return {
    begin() {
      const response = responseView(facts, 'running', null)
      return event('response.created', { response }) + event('response.in_progress', { response })
    },
    write(part) {
      if (part.type === 'end') {
        const { state } = part.outcome
        const response = responseView(facts, state, { ...part, messages })
        const type = `response.${state === 'done' ? 'completed' : 'failed'}`
        // A crash may have lost the last of what the reader has seen: the end comes after it too.
        return event(type, { response }, Math.max(next, after + 1))
      }
      const index = part.message
      const { id } = messageItem(facts.admitted, index, { text: '', isPartial: true })
      const place = { item_id: id, output_index: index, content_index: 0 }
      const opened = open === index ? '' : openMessage(index, place)
      if (part.type === 'message') return opened + closeMessage(index, place, part)
      return opened + deltas(place, pieces.add(part.text))
    },
  }
}
