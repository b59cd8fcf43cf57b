/** The updates of an agent during a prompt become outputs of its turn. */
import type { RunnerOutput } from '../../core/index.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { activity } from '../outbox.ts'
import { present, ToolCalls } from '../tools.ts'
import { toolCallOf } from './tools.ts'

/** The thoughts that one activity keeps, in characters. */
export const THOUGHT_CHARS_MAX = 16_384
/** How many slash commands are kept, and of each description, in characters. */
const COMMANDS_MAX = 200
const DESCRIPTION_CHARS_MAX = 500

/** An update of the agent. Agents deviate from the schema, so nothing else is assumed. */
export type AcpUpdate = JsonObject & { readonly sessionUpdate: string }
export type PromptResponse = { readonly stopReason: string; readonly usage?: unknown }

/**
 * Converts the updates of one prompt to a turn's outputs. Text becomes deltas; when the agent calls
 * a tool or starts another message, the text so far becomes a message. Thoughts are collected, tool
 * calls are recorded as they change, and usage at the end of the turn.
 */
export class UpdateConverter {
  readonly tools = new ToolCalls()
  /** The text since the last message. */
  #text = ''
  #messageId: unknown = null
  #thought = ''
  #context: JsonObject = {}

  /** Whether the update shows that the agent works on the prompt. */
  static isWork({ sessionUpdate }: AcpUpdate): boolean {
    return /^(agent_(message|thought)_chunk|tool_call(_update)?|plan)$/.test(sessionUpdate)
  }

  *take(update: AcpUpdate): Generator<RunnerOutput> {
    switch (update.sessionUpdate) {
      case 'agent_message_chunk':
        return yield* this.#addText(update)
      case 'agent_thought_chunk':
        this.#thought = (this.#thought + textOf(update)).slice(0, THOUGHT_CHARS_MAX)
        return
      case 'tool_call':
      case 'tool_call_update':
        return yield* this.#updateTool(update)
      case 'plan':
        yield* this.#flushThought()
        return yield activity('plan', { entries: update['entries'] })
      case 'usage_update': {
        const { used, size } = update
        this.#context = present({ contextUsed: used, contextSize: size })
        return
      }
      case 'notice': {
        const { severity, title, description } = update
        return yield activity('notice', present({ severity, title, description }))
      }
      default:
        // Modes, commands and titles are the session's; the user's own text is in the log.
        return
    }
  }

  /**
   * The remaining outputs at the end of the prompt, with what it cost. The core makes the last
   * message itself.
   */
  *end({ stopReason, usage }: PromptResponse, costUsd?: number): Generator<RunnerOutput> {
    yield* this.#flushThought()
    const used = { ...tokensOf(asObject(usage)), ...present({ costUsd }), ...this.#context }
    if (Object.keys(used).length > 0) yield activity('usage', used)
    if (stopReason !== 'end_turn') yield activity('stop', { reason: stopReason })
  }

  *#addText({ content, messageId = null }: AcpUpdate): Generator<RunnerOutput> {
    yield* this.#flushThought()
    if (messageId !== this.#messageId) yield* this.#flushMessage()
    this.#messageId = messageId
    const { type, text } = asObject(content)
    if (type !== 'text') return yield activity('content', content)
    if (typeof text !== 'string' || text === '') return
    this.#text += text
    yield { type: 'delta', text }
  }

  *#flushMessage(): Generator<RunnerOutput> {
    if (this.#text !== '') yield { type: 'message', text: this.#text }
    this.#text = ''
  }

  *#flushThought(): Generator<RunnerOutput> {
    if (this.#thought !== '') yield activity('thought', { text: this.#thought })
    this.#thought = ''
  }

  *#updateTool(update: AcpUpdate): Generator<RunnerOutput> {
    const id = update['toolCallId']
    if (typeof id !== 'string') return
    if (update.sessionUpdate === 'tool_call') {
      yield* this.#flushThought()
      yield* this.#flushMessage()
    }
    yield* this.tools.update(toolCallOf(id, update))
  }
}

export function textOf({ content }: AcpUpdate): string {
  return asText(asObject(content)['text'])
}

/** Some agents count cached tokens among those of the input; the sum of all tells which do. */
function tokensOf(usage: JsonObject): JsonObject {
  const count = (name: string): number => Number(usage[name] ?? 0)
  const { inputTokens, outputTokens, cachedReadTokens } = usage
  if (inputTokens === undefined) return {}
  const cached = count('cachedReadTokens') + count('cachedWriteTokens')
  const isSeparate = count('totalTokens') >= count('inputTokens') + count('outputTokens') + cached
  return present({
    inputTokens: count('inputTokens') + (isSeparate ? cached : 0),
    outputTokens,
    cachedTokens: cachedReadTokens,
  })
}

/** The slash commands as they are kept with the session. */
export function commandsOf({ availableCommands }: JsonObject): readonly object[] {
  const commands = asList(availableCommands).slice(0, COMMANDS_MAX).map(asObject)
  return commands.map(({ name, description, input }) =>
    present({
      name,
      description: asText(description).slice(0, DESCRIPTION_CHARS_MAX).toWellFormed(),
      hint: asObject(input)['hint'],
    }),
  )
}
