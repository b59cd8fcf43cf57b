import { describe, expect, it } from 'vitest'
import type { Activity, ToolCall } from '../core/index.ts'
import { foldToolCall } from './tool-calls.ts'

function folded(...activities: readonly [string, unknown][]): ToolCall[] {
  const calls = new Map<string, ToolCall>()
  for (const [kind, data] of activities) foldToolCall(calls, { kind, data } satisfies Activity)
  return [...calls.values()]
}

describe('the tool calls of a turn', () => {
  it('are folded by id: later activities have what changed', () => {
    expect(
      folded(
        ['tool', { id: 'a', name: 'Bash', kind: 'execute', status: 'pending' }],
        ['tool', { id: 'b', name: 'Read', status: 'running' }],
        ['tool', { id: 'a', input: { command: 'ls' }, status: 'running' }],
        ['tool', { id: 'a', status: 'done', output: 'x' }],
      ),
    ).toEqual([
      {
        ...{ id: 'a', name: 'Bash', kind: 'execute', status: 'done', output: 'x' },
        input: { command: 'ls' },
      },
      { id: 'b', name: 'Read', status: 'running' },
    ])
  })

  it.each<[string, unknown, unknown, ToolCall]>([
    [
      'Claude Code',
      { id: 'u', name: 'Read', input: { path: 'a' }, parent: null },
      { id: 'u', isError: true, content: 'no such file' },
      { id: 'u', name: 'Read', input: { path: 'a' }, status: 'failed', output: 'no such file' },
    ],
    [
      'Codex',
      { id: 'i', type: 'command_execution', command: 'ls', status: 'in_progress' },
      { id: 'i', type: 'command_execution', aggregated_output: 'x', status: 'completed' },
      { id: 'i', name: 'command_execution', title: 'ls', status: 'done', output: 'x' },
    ],
    [
      'an ACP agent',
      { id: 'c', title: 'grep', kind: 'search' },
      { id: 'c', title: 'grep', status: 'completed', input: { for: 'x' }, output: { found: 2 } },
      { id: 'c', title: 'grep', input: { for: 'x' }, status: 'done', output: { found: 2 } },
    ],
  ])('in an earlier log of %s are understood', (_, use, result, call) => {
    expect(folded(['tool_use', use], ['tool_result', result])).toEqual([call])
  })

  it.each([
    ['usage', { id: 'a' }],
    ['tool', 'text'],
    ['tool', { truncated: true, chars: 99_999, head: '{' }],
  ])('have nothing to do with an activity %s of %j', (kind, data) => {
    expect(folded([kind, data])).toEqual([])
  })
})
