/** `/v1/responses`: make one, look at one, cancel one. */
import { Type } from '../../schema/typebox.ts'
import type { TurnRecord, TurnState } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import type { Exchange } from '../exchange.ts'
import { json, query, routes, type Route, visibleRef } from '../route.ts'
import {
  sendAnswer,
  sessionHeaders,
  streamAnswer,
  wholeAnswer,
  type AnswerMessage,
  type AnswerWriter,
  type TurnAnswer,
  type TokenUsage,
} from './answer.ts'
import { turnFailure } from './errors.ts'
import { inputOf, readInput } from './messages.ts'
import { readResponseBody, ResponseRequest, type ResponseBody } from './schemas.ts'
import { conversationOf, readResponseId, responseTarget, type AdmittedTurn } from './targets.ts'
import { TurnEntry, type OpenAiTurn } from './turn-entry.ts'

type ResponseFacts = {
  readonly id: string
  /** Seconds since 1970. */
  readonly created: number
  readonly model: string
  /** The request, for fields that are only echoed. */
  readonly body: Partial<ResponseBody>
}

export function responseRoutes(): readonly Route[] {
  const entry = new TurnEntry(readResponseRequest)
  return routes({
    'POST /v1/responses': {
      ...entry.route,
      name: 'createResponse',
      summary: 'OpenAI: a turn, answered as a response',
      body: ResponseRequest,
      handle: async (exchange) => respond(exchange, await entry.admit(exchange)),
    },
    'GET /v1/responses/:id': {
      name: 'getResponse',
      query: query({ include: Type.String({ description: 'Accepted, without effect.' }) }),
      summary: 'OpenAI: a response as it is now',
      operation: 'session.read',
      answers: { 200: json('The response.', { type: 'object' }) },
      refusals: [404],
      session: (exchange) => visibleRef(find(exchange).session, exchange.operation),
      handle: (exchange) => sendNow(exchange, find(exchange), {}),
    },
    'POST /v1/responses/:id/cancel': {
      name: 'cancelResponse',
      summary: 'OpenAI: cancel the turn of a response; answered when it is over',
      operation: 'turn.cancel',
      answers: { 200: json('The response, which is over.', { type: 'object' }) },
      refusals: [404],
      session: (exchange) => visibleRef(find(exchange).session, exchange.operation),
      handle: async (exchange) => {
        const found = find(exchange)
        // Returns when the turn is over; one that was over is shown as it ended.
        await found.session.cancelTurn(found.turn)
        await sendNow(exchange, found, {})
      },
    },
  })
}

async function readResponseRequest(exchange: Exchange): Promise<OpenAiTurn<ResponseBody>> {
  const body = readResponseBody(await exchange.json())
  const said = readInput(body.input, body.instructions ?? undefined)
  const target = await responseTarget(exchange, body)
  const isBackground = body.background === true
  return { target, input: inputOf(said, target, 'input'), body, isBackground }
}

async function respond(
  exchange: Exchange,
  { body, ...admitted }: AdmittedTurn & { readonly body: ResponseBody },
): Promise<void> {
  if (body.background === true && body.stream !== true) return sendNow(exchange, admitted, body)
  const record = await admitted.session.getTurn(admitted.turn)
  const facts = await describe(admitted, record, body)
  if (body.stream === true) {
    return streamAnswer(exchange, admitted, responseEventWriter(facts))
  }
  await sendAnswer(exchange, admitted, (answer) => view(facts, answer.outcome.state, answer))
}

async function describe(
  { session, turn }: AdmittedTurn,
  { queuedAt, startedAt }: TurnRecord,
  body: Partial<ResponseBody>,
): Promise<ResponseFacts> {
  const model = body.model ?? (await session.state()).agent
  const created = Math.floor((queuedAt ?? startedAt ?? 0) / 1_000)
  return { id: `resp_${session.id}_${turn}`, created, model, body }
}

function find({ holdfast, params: [id = ''] }: Exchange): AdmittedTurn {
  const { session, turn } = readResponseId(id)
  return { session: holdfast.session(session), turn }
}

/** Sends the response as it is now: with the answer if that is over, and without if not. */
async function sendNow(
  exchange: Exchange,
  found: AdmittedTurn,
  body: Partial<ResponseBody>,
): Promise<void> {
  const record = await found.session.getTurn(found.turn)
  const answer = record.endedAt === null ? null : await wholeAnswer(found)
  const response = view(await describe(found, record, body), record.state, answer)
  exchange.reply(200, response, sessionHeaders(found))
}

/** The response object of OpenAI's API; `answer` is null until the turn is over. */
function view(
  { id, created, model, body }: ResponseFacts,
  state: TurnState,
  answer: TurnAnswer | null,
) {
  const failure = answer === null ? null : turnFailure(answer.outcome)
  const { code, message } = failure?.body.error ?? {}
  const conversation = conversationOf(body)
  return {
    id,
    object: 'response',
    created_at: created,
    status: STATUS[state],
    background: body.background === true,
    error: failure === null ? null : { code, message },
    incomplete_details: null,
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    model,
    output: (answer?.messages ?? []).map((said, index) => messageItem(id, index, said)),
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

function messageItem(response: string, index: number, { text, isPartial }: AnswerMessage) {
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

function messageId(response: string, index: number): string {
  return `msg_${response.slice('resp_'.length)}_${index}`
}

/** A response as it comes: OpenAI's typed events, numbered, from `created` to its end. */
function responseEventWriter(facts: ResponseFacts): AnswerWriter {
  const messages: AnswerMessage[] = []
  /** The message that is being written. */
  let open = -1
  let number = 0

  function event(type: string, more: object): string {
    const data = { type, sequence_number: number, ...more }
    number += 1
    return `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`
  }

  function openMessage(index: number, place: object): string {
    open = index
    const empty = messageItem(facts.id, index, { text: '', isPartial: true })
    const item = { ...empty, status: 'in_progress', content: [] }
    return (
      event('response.output_item.added', { output_index: index, item }) +
      event('response.content_part.added', { ...place, part: textPart('') })
    )
  }

  function closeMessage(index: number, place: object, said: AnswerMessage): string {
    const { text } = said
    messages.push(said)
    const item = messageItem(facts.id, index, said)
    return (
      event('response.output_text.done', { ...place, text, logprobs: [] }) +
      event('response.content_part.done', { ...place, part: textPart(text) }) +
      event('response.output_item.done', { output_index: index, item })
    )
  }

  return {
    begin() {
      const response = view(facts, 'running', null)
      return event('response.created', { response }) + event('response.in_progress', { response })
    },
    write(part) {
      if (part.type === 'end') {
        const { state } = part.outcome
        const response = view(facts, state, { ...part, messages })
        return event(`response.${state === 'done' ? 'completed' : 'failed'}`, { response })
      }
      const index = part.message
      const place = { item_id: messageId(facts.id, index), output_index: index, content_index: 0 }
      const opened = open === index ? '' : openMessage(index, place)
      if (part.type === 'message') return opened + closeMessage(index, place, part)
      const delta = { ...place, delta: part.text, logprobs: [] }
      return opened + event('response.output_text.delta', delta)
    },
  }
}
