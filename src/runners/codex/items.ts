/** The items of a thread of Codex as tool calls. */
import type { FileDiff, ToolCall } from '../../core/index.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'

const STATUS: Readonly<Record<string, ToolCall['status']>> = {
  inProgress: 'running',
  completed: 'done',
  failed: 'failed',
  declined: 'failed',
}

/** What differs by the type of an item, of those that are tool calls. */
const TOOLS: Readonly<Record<string, (item: JsonObject) => Omit<ToolCall, 'id'>>> = {
  commandExecution: ({ command, cwd, aggregatedOutput, exitCode }) => ({
    name: 'command',
    kind: 'execute',
    title: asText(command),
    input: { command, cwd },
    output: asText(aggregatedOutput) || exitOf(exitCode),
  }),
  fileChange: ({ changes }) => {
    const diff = diffsOf(changes)
    const paths = asList(changes).map((change) => asText(asObject(change)['path']))
    return {
      name: 'file_change',
      kind: 'edit',
      title: `Edit ${paths.join(', ')}`,
      diff,
      locations: paths.map((path) => ({ path })),
    }
  },
  mcpToolCall: ({ server, tool, arguments: input, result, error }) => ({
    name: `${asText(server)}.${asText(tool)}`,
    kind: 'other',
    input,
    output: asObject(result)['content'] ?? asObject(error)['message'],
  }),
  dynamicToolCall: ({ tool, arguments: input, contentItems }) => ({
    ...{ name: asText(tool), kind: 'other', input, output: contentItems },
  }),
  webSearch: ({ query, results }) => ({
    ...{ name: 'web_search', kind: 'fetch', title: asText(query), input: { query } },
    output: results,
  }),
  imageView: ({ path }) => ({
    ...{ name: 'view_image', kind: 'read', title: asText(path) },
    locations: [{ path: asText(path) }],
  }),
  collabAgentToolCall: ({ tool, prompt, model }) => ({
    ...{ name: asText(tool), kind: 'think', title: asText(prompt), input: { prompt, model } },
  }),
}

/** Items that are no tool calls; others may be new kinds of them. */
const NO_TOOLS: ReadonlySet<string> = new Set([
  ...['userMessage', 'agentMessage', 'reasoning', 'plan', 'todoList', 'error', 'hookPrompt'],
  ...['contextCompaction', 'enteredReviewMode', 'exitedReviewMode', 'subAgentActivity'],
])

function unknownTool(input: JsonObject): Omit<ToolCall, 'id'> {
  return { name: asText(input['type']), kind: 'other', input }
}

/** The item as a tool call; null if it is none. */
export function toolCallOf(item: JsonObject, isCompleted: boolean): ToolCall | null {
  const { id, type, status } = item
  if (typeof id !== 'string' || NO_TOOLS.has(asText(type))) return null
  const describe = TOOLS[asText(type)] ?? unknownTool
  const known = STATUS[asText(status)] ?? (isCompleted ? 'done' : 'running')
  return { id, ...describe(item), status: known }
}

function exitOf(exitCode: unknown): string | undefined {
  return typeof exitCode === 'number' && exitCode !== 0 ? `exited with code ${exitCode}` : undefined
}

/** The item as `codex exec` prints it: its words are separated by underscores. */
export function itemOfExec(item: JsonObject): JsonObject {
  const camel = (text: string): string =>
    text.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())
  const entries = Object.entries(item).map(([name, value]) => [camel(name), value])
  const fields = Object.fromEntries(entries) as JsonObject
  return { ...fields, type: camel(asText(item['type'])), status: camel(asText(item['status'])) }
}

/** The list of tasks that `codex exec` prints. */
export function planOfExec(items: unknown): object {
  const entries = asList(items).map((item) => {
    const { text, completed } = asObject(item)
    return { content: asText(text), status: completed === true ? 'completed' : 'pending' }
  })
  return { entries }
}

/** Of a new or deleted file Codex gives the text, of others a unified diff. */
export function diffsOf(changes: unknown): readonly FileDiff[] {
  const shown = asList(changes).map(asObject)
  return shown
    .filter(({ diff }) => typeof diff === 'string')
    .map(({ path, kind, diff }) => {
      const { type, move_path: target } = asObject(kind)
      const [file, text] = [asText(path), asText(diff)]
      if (type === 'add') return { path: file, before: null, after: text }
      if (type === 'delete') return { path: file, before: text, after: '' }
      const moved = typeof target === 'string' ? `rename to ${target}\n` : ''
      return { path: file, unified: moved + text }
    })
}
