import { describe, expect, it } from 'vitest'
import { TOOL_CHARS_MAX } from '../tools.ts'
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

  it('tell a tool call as it grows: first what is known, then what has changed', () => {
    const call = { sessionUpdate: 'tool_call_update', toolCallId: 'c' }
    const content = [{ type: 'diff', path: '/a', oldText: null, newText: 'x' }]
    const tools = told([
      { ...call, sessionUpdate: 'tool_call', title: 'write', status: 'pending', rawInput: {} },
      { ...call, title: 'write', kind: 'edit', rawInput: { path: '/a' }, content },
      { ...call, status: 'in_progress', content: [{ type: 'terminal' }] },
      { ...call, status: 'in_progress' },
      { ...call, status: 'failed', rawOutput: 'no' },
    ])
    expect(tools).toEqual(
      [
        { id: 'c', status: 'pending', title: 'write' },
        {
          ...{ id: 'c', kind: 'edit', input: { path: '/a' } },
          diff: [{ path: '/a', before: null, after: 'x' }],
        },
        { id: 'c', status: 'running' },
        { id: 'c', status: 'failed', output: 'no' },
      ].map((data) => ({ type: 'activity', kind: 'tool', data })),
    )
  })

  it('bound the output of a tool', () => {
    const rawOutput = 'y'.repeat(99_999)
    const [done] = told([
      { sessionUpdate: 'tool_call', toolCallId: 'c', status: 'completed', rawOutput },
    ])
    const { output } = (done as { data: { output: string } }).data
    expect(output.length).toBeLessThan(TOOL_CHARS_MAX + 50)
  })

  it.each([
    [
      { inputTokens: 7, outputTokens: 2, totalTokens: 9 },
      { inputTokens: 7, outputTokens: 2 },
    ],
    [
      { inputTokens: 7, outputTokens: 2, cachedReadTokens: 4, totalTokens: 13 },
      { inputTokens: 11, outputTokens: 2, cachedTokens: 4 },
    ],
    [
      { inputTokens: 7, outputTokens: 2, cachedReadTokens: 4, totalTokens: 9 },
      { inputTokens: 7, outputTokens: 2, cachedTokens: 4 },
    ],
  ])('end with the usage: %j is %j', (usage, data) => {
    const outputs = [...new UpdateConverter().end({ stopReason: 'end_turn', usage })]
    expect(outputs).toEqual([{ type: 'activity', kind: 'usage', data }])
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
