import { describe, expect, it } from 'vitest'
import { THOUGHT_CHARS_MAX, UpdateConverter, type AcpUpdate } from './updates.ts'

const text = (text: string, messageId?: string): AcpUpdate => ({
  sessionUpdate: 'agent_message_chunk',
  content: { type: 'text', text },
  ...(messageId === undefined ? {} : { messageId }),
})
const thought = (text: string): AcpUpdate => ({
  sessionUpdate: 'agent_thought_chunk',
  content: { type: 'text', text },
})

function told(updates: readonly AcpUpdate[], stopReason = 'end_turn') {
  const narration = new UpdateConverter()
  const outputs = updates.flatMap((update) => [...narration.take(update)])
  return [...outputs, ...narration.end({ stopReason })]
}

describe('the updates of a prompt', () => {
  it('are one message each as the agent numbers them', () => {
    expect(told([text('a', '1'), text('b', '1'), text('c', '2')])).toEqual([
      { type: 'delta', text: 'a' },
      { type: 'delta', text: 'b' },
      { type: 'message', text: 'ab' },
      { type: 'delta', text: 'c' },
    ])
  })

  it('gather thoughts up to a bound', () => {
    const [activity, ...rest] = told([thought('x'.repeat(THOUGHT_CHARS_MAX)), thought('y')])
    expect(activity).toEqual({
      type: 'activity',
      kind: 'thought',
      data: { text: 'x'.repeat(THOUGHT_CHARS_MAX) },
    })
    expect(rest).toEqual([])
  })

  it('tell a tool call whose input comes later with its result', () => {
    const call = { sessionUpdate: 'tool_call_update', toolCallId: 'c' }
    expect(
      told([
        { ...call, sessionUpdate: 'tool_call', title: 'bash', status: 'pending', rawInput: null },
        { ...call, status: 'in_progress', rawInput: { command: 'ls' } },
        { ...call, status: 'failed', rawOutput: 'no' },
      ]),
    ).toEqual([
      { type: 'activity', kind: 'tool_use', data: { id: 'c', title: 'bash' } },
      {
        type: 'activity',
        kind: 'tool_result',
        data: { id: 'c', title: 'bash', status: 'failed', input: { command: 'ls' }, output: 'no' },
      },
    ])
  })

  it('keep content that is no text, and a notice', () => {
    const image = { type: 'image', data: 'AA==', mimeType: 'image/png' }
    expect(
      told([
        { sessionUpdate: 'agent_message_chunk', content: image },
        { sessionUpdate: 'notice', severity: 'warning', title: 'slow today', description: null },
      ]),
    ).toEqual([
      { type: 'activity', kind: 'content', data: image },
      { type: 'activity', kind: 'notice', data: { severity: 'warning', title: 'slow today' } },
    ])
  })

  it.each([
    { sessionUpdate: 'user_message_chunk', content: { type: 'text', text: 'me' } },
    { sessionUpdate: 'available_commands_update', availableCommands: [] },
    { sessionUpdate: 'tool_call' },
    { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 7 } },
    { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: '' } },
    { sessionUpdate: 'agent_thought_chunk' },
    { sessionUpdate: 'what will come' },
  ])('are nothing where nothing was said or done: %j', (update) => {
    expect(told([update])).toEqual([])
  })

  it('end with the reason, if it is not the usual one', () => {
    expect(told([], 'refusal')).toEqual([
      { type: 'activity', kind: 'stop', data: { reason: 'refusal' } },
    ])
  })
})
