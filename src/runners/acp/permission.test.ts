import { describe, expect, it } from 'vitest'
import type { AskOutcome } from '../../core/index.ts'
import { loadSdk } from './connection.ts'
import {
  ASK_DATA_CHARS_MAX,
  ASK_TEXT_CHARS_MAX,
  permissionAnswer,
  permissionQuestion,
} from './updates.ts'

describe('a permission request', () => {
  it.each<[AskOutcome, object]>([
    [
      { outcome: 'answered', answer: 'yes', by: null },
      { outcome: 'selected', optionId: 'yes' },
    ],
    [{ outcome: 'timed_out' }, { outcome: 'cancelled' }],
    [{ outcome: 'nobody_to_ask' }, { outcome: 'cancelled' }],
    [{ outcome: 'withdrawn' }, { outcome: 'cancelled' }],
  ])('of which became %j is answered with %j', (outcome, answer) => {
    expect(permissionAnswer(outcome)).toEqual(answer)
  })

  it('is asked in bounds, however large the tool call is', () => {
    const question = permissionQuestion(
      {
        toolCall: { toolCallId: 'c', title: 'x'.repeat(99_999), rawInput: 'y'.repeat(99_999) },
        options: [{ optionId: 'yes', name: 'z'.repeat(99_999), kind: 'allow_once' }],
      },
      {},
    )
    expect(question.question).toHaveLength(ASK_TEXT_CHARS_MAX)
    expect(JSON.stringify(question).length).toBeLessThan(2 * ASK_DATA_CHARS_MAX)
    expect(question.data).toMatchObject({ tool: { id: 'c', truncated: true } })
  })
})

describe('the library of the protocol', () => {
  it('that is not installed is named, with how to install it', async () => {
    const missing = Object.assign(new Error("Cannot find package '@agentclientprotocol/sdk'"), {
      code: 'ERR_MODULE_NOT_FOUND',
    })
    await expect(loadSdk(() => Promise.reject(missing))).rejects.toThrow(
      /npm install @agentclientprotocol\/sdk zod/,
    )
  })

  it('that is broken is told as it is', async () => {
    const broken = new SyntaxError('unexpected token')
    await expect(loadSdk(() => Promise.reject(broken))).rejects.toBe(broken)
  })
})
