/**
 * The updates of one prompt as a turn's outputs. Pure. Text is told as it comes; where the agent
 * turns to a tool or begins another message, what it said so far is a message of its own. Thoughts
 * are gathered, tool calls told when they begin and end, what the turn used at its end.
 */
import type { RunnerOutput } from '../../core/index.ts'
import { THOUGHT_CHARS_MAX, TOOL_CALLS_MAX } from './options.ts'

/** What is read of an update: agents stray from the schema, so nothing else is relied on. */
export type Update = { readonly sessionUpdate: string; readonly [field: string]: unknown }

type Fields = Readonly<Record<string, unknown>>

export class Narration {
  /** What was said since the last message. */
  #text = ''
  #messageId: unknown = null
  #thought = ''
  #usage: Fields | null = null
  /** Tool calls under way, each as its updates have made it. */
  readonly #tools = new Map<string, Fields>()

  /** Whether this shows that the agent is at work on the prompt; much else is only housekeeping. */
  static isWork({ sessionUpdate }: Update): boolean {
    return /^(agent_(message|thought)_chunk|tool_call(_update)?|plan)$/.test(sessionUpdate)
  }

  *take(update: Update): Generator<RunnerOutput> {
    switch (update.sessionUpdate) {
      case 'agent_message_chunk':
        return yield* this.#say(update)
      case 'agent_thought_chunk':
        this.#think(fields(update['content'])['text'])
        return
      case 'tool_call':
      case 'tool_call_update':
        return yield* this.#useTool(update)
      case 'plan':
        yield* this.#endThought()
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
        // Modes, commands, titles, what the user said: nothing that happened in the turn.
        return
    }
  }

  /** The prompt's end: what is still to be told. The last message is the turn's own to make. */
  *end(response: { readonly stopReason: string; readonly usage?: unknown }) {
    yield* this.#endThought()
    const usage = { ...present(fields(response.usage)), ...this.#usage }
    if (Object.keys(usage).length > 0) yield activity('usage', usage)
    const { stopReason } = response
    if (stopReason !== 'end_turn') yield activity('stop', { reason: stopReason })
  }

  *#say({ content, messageId = null }: Update): Generator<RunnerOutput> {
    yield* this.#endThought()
    if (messageId !== this.#messageId) yield* this.#endMessage()
    this.#messageId = messageId
    const { type, text } = fields(content)
    if (type !== 'text') return yield activity('content', content)
    if (typeof text !== 'string' || text === '') return
    this.#text += text
    yield { type: 'delta', text }
  }

  *#endMessage(): Generator<RunnerOutput> {
    const text = this.#text
    this.#text = ''
    if (text !== '') yield { type: 'message', text }
  }

  #think(text: unknown): void {
    if (typeof text !== 'string') return
    this.#thought = (this.#thought + text).slice(0, THOUGHT_CHARS_MAX)
  }

  *#endThought(): Generator<RunnerOutput> {
    const text = this.#thought
    this.#thought = ''
    if (text !== '') yield activity('thought', { text })
  }

  *#useTool(update: Update): Generator<RunnerOutput> {
    const id = update['toolCallId']
    if (typeof id !== 'string') return
    const before = this.#tools.get(id)
    const call: Fields = { ...before, ...present(update) }
    if (before === undefined) {
      yield* this.#endThought()
      yield* this.#endMessage()
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
}: Fields): Fields {
  return present({ id, title, name, kind, input, locations })
}

function toolResult(call: Fields): Fields {
  const { toolCallId: id, title, status, rawInput: input, content, rawOutput: output } = call
  return present({ id, title, status, input, content, output })
}

function activity(kind: string, data: unknown): RunnerOutput {
  return { type: 'activity', kind, data }
}

function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {}
}

/** Without what is not there: an update names only what has changed. */
function present(value: Fields): Fields {
  return Object.fromEntries(
    Object.entries(value).filter(([, field]) => field !== undefined && field !== null),
  )
}
