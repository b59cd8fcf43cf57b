/** The response object of OpenAI's API, made from a turn. */
import type { TurnState } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import type { TurnAnswer, AnswerMessage } from './answer.ts'
import { turnFailure } from './errors.ts'
import type { ResponseBody } from './schemas.ts'
import { responseUsage } from './usage.ts'

/** What is known of a response from its beginning. */
export type ResponseFacts = {
  readonly id: string
  /** Seconds since 1970. */
  readonly created: number
  readonly model: string
  /** The request, for fields that are only echoed. */
  readonly body: Partial<ResponseBody>
}

export function responseObject(facts: ResponseFacts, state: TurnState, answer: TurnAnswer | null) {
  const { id, created, model, body } = facts
  const failure = answer === null ? null : turnFailure(answer.outcome)
  const output = (answer?.messages ?? []).map((said, index) => messageItem(id, index, said))
  return {
    id,
    object: 'response',
    created_at: created,
    status: STATUS[state],
    background: body.background === true,
    error: failure === null ? null : inResponse(failure.body.error),
    incomplete_details: null,
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    model,
    output,
    parallel_tool_calls: true,
    previous_response_id: body.previous_response_id ?? null,
    ...conversationOf(body),
    store: body.store !== false,
    temperature: body.temperature ?? null,
    text: { format: { type: 'text' } },
    tool_choice: 'auto',
    tools: [],
    top_p: body.top_p ?? null,
    truncation: 'disabled',
    metadata: isRecord(body.metadata) ? body.metadata : {},
    usage: answer === null ? null : responseUsage(answer.usage),
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

/** In a response an error has only a code and a message. */
function inResponse({ code, message }: { readonly code: string; readonly message: string }) {
  return { code, message }
}

function conversationOf({ conversation }: Partial<ResponseBody>): {
  conversation?: { id: string }
} {
  if (typeof conversation === 'string') return { conversation: { id: conversation } }
  return conversation?.id === undefined ? {} : { conversation: { id: conversation.id } }
}

export function messageItem(response: string, index: number, { text, isPartial }: AnswerMessage) {
  return {
    id: messageId(response, index),
    type: 'message',
    status: itemStatus(isPartial),
    role: 'assistant',
    content: [textPart(text)],
  }
}

export function itemStatus(isPartial: boolean): string {
  return isPartial ? 'incomplete' : 'completed'
}

export function textPart(text: string) {
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

export function messageId(response: string, index: number): string {
  return `msg_${response.slice('resp_'.length)}_${index}`
}
