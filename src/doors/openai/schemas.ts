/** The OpenAI door's JSON, described for the OpenAPI document as far as it is ours. */
import type { Schema } from '../route.ts'

const text: Schema = { type: 'string' }
const textOrNull: Schema = { type: ['string', 'null'] }

function object(properties: Readonly<Record<string, Schema>>, required: readonly string[]): Schema {
  return { type: 'object', properties, required }
}

export const OPENAI_SCHEMAS: Readonly<Record<string, Schema>> = {
  OpenAiError: object(
    {
      error: object({ message: text, type: text, code: text, param: textOrNull }, [
        'message',
        'type',
        'code',
        'param',
      ]),
    },
    ['error'],
  ),
  ChatCompletionRequest: object(
    {
      model: { type: 'string', description: 'An agent; the first one if it is not there.' },
      messages: { type: 'array', minItems: 1, items: { type: 'object' } },
      stream: { type: 'boolean' },
      stream_options: object({ include_usage: { type: 'boolean' } }, []),
    },
    ['messages'],
  ),
  ResponseRequest: object(
    {
      model: { type: 'string', description: 'An agent; the first one if it is not there.' },
      input: { oneOf: [text, { type: 'array', items: { type: 'object' } }] },
      instructions: textOrNull,
      conversation: { oneOf: [text, object({ id: text }, ['id'])] },
      previous_response_id: textOrNull,
      stream: { type: 'boolean' },
      background: { type: 'boolean' },
      store: { type: 'boolean', default: true },
    },
    ['input'],
  ),
  ConversationRequest: object({ metadata: { type: 'object', additionalProperties: text } }, []),
}
