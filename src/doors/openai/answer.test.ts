import { describe, expect, it } from 'vitest'
import { addUsage, NO_USAGE, readUsage } from './answer.ts'

const usage = (data: unknown) => ({ type: 'turn.activity', turn: 't2', kind: 'usage', data })

describe('readUsage', () => {
  it.each([
    [usage({ input_tokens: 3, output_tokens: 2 }), { input: 3, output: 2, cached: 0 }],
    [usage({ prompt_tokens: 3, completion_tokens: 2 }), { input: 3, output: 2, cached: 0 }],
    [usage({ usage: { inputTokens: 3, outputTokens: 2 } }), { input: 3, output: 2, cached: 0 }],
    [usage({ input_tokens: 3, cached_input_tokens: 1 }), { input: 3, output: 0, cached: 1 }],
    [
      usage({ inputTokens: 3, outputTokens: 2, cachedTokens: 1 }),
      { input: 3, output: 2, cached: 1 },
    ],
    [usage('much'), NO_USAGE],
    [usage({ input_tokens: -1, output_tokens: 'x' }), NO_USAGE],
    [{ ...usage({ input_tokens: 3 }), kind: 'tool_use' }, NO_USAGE],
    [{ type: 'turn.done', turn: 't2' }, NO_USAGE],
  ])('reads %j', (event, read) => {
    expect(readUsage(event)).toEqual(read)
  })

  it('adds up over a turn', () => {
    const one = { input: 1, output: 2, cached: 3 }
    expect(addUsage(one, one)).toEqual({ input: 2, output: 4, cached: 6 })
  })
})
