/** The formats in which programs print their output. */
import type { RunnerOutput } from '../../core/index.ts'
import { readLines } from '../../platform/text.ts'
import { claudeRefusal, MessageConverter } from '../claude/messages.ts'
import { itemOfExec, planOfExec, toolCallOf } from '../codex/items.ts'
import { refusalsIn } from '../codex/refusals.ts'
import { CLAUDE_FILES, CODEX_FILES, type ConversationFiles } from '../conversation-files.ts'
import { asObject, asText, parsedLine, type JsonObject } from '../json.ts'
import { activity } from '../outbox.ts'
import { present, toolActivity } from '../tools.ts'

/** A part of a program's output. */
type ProgramOutput =
  | RunnerOutput
  /** The backend's own session id. */
  | { readonly type: 'session'; readonly id: string }
  /** The whole answer, if the program ends with one. */
  | { readonly type: 'result'; readonly text: string }
  | { readonly type: 'failure'; readonly message: string }

export interface OutputFormat {
  /** Whether the output contains the session id. */
  readonly hasSession: boolean
  read(output: AsyncIterable<string>): AsyncGenerator<ProgramOutput>
  /** Whether the program says that the id of a new session is in use, or of an old one unknown. */
  refusal(message: string, backend: string): 'in_use' | 'unknown' | null
  /** Where the program keeps its conversations; null: not known. */
  readonly files: ConversationFiles | null
  /** The tool calls that the program refused by itself, if only its stderr has them. */
  denials?(stderr: string): readonly object[]
}

/** The longest line: it may contain a picture that a tool has read. */
const LINE_CHARS_MAX = 16_777_216

type LineHandler = (line: JsonObject) => Iterable<ProgramOutput>

/** One JSON object per line, whose `type` chooses the handler; other lines are ignored. */
function jsonLines(
  handlersOfRun: () => Readonly<Record<string, LineHandler>>,
  files: ConversationFiles,
  refusal: OutputFormat['refusal'],
  denials: OutputFormat['denials'] = () => [],
): OutputFormat {
  return {
    hasSession: true,
    async *read(output) {
      const byType = new Map<unknown, LineHandler>(Object.entries(handlersOfRun()))
      for await (const line of readLines(output, LINE_CHARS_MAX)) {
        const object = parsedLine(line)
        yield* byType.get(object['type'])?.(object) ?? []
      }
    },
    files,
    refusal,
    denials,
  }
}

/** Claude Code: `claude -p --output-format stream-json --verbose`. */
const claude: OutputFormat = {
  hasSession: true,
  async *read(output) {
    const converter = new MessageConverter()
    for await (const line of readLines(output, LINE_CHARS_MAX)) {
      for (const item of converter.take(parsedLine(line))) {
        // One process runs one turn: its mode does not outlive it, and it is not forked.
        if (item.type !== 'mode' && item.type !== 'position') yield item
      }
    }
  },
  files: CLAUDE_FILES,
  refusal: claudeRefusal,
}

/** The lines of `codex exec --json`. */
function codexLines(): Readonly<Record<string, LineHandler>> {
  let thread = ''
  return {
    'thread.started'({ thread_id: id }) {
      thread = asText(id)
      return []
    },
    // Only now is the thread stored: a program that ends before cannot be resumed.
    *'turn.started'() {
      if (thread !== '') yield { type: 'session', id: thread }
    },
    *'item.started'({ item }) {
      yield* codexTool(item, false)
    },
    *'item.updated'({ item }) {
      yield* codexTool(item, false)
    },
    *'item.completed'({ item }) {
      const data = asObject(item)
      const { type, text } = data
      if (type === 'agent_message') yield { type: 'message', text: asText(text) }
      else if (type === 'error') yield activity('diagnosis', data)
      else yield* codexTool(item, true)
    },
    *'turn.completed'({ usage }) {
      const { input_tokens, output_tokens, cached_input_tokens } = asObject(usage)
      const inputTokens = { inputTokens: input_tokens, cachedTokens: cached_input_tokens }
      yield activity('usage', present({ ...inputTokens, outputTokens: output_tokens }))
    },
    *'turn.failed'({ error }) {
      yield { type: 'failure', message: asText(asObject(error)['message']) }
    },
  }
}

/** Codex: `codex exec --json`. It chooses its session ids. */
const codex = jsonLines(
  codexLines,
  CODEX_FILES,
  (message, backend) => {
    // `no rollout found for thread id ID`
    const isUnknown = /no (rollout|recorded session|thread) found/i.test(message)
    return isUnknown && message.includes(backend) ? 'unknown' : null
  },
  (stderr) => refusalsIn(stderr).map(({ reason }) => ({ reason })),
)

function* codexTool(item: unknown, isCompleted: boolean): Generator<ProgramOutput> {
  const { type, items } = asObject(item)
  if (type === 'todo_list') return yield activity('plan', planOfExec(items))
  const call = toolCallOf(itemOfExec(asObject(item)), isCompleted)
  if (call !== null) yield toolActivity(call)
}

/** A program that prints its answer as plain text. */
const text: OutputFormat = {
  hasSession: false,
  async *read(output) {
    let whole = ''
    for await (const chunk of output) {
      whole += chunk
      yield { type: 'delta', text: chunk }
    }
    yield { type: 'result', text: whole.trimEnd() }
  },
  files: null,
  refusal: () => null,
}

export const OUTPUT_FORMATS = { claude, codex, text }
