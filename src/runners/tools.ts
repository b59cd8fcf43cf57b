/**
 * The tool calls of a turn as activities in one shape for all agents. The first activity of a call
 * has what is known of it, later ones only what has changed.
 */
import type { FileDiff, RunnerOutput, ToolCall } from '../core/index.ts'
import type { JsonObject } from './json.ts'
import { activity } from './outbox.ts'

/** The output of a tool call that is recorded, and each text of a diff, in characters. */
export const TOOL_CHARS_MAX = 16_384
/** How many unfinished tool calls of a turn are tracked. */
const TOOL_CALLS_MAX = 256

export class ToolCalls {
  /** The unfinished ones, each with all that is known of it. */
  readonly #calls = new Map<string, ToolCall>()

  /** What is known of an unfinished call. */
  get(id: string): ToolCall | undefined {
    return this.#calls.get(id)
  }

  /** Records a call, or what has changed of it. */
  *update(update: ToolCall): Generator<RunnerOutput> {
    const { id } = update
    const before = this.#calls.get(id)
    const changed = Object.entries(bounded(update)).filter(
      ([name, value]) => name !== 'id' && !isSame(before?.[name as keyof ToolCall], value),
    )
    const call: ToolCall = { ...before, ...(Object.fromEntries(changed) as object), id }
    if (call.status === 'done' || call.status === 'failed') this.#calls.delete(id)
    else if (before !== undefined || this.#calls.size < TOOL_CALLS_MAX) this.#calls.set(id, call)
    if (before === undefined || changed.length > 0) {
      yield activity('tool', { id, ...(Object.fromEntries(changed) as object) })
    }
  }
}

/** A call that is recorded by itself, as by a program that tells all of it at once. */
export function toolActivity({ id, ...call }: ToolCall): RunnerOutput {
  return activity('tool', { id, ...bounded({ id, ...call }) })
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** Without empty fields, and with the beginnings of long texts. */
function bounded({ output, diff, ...call }: ToolCall): JsonObject {
  return present({
    ...call,
    output: shortOutput(output),
    diff: diff === undefined || diff.length === 0 ? undefined : diff.map(shortDiff),
  })
}

/** Without fields that have no value. */
export function present(value: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(value).filter(([, field]) => field !== undefined && field !== null),
  )
}

function shortOutput(output: unknown): unknown {
  if (output === undefined || output === null) return undefined
  const text = typeof output === 'string' ? output : JSON.stringify(output)
  return text.length <= TOOL_CHARS_MAX ? output : head(text)
}

function shortDiff(diff: FileDiff): FileDiff {
  const { path } = diff
  if ('unified' in diff) return { path, unified: head(diff.unified) }
  const { before, after } = diff
  return { path, before: before === null ? null : head(before), after: head(after) }
}

function head(text: string): string {
  if (text.length <= TOOL_CHARS_MAX) return text
  const left = text.length - TOOL_CHARS_MAX
  return `${text.slice(0, TOOL_CHARS_MAX).toWellFormed()}… (${left} more characters)`
}
