/**
 * Which parameters of OpenAI's API are taken. What only tunes a model (temperature, token limits,
 * …) is accepted and left to the agent; what would make the answer another one than was asked for
 * is refused, so that nobody takes it for granted.
 */
import { HoldfastError, invalid } from '../../core/index.ts'
import { nestsTooDeep } from '../../schema/contract.ts'

export type Body = Readonly<Record<string, unknown>>

/** Whether a value asks for nothing that we lack. */
type ParameterRule = (value: unknown) => boolean

const absent: ParameterRule = (value) => value === null || value === undefined
const empty: ParameterRule = (value) =>
  absent(value) || (Array.isArray(value) && value.length === 0)
const off: ParameterRule = (value) => absent(value) || value === false
const none: ParameterRule = (value) => absent(value) || value === 0
const noStop: ParameterRule = (value) => empty(value) || value === ''
const plainText: ParameterRule = (value) =>
  absent(value) || (isRecord(value) && value['type'] === 'text')
const textOnly: ParameterRule = (value) =>
  absent(value) || (Array.isArray(value) && value.every((modality) => modality === 'text'))

export const CHAT_RULES: Readonly<Record<string, ParameterRule>> = {
  n: (value) => absent(value) || value === 1,
  tools: empty,
  functions: empty,
  response_format: plainText,
  modalities: textOnly,
  audio: absent,
  logprobs: off,
  top_logprobs: none,
  stop: noStop,
  web_search_options: absent,
}

export const RESPONSE_RULES: Readonly<Record<string, ParameterRule>> = {
  tools: empty,
  text: (value) => absent(value) || (isRecord(value) && plainText(value['format'])),
  prompt: absent,
  top_logprobs: none,
}

/** The body as an object, in which nothing is asked for that there is not. */
export function readBody(body: unknown, rules: Readonly<Record<string, ParameterRule>>): Body {
  if (!isRecord(body)) throw new HoldfastError('bad_request', 'the body must be a JSON object')
  if (nestsTooDeep(body)) throw new HoldfastError('bad_request', 'the body nests too deep')
  for (const [name, isAcceptable] of Object.entries(rules)) {
    if (!isAcceptable(body[name])) throw invalid(name, 'asks for something that Holdfast lacks')
  }
  return body
}

/** A field that must be a text if it is there. */
export function textField(body: Body, name: string): string | undefined {
  const value = body[name]
  if (absent(value)) return undefined
  if (typeof value === 'string' && value !== '') return value
  throw invalid(name, 'must be a text that is not empty')
}

export function flagField(body: Body, name: string, fallback: boolean): boolean {
  const value = body[name]
  if (absent(value)) return fallback
  if (typeof value === 'boolean') return value
  throw invalid(name, 'must be true or false')
}

export function isRecord(value: unknown): value is Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
