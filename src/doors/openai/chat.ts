/** `POST /v1/chat/completions`. */
import type { Exchange, Headers } from '../exchange.ts'
import { answerParts, wholeAnswer, type TurnAnswer, type AnswerPart } from './answer.ts'
import { turnFailure } from './errors.ts'
import { newMessage, readMessages, wholeConversation } from './messages.ts'
import { OwnTarget } from './own-target.ts'
import { chatTarget } from './request-targets.ts'
import { readChatBody, type ChatBody } from './schemas.ts'
import { errorText, streamTexts } from './stream.ts'
import type { OpenAiTurn, TurnEntry } from './turn-entry.ts'
import type { AdmittedTurn } from './turn-targets.ts'
import { chatUsage } from './usage.ts'

export async function readChatRequest(exchange: Exchange): Promise<OpenAiTurn<ChatBody>> {
  const body = readChatBody(await exchange.json())
  const target = chatTarget(exchange, body)
  const isOwn = target instanceof OwnTarget
  const said = readMessages(body.messages, isOwn ? 'all' : 'new')
  const input = isOwn ? wholeConversation(said, 'messages') : newMessage(said, 'messages')
  return { target, input, body, isBackground: false }
}

export async function createChatCompletion(
  exchange: Exchange,
  entry: TurnEntry<ChatBody>,
): Promise<void> {
  const { body, ...admitted } = await entry.admit(exchange)
  const completion = await describe(exchange, admitted, body)
  if (body.stream === true) {
    const texts = chunks(completion, answerParts(admitted, exchange.signal), body)
    return streamTexts(exchange, texts, sessionHeaders(admitted))
  }
  const answer = await wholeAnswer(admitted)
  exchange.respond(turnFailure(answer.outcome) ?? completed(completion, answer, admitted))
}

/** Where to watch the turn, or to answer what the agent asks. */
export function sessionHeaders({ session, turn }: AdmittedTurn): Headers {
  const request = `${session.id}/${turn}`
  return ['X-Session-Id', session.id, 'X-Turn-Id', turn, 'X-Request-Id', request]
}

type Completion = { readonly id: string; readonly created: number; readonly model: string }

async function describe(
  { holdfast }: Exchange,
  { session, turn }: AdmittedTurn,
  body: ChatBody,
): Promise<Completion> {
  const model = body.model ?? (await session.state()).agent
  const created = Math.floor(holdfast.authority.clock.now() / 1_000)
  return { id: `chatcmpl-${session.id}-${turn}`, created, model }
}

function completed({ id, created, model }: Completion, answer: TurnAnswer, admitted: AdmittedTurn) {
  const texts = answer.messages.map(({ text }) => text)
  const content = texts.filter((text) => text !== '').join(BETWEEN)
  const message = { role: 'assistant', content, refusal: null }
  const body = {
    id,
    object: 'chat.completion',
    created,
    model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
    usage: chatUsage(answer.usage),
  }
  return { status: 200, type: 'application/json', body, headers: sessionHeaders(admitted) }
}

/** A turn may have several messages, a completion has one. */
const BETWEEN = '\n\n'

async function* chunks(
  completion: Completion,
  answer: AsyncIterable<readonly AnswerPart[]>,
  body: ChatBody,
): AsyncGenerator<string> {
  const withUsage = body.stream_options?.include_usage === true
  const writer = new ChunkWriter(completion, withUsage)
  yield writer.begin()
  for await (const parts of answer) yield parts.map((part) => writer.write(part)).join('')
}

/** A completion as it comes: each chunk with the little that is new. */
class ChunkWriter {
  readonly #facts: object
  readonly #withUsage: boolean
  /** The message that was written last. */
  #message = -1

  constructor({ id, created, model }: Completion, withUsage: boolean) {
    this.#facts = { id, object: 'chat.completion.chunk', created, model }
    this.#withUsage = withUsage
  }

  begin(): string {
    return this.#choice({ role: 'assistant', content: '', refusal: null })
  }

  write(part: AnswerPart): string {
    switch (part.type) {
      case 'text': {
        const isNext = this.#message >= 0 && part.message > this.#message
        this.#message = part.message
        return this.#choice({ content: `${isNext ? BETWEEN : ''}${part.text}` })
      }
      case 'message':
        return ''
      case 'end':
        return this.#end(part)
    }
  }

  #end({ outcome, usage }: AnswerPart & { readonly type: 'end' }): string {
    const failure = turnFailure(outcome)
    if (failure !== null) return errorText(failure.body.error)
    const last = this.#withUsage ? this.#chunk([], chatUsage(usage)) : ''
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
