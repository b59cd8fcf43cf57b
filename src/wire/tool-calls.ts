/**
 * The tool calls of a turn as readers show them: activities folded by the call's id. In logs of
 * versions before 0.2 a call is a `tool_use` and its result a `tool_result`, in the words of its
 * agent.
 */
import type { Activity, ToolCall } from '../core/index.ts'

export type { ToolCall }

type Fields = Readonly<Record<string, unknown>>

/**
 * Folds an activity into the tool calls of its turn. Returns the call as it is now; null if the
 * activity is about none.
 */
export function foldToolCall(
  calls: Map<string, ToolCall>,
  { kind, data }: Activity,
): ToolCall | null {
  if (typeof data !== 'object' || data === null) return null
  const update = updateOf(kind, data as Fields)
  if (update === null) return null
  const call = { ...calls.get(update.id), ...update }
  calls.set(call.id, call)
  return call
}

/** What the activity says of a call. */
function updateOf(kind: string, data: Fields): ToolCall | null {
  const { id } = data
  if (typeof id !== 'string') return null
  if (kind === 'tool') return data as ToolCall
  if (kind === 'tool_use') return { ...named(data), id, status: 'running' }
  return kind === 'tool_result' ? { ...named(data), ...resultOf(data), id } : null
}

/** The name is `name` (Claude Code), or the `type` of an item (Codex). */
function named({ name, type, title, command, input, locations, parent }: Fields): object {
  return withValues({
    name: name ?? type,
    title: title ?? command,
    ...{ input, locations },
    ...(typeof parent === 'string' ? { parent } : {}),
  })
}

function resultOf(data: Fields): Pick<ToolCall, 'status' | 'output'> {
  const { isError, status, content, output, aggregated_output: printed } = data
  const hasFailed = isError === true || status === 'failed' || status === 'declined'
  const result = output ?? content ?? printed
  return { status: hasFailed ? 'failed' : 'done', ...withValues({ output: result }) }
}

function withValues(fields: Fields): object {
  const entries = Object.entries(fields).filter(
    ([, value]) => value !== undefined && value !== null,
  )
  return Object.fromEntries(entries)
}
