/**
 * Converts the updates of one prompt to a turn's outputs. Text becomes deltas; when the agent calls
 * a tool or starts another message, the text so far becomes a message. Thoughts are collected, tool
 * calls are recorded when they start and end, and usage at the end of the turn.
 */
import type { RunnerOutput } from '../../core/index.ts'
import { THOUGHT_CHARS_MAX, TOOL_CALLS_MAX } from './options.ts'

/** An update of the agent. Agents deviate from the schema, so nothing else is assumed. */
export type AcpUpdate = { readonly sessionUpdate: string; readonly [field: string]: unknown }

type UpdateFields = Readonly<Record<string, unknown>>

export class UpdateConverter {
  /** The text since the last message. */
  #text = ''
  #messageId: unknown = null
  #thought = ''
  #usage: UpdateFields | null = null
  /** Unfinished tool calls, each with the fields of all its updates. */
  readonly #tools = new Map<string, UpdateFields>()

  /** Whether the update shows that the agent works on the prompt. */
  static isWork({ sessionUpdate }: AcpUpdate): boolean {
    return /^(agent_(message|thought)_chunk|tool_call(_update)?|plan)$/.test(sessionUpdate)
  }

  *take(update: AcpUpdate): Generator<RunnerOutput> {
    switch (update.sessionUpdate) {
      case 'agent_message_chunk':
        return yield* this.#addText(update)
      case 'agent_thought_chunk':
        this.#addThought(fields(update['content'])['text'])
        return
      case 'tool_call':
      case 'tool_call_update':
        return yield* this.#updateTool(update)
      case 'plan':
        yield* this.#flushThought()
        return yield activity('plan', { entries: update['entries'] })
      case 'usage_update': {
        const { used, size, cost } = update
        this.#usage = present({ contextUsed: used, contextSize: size, cost })
        return
      }
      case 'notice': {
        const { severity, title, description } = update
        return yield activity('notice', present({ severity, title, description }))
      }
      default:
        // Modes, commands, titles and the user's own text are not part of the turn's output.
        return
    }
  }

  /** The remaining outputs at the end of the prompt. The core makes the last message itself. */
  *end(response: { readonly stopReason: string; readonly usage?: unknown }) {
    yield* this.#flushThought()
    const usage = { ...present(fields(response.usage)), ...this.#usage }
    if (Object.keys(usage).length > 0) yield activity('usage', usage)
    const { stopReason } = response
    if (stopReason !== 'end_turn') yield activity('stop', { reason: stopReason })
  }

  *#addText({ content, messageId = null }: AcpUpdate): Generator<RunnerOutput> {
    yield* this.#flushThought()
    if (messageId !== this.#messageId) yield* this.#flushMessage()
    this.#messageId = messageId
    const { type, text } = fields(content)
    if (type !== 'text') return yield activity('content', content)
    if (typeof text !== 'string' || text === '') return
    this.#text += text
    yield { type: 'delta', text }
  }

  *#flushMessage(): Generator<RunnerOutput> {
    const text = this.#text
    this.#text = ''
    if (text !== '') yield { type: 'message', text }
  }

  #addThought(text: unknown): void {
    if (typeof text !== 'string') return
    this.#thought = (this.#thought + text).slice(0, THOUGHT_CHARS_MAX)
  }

  *#flushThought(): Generator<RunnerOutput> {
    const text = this.#thought
    this.#thought = ''
    if (text !== '') yield activity('thought', { text })
  }

  *#updateTool(update: AcpUpdate): Generator<RunnerOutput> {
    const id = update['toolCallId']
    if (typeof id !== 'string') return
    const before = this.#tools.get(id)
    const call: UpdateFields = { ...before, ...present(update) }
    if (before === undefined) {
      yield* this.#flushThought()
      yield* this.#flushMessage()
      yield activity('tool_use', toolUse(call))
    }
    const { status } = call
    if (status === 'completed' || status === 'failed') {
      this.#tools.delete(id)
      return yield activity('tool_result', toolResult(call))
    }
    if (before !== undefined || this.#tools.size < TOOL_CALLS_MAX) this.#tools.set(id, call)
  }
}

function toolUse({
  toolCallId: id,
  title,
  name,
  kind,
  rawInput: input,
  locations,
}: UpdateFields): UpdateFields {
  return present({ id, title, name, kind, input, locations })
}

function toolResult(call: UpdateFields): UpdateFields {
  const { toolCallId: id, title, status, rawInput: input, content, rawOutput: output } = call
  return present({ id, title, status, input, content, output })
}

function activity(kind: string, data: unknown): RunnerOutput {
  return { type: 'activity', kind, data }
}

function fields(value: unknown): UpdateFields {
  return typeof value === 'object' && value !== null ? (value as UpdateFields) : {}
}

/** Without empty fields: an update contains only what has changed. */
function present(value: UpdateFields): UpdateFields {
  return Object.fromEntries(
    Object.entries(value).filter(([, field]) => field !== undefined && field !== null),
  )
}
