/** `POST /v1/chat/completions`. */
import type { Exchange } from '../exchange.ts'
import { routes, type Route } from '../route.ts'
import {
  errorText,
  sendAnswer,
  streamAnswer,
  type AnswerPart,
  type AnswerWriter,
  type TurnAnswer,
  type Usage,
} from './answer.ts'
import { turnFailure } from './errors.ts'
import { inputOf, readMessages } from './messages.ts'
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
  const said = readMessages(body.messages, target.isOwn ? 'all' : 'new')
  return { target, input: inputOf(said, target, 'messages'), body, isBackground: false }
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
  await streamAnswer(exchange, admitted, new ChunkWriter(completion, withUsage))
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

function usageView({ input, output, cached }: Usage) {
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
class ChunkWriter implements AnswerWriter {
  readonly #facts: object
  readonly #withUsage: boolean
  /** The message that was written last. */
  #message = -1

  constructor(completion: Completion, withUsage: boolean) {
    this.#facts = { ...completion, object: 'chat.completion.chunk' }
    this.#withUsage = withUsage
  }

  begin(): string {
    return this.#choice({ role: 'assistant', content: '', refusal: null })
  }

  write(part: AnswerPart): string {
    if (part.type === 'end') return this.#end(part)
    if (part.type === 'message') return ''
    const isNext = this.#message >= 0 && part.message > this.#message
    this.#message = part.message
    return this.#choice({ content: `${isNext ? BETWEEN : ''}${part.text}` })
  }

  #end({ outcome, usage }: AnswerPart & { readonly type: 'end' }): string {
    const failure = turnFailure(outcome)
    if (failure !== null) return errorText(failure.body.error)
    const last = this.#withUsage ? this.#chunk([], usageView(usage)) : ''
    return `${this.#choice({}, 'stop')}${last}data: [DONE]\n\n`
  }

  #choice(delta: object, finishReason: string | null = null): string {
    return this.#chunk([{ index: 0, delta, logprobs: null, finish_reason: finishReason }])
  }

  #chunk(choices: readonly object[], usage: object | null = null): string {
    const counted = this.#withUsage ? { usage } : {}
    return `data: ${JSON.stringify({ ...this.#facts, choices, ...counted })}\n\n`
  }
}
