/**
 * What a turn cost, if its agent reported it: activities of the kind `usage`, in several spellings.
 */
import { isRecord } from '../../schema/contract.ts'

export type Usage = { readonly input: number; readonly output: number; readonly cached: number }

export const NO_USAGE: Usage = { input: 0, output: 0, cached: 0 }

export function readUsage(event: object): Usage {
  const { type, kind, data } = event as { type?: unknown; kind?: unknown; data?: unknown }
  if (type !== 'turn.activity' || kind !== 'usage' || !isRecord(data)) return NO_USAGE
  const facts = isRecord(data['usage']) ? data['usage'] : data
  const number = (...names: readonly string[]): number => {
    const value = names.map((name) => facts[name]).find((found) => typeof found === 'number')
    return typeof value === 'number' && value >= 0 ? Math.trunc(value) : 0
  }
  return {
    input: number('input_tokens', 'inputTokens', 'prompt_tokens', 'input'),
    output: number('output_tokens', 'outputTokens', 'completion_tokens', 'output'),
    cached: number('cached_input_tokens', 'cache_read_input_tokens', 'cachedReadTokens'),
  }
}

export function addUsage(one: Usage, other: Usage): Usage {
  return {
    input: one.input + other.input,
    output: one.output + other.output,
    cached: one.cached + other.cached,
  }
}

export function chatUsage({ input, output, cached }: Usage) {
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    prompt_tokens_details: { cached_tokens: cached },
  }
}

export function responseUsage({ input, output, cached }: Usage) {
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cached },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output,
  }
}
