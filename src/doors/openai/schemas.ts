/** The OpenAI door's JSON, described for the OpenAPI document as far as it is ours. */
import { Type } from '@sinclair/typebox'
import { optional, orNull } from '../../schema/contract.ts'

const text = Type.String()
const objects = Type.Array(Type.Object({}), { minItems: 1 })
const model = Type.String({ description: 'An agent; the first one if it is not there.' })

export const OpenAiError = Type.Object({
  error: Type.Object({ message: text, type: text, code: text, param: orNull(text) }),
})

export const ChatCompletionRequest = Type.Object({
  messages: objects,
  ...optional({
    model,
    stream: Type.Boolean(),
    stream_options: Type.Object(optional({ include_usage: Type.Boolean() })),
  }),
})

export const ResponseRequest = Type.Object({
  input: Type.Union([text, objects]),
  ...optional({
    model,
    instructions: orNull(text),
    conversation: Type.Union([text, Type.Object({ id: text })]),
    previous_response_id: orNull(text),
    stream: Type.Boolean(),
    background: Type.Boolean(),
    store: Type.Boolean({ default: true }),
  }),
})

export const ConversationRequest = Type.Object(optional({ metadata: Type.Record(text, text) }))

export const OPENAI_SCHEMAS = {
  OpenAiError,
  ChatCompletionRequest,
  ResponseRequest,
  ConversationRequest,
}
