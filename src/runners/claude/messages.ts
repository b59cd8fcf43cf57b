/**
 * The messages of Claude Code (`--output-format stream-json`) as outputs of a turn. The texts and
 * thoughts of sub-agents are not part of the answer; their tool calls are recorded with the call
 * that they are a part of.
 */
import type { RunnerOutput } from '../../core/index.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { activity } from '../outbox.ts'
import { ToolCalls } from '../tools.ts'
import { startedCall } from './tools.ts'
import { TaskList } from './plan.ts'

/** What a message tells: an output of the turn, or something about the agent itself. */
export type ClaudeOutput =
  | RunnerOutput
  /** Claude Code's own session id. */
  | { readonly type: 'session'; readonly id: string }
  /** Its permission mode. */
  | { readonly type: 'mode'; readonly mode: string }
  /** The message that the turn ends with, by its id in the transcript. */
  | { readonly type: 'position'; readonly message: string }
  /** The whole answer. */
  | { readonly type: 'result'; readonly text: string }
  | { readonly type: 'failure'; readonly message: string }

/** The thoughts of one message that are recorded, in characters. */
const TEXT_CHARS_MAX = 16_384

export class MessageConverter {
  readonly #calls = new ToolCalls()
  readonly #tasks = new TaskList()
  /** What its process has cost before: its own count includes all its turns. */
  #costUsd = 0
  #contextUsed = 0
  /** The id of the last message in its transcript that is the agent's own. */
  #lastMessage = ''
  /** Tool calls whose refusal is recorded already. */
  readonly #refused = new Set<unknown>()

  /** A person decides about this call, which the log shows. */
  asked(toolUse: unknown): void {
    this.#refused.add(toolUse)
  }

  *take(line: JsonObject): Generator<ClaudeOutput> {
    switch (line['type']) {
      case 'system':
        return yield* this.#system(line)
      case 'stream_event':
        return yield* this.#delta(line)
      case 'assistant':
        return yield* this.#assistant(line)
      case 'user':
        return yield* this.#toolResults(line)
      case 'result':
        return yield* this.#result(line)
      default:
        return
    }
  }

  *#system(line: JsonObject): Generator<ClaudeOutput> {
    const { subtype, session_id: id, permissionMode: mode } = line
    if (subtype === 'init') yield { type: 'session', id: asText(id) }
    if (subtype === 'init' || subtype === 'status') {
      if (typeof mode === 'string') yield { type: 'mode', mode }
    }
    if (subtype === 'permission_denied') {
      const { tool_name: tool, tool_use_id: call, message: reason } = line
      this.#refused.add(call)
      yield activity('permission_denied', { id: call, tool, reason })
    }
  }

  *#delta({ event, parent_tool_use_id: parent = null }: JsonObject): Generator<ClaudeOutput> {
    const { type, delta } = asObject(event)
    const part = asObject(delta)
    if (parent !== null || type !== 'content_block_delta') return
    if (part['type'] === 'text_delta') yield { type: 'delta', text: asText(part['text']) }
  }

  *#assistant(line: JsonObject): Generator<ClaudeOutput> {
    const { message, uuid, parent_tool_use_id: parent = null } = line
    const { model, content, usage } = asObject(message)
    if (parent === null) {
      this.#contextUsed = contextOf(tokens(usage))
      this.#lastMessage = asText(uuid)
    }
    // A text that replaces the answer of a failed model is reported again as the failure.
    const isSynthetic = model === '<synthetic>' || 'error' in line
    for (const block of asList(content).map(asObject)) {
      if (block['type'] === 'tool_use') yield* this.#toolUse(block, parent)
      if (parent !== null || isSynthetic) continue
      const text = asText(block['text'])
      const thought = asText(block['thinking'])
      if (text !== '') yield { type: 'message', text }
      if (thought !== '') yield activity('thought', { text: head(thought) })
    }
  }

  *#toolUse(block: JsonObject, parent: unknown): Generator<ClaudeOutput> {
    const { id, name, input: given } = block
    const input = asObject(given)
    const call = startedCall(asText(id), asText(name), input)
    yield* this.#calls.update(typeof parent === 'string' ? { ...call, parent } : call)
    const plan = this.#tasks.called(asText(id), asText(name), input)
    if (plan !== null) yield activity('plan', plan)
  }

  *#toolResults({ message, tool_use_result: details }: JsonObject): Generator<ClaudeOutput> {
    for (const block of asList(asObject(message)['content']).map(asObject)) {
      const { type, tool_use_id: id, content, is_error: isError } = block
      if (type !== 'tool_result') continue
      const status = isError === true ? 'failed' : 'done'
      yield* this.#calls.update({ id: asText(id), status, output: outputText(content) })
      const plan = this.#tasks.answered(asText(id), asObject(details))
      if (plan !== null && isError !== true) yield activity('plan', plan)
    }
  }

  *#result(line: JsonObject): Generator<ClaudeOutput> {
    const { usage, total_cost_usd: total, modelUsage, num_turns: steps } = line
    const hasFailed = line['is_error'] === true
    // A run that did not start has used nothing.
    if (!hasFailed || Number(steps) > 0) {
      const costUsd = Number(total) - this.#costUsd
      const [size] = Object.values(asObject(modelUsage)).map(
        (one) => asObject(one)['contextWindow'],
      )
      const contextUsed = this.#contextUsed
      const context = typeof size === 'number' ? { contextUsed, contextSize: size } : {}
      yield activity('usage', { ...tokens(usage), ...(costUsd > 0 ? { costUsd } : {}), ...context })
      if (Number.isFinite(Number(total))) this.#costUsd = Number(total)
    }
    // A fork begins after this message.
    if (!hasFailed) yield { type: 'position', message: this.#lastMessage }
    for (const denial of asList(line['permission_denials']).map(asObject)) {
      const { tool_name: tool, tool_use_id: id } = denial
      if (!this.#refused.has(id)) yield activity('permission_denied', { id, tool })
    }
    this.#refused.clear()
    const text = asText(line['result'])
    const errors = asList(line['errors']).map(asText).join('; ')
    yield hasFailed
      ? { type: 'failure', message: text || errors || asText(line['subtype']) }
      : { type: 'result', text }
  }
}

function tokens(usage: unknown) {
  const count = (name: string): number => Number(asObject(usage)[name] ?? 0)
  const cachedTokens = count('cache_read_input_tokens')
  const fresh = count('input_tokens') + count('cache_creation_input_tokens')
  const inputTokens = fresh + cachedTokens
  const outputTokens = count('output_tokens')
  return { inputTokens, outputTokens, cachedTokens }
}

function contextOf({ inputTokens, outputTokens }: ReturnType<typeof tokens>): number {
  return inputTokens + outputTokens
}

/** A tool's output: a text, or blocks of which only the texts are recorded. */
function outputText(content: unknown): string {
  if (typeof content === 'string') return content
  const blocks = asList(content).map(asObject)
  return blocks.map(({ type, text }) => asText(text) || `[${asText(type)}]`).join('\n')
}

function head(text: string): string {
  return text.length <= TEXT_CHARS_MAX ? text : `${text.slice(0, TEXT_CHARS_MAX).toWellFormed()}…`
}

/** Whether it says that the id of a new session is in use, or of an old one unknown. */
export function claudeRefusal(message: string, backend: string): 'in_use' | 'unknown' | null {
  if (message.includes(`Session ID ${backend} is already in use`)) return 'in_use'
  return message.includes(`No conversation found with session ID: ${backend}`) ? 'unknown' : null
}
