/** `POST /v1/chat/completions`. */
import { invalid } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { routes, type Route } from '../route.ts'
import {
  errorText,
  sendAnswer,
  streamAnswer,
  type AnswerEnd,
  type AnswerWriter,
  type TurnAnswer,
  type TokenUsage,
} from './answer.ts'
import { turnFailure } from './errors.ts'
import {
  inputOf,
  instructionsOf,
  readEntries,
  type ChatMessage,
  type ItemReference,
} from './messages.ts'
import { ChatCompletionRequest, readChatBody, type ChatBody } from './schemas.ts'
import { chatTarget, type AdmittedTurn } from './targets.ts'
import { TurnEntry, type OpenAiTurn } from './turn-entry.ts'

export function chatRoutes(): readonly Route[] {
  const entry = new TurnEntry(readChatRequest)
  return routes({
    'POST /v1/chat/completions': {
      ...entry.route,
      name: 'createChatCompletion',
      summary: 'OpenAI: a turn, answered as a chat completion',
      body: ChatCompletionRequest,
      handle: async (exchange) => complete(exchange, await entry.admit(exchange)),
    },
  })
}

async function readChatRequest(exchange: Exchange): Promise<OpenAiTurn<ChatBody>> {
  const body = readChatBody(await exchange.json())
  const target = chatTarget(exchange, body)
  const said = readEntries(body.messages, target.takes, 'messages').map(asMessage)
  const instructions = instructionsOf(said)
  return { target, input: inputOf(said, 'messages'), instructions, body, isBackground: false }
}

function asMessage(entry: ChatMessage | ItemReference): ChatMessage {
  if ('role' in entry) return entry
  throw invalid(entry.field, 'must be a message: items have their ids with responses')
}

async function complete(
  exchange: Exchange,
  { body, ...admitted }: AdmittedTurn & { readonly body: ChatBody },
): Promise<void> {
  const { session, turn } = admitted
  const id = `chatcmpl-${session.id}-${turn}`
  const model = body.model ?? (await session.state()).agent
  const created = Math.floor(exchange.holdfast.authority.clock.now() / 1_000)
  const completion = { id, created, model }
  if (body.stream !== true) {
    return sendAnswer(exchange, admitted, (answer) => completed(completion, answer))
  }
  const withUsage = body.stream_options?.include_usage === true
  await streamAnswer(exchange, admitted, chunkWriter(completion, withUsage))
}

type Completion = { readonly id: string; readonly created: number; readonly model: string }

function completed(completion: Completion, { messages, usage }: TurnAnswer) {
  const texts = messages.map(({ text }) => text).filter((text) => text !== '')
  const message = { role: 'assistant', content: texts.join(BETWEEN), refusal: null }
  return {
    ...completion,
    object: 'chat.completion',
    choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
    usage: usageView(usage),
  }
}

function usageView({ input, output, cached }: TokenUsage) {
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    prompt_tokens_details: { cached_tokens: cached },
  }
}

/** A turn may have several messages, a completion has one. */
const BETWEEN = '\n\n'

/** A completion as it comes: each chunk with the little that is new. */
function chunkWriter(completion: Completion, withUsage: boolean): AnswerWriter {
  const facts = { ...completion, object: 'chat.completion.chunk' }
  /** The message that was written last. */
  let last = -1

  function chunk(choices: readonly object[], usage: object | null = null): string {
    return `data: ${JSON.stringify({ ...facts, choices, ...(withUsage && { usage }) })}\n\n`
  }

  function choice(delta: object, finishReason: string | null = null): string {
    return chunk([{ index: 0, delta, logprobs: null, finish_reason: finishReason }])
  }

  function end({ outcome, usage }: AnswerEnd): string {
    const failure = turnFailure(outcome)
    if (failure !== null) return errorText(failure.body.error)
    const counted = withUsage ? chunk([], usageView(usage)) : ''
    return `${choice({}, 'stop')}${counted}data: [DONE]\n\n`
  }

  return {
    begin: () => choice({ role: 'assistant', content: '', refusal: null }),
    write(part) {
      if (part.type === 'end') return end(part)
      if (part.type === 'message') return ''
      const isNext = last >= 0 && part.message > last
      last = part.message
      return choice({ content: `${isNext ? BETWEEN : ''}${part.text}` })
    },
  }
}
