/**
 * The requests of OpenAI's API, as far as they are ours. What only tunes a model (temperature,
 * token limits, …) is accepted and left to the agent. What would make the answer another one than
 * was asked for is refused.
 */
import { Type, type Static, type TSchema } from '../../schema/typebox.ts'
import { HoldfastError } from '../../core/index.ts'
import { nestsTooDeep, optional, orNull, PROBLEM } from '../../schema/contract.ts'
import { reader } from '../../wire/bodies.ts'
import { assertNoTools } from './messages.ts'

/** In one request, as OpenAI has it. */
const ITEMS_MAX = 20
const ITEMS_PROBLEM = `must be a list of at most ${ITEMS_MAX} messages`

const text = Type.String({ minLength: 1 })
const flag = orNull(Type.Boolean())
const none = Type.Array(Type.Never(), { maxItems: 0 })
const plainText = Type.Object({ type: Type.Literal('text') })
const list = Type.Array(Type.Unknown(), {
  minItems: 1,
  [PROBLEM]: 'must be a list that is not empty',
})
const model = orNull(text, { description: 'An agent; the first one if it is not there.' })

/** A parameter that has no effect with these values, and another answer with others. */
function only(...values: TSchema[]) {
  return Type.Union([...values, Type.Null()], {
    [PROBLEM]: 'asks for something that Holdfast lacks',
  })
}

export const ChatCompletionRequest = Type.Object({
  messages: list,
  ...optional({
    model,
    stream: flag,
    stream_options: orNull(Type.Object(optional({ include_usage: flag }))),
    n: only(Type.Literal(1)),
    tools: only(none),
    functions: only(none),
    response_format: only(plainText),
    modalities: only(Type.Array(Type.Literal('text'))),
    audio: only(),
    logprobs: only(Type.Literal(false)),
    top_logprobs: only(Type.Literal(0)),
    stop: only(none, Type.Literal('')),
    web_search_options: only(),
  }),
})

export const ResponseRequest = Type.Object({
  input: Type.Union([Type.String(), list], {
    [PROBLEM]: 'must be a text, or a list that is not empty',
  }),
  ...optional({
    model,
    instructions: orNull(Type.String()),
    conversation: orNull(Type.Union([text, Type.Object({ id: text })]), {
      [PROBLEM]: 'must be the id of a conversation, or an object with it',
    }),
    previous_response_id: orNull(text),
    stream: flag,
    background: flag,
    store: orNull(Type.Boolean({ default: true })),
    tools: only(none),
    text: only(Type.Object(optional({ format: orNull(plainText) }))),
    prompt: only(),
    top_logprobs: only(Type.Literal(0)),
    metadata: Type.Unknown(),
    max_output_tokens: Type.Unknown(),
    temperature: Type.Unknown(),
    top_p: Type.Unknown(),
  }),
})

const items = Type.Array(Type.Unknown(), { maxItems: ITEMS_MAX, [PROBLEM]: ITEMS_PROBLEM })

export const ConversationRequest = Type.Object(
  optional({
    items: orNull(items, { [PROBLEM]: ITEMS_PROBLEM }),
    metadata: orNull(Type.Record(Type.String(), Type.String()), {
      [PROBLEM]: 'must be an object of texts',
    }),
  }),
)

export const ItemsRequest = Type.Object({ items })

export type ChatBody = Static<typeof ChatCompletionRequest>
export type ResponseBody = Static<typeof ResponseRequest>

export const readChatBody = shallow(reader(ChatCompletionRequest))
export const readResponseBody = shallow(reader(ResponseRequest))
export const readConversationBody = shallow(reader(ConversationRequest))
export const readItemsBody = shallow(reader(ItemsRequest))

function shallow<Body>(read: (body: unknown) => Body): (body: unknown) => Body {
  return (body) => {
    if (nestsTooDeep(body)) throw new HoldfastError('bad_request', 'the body nests too deep')
    assertNoTools(body)
    return read(body)
  }
}

export const OpenAiError = Type.Object({
  error: Type.Object({
    message: Type.String(),
    type: Type.String(),
    code: Type.String(),
    param: orNull(Type.String()),
  }),
})
