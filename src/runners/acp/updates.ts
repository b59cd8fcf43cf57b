/**
 * The updates of an agent: in a prompt they become outputs of its turn, in a replay nothing. Its
 * permission requests become asks.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { RequestPermissionOutcome, RequestPermissionRequest } from '@agentclientprotocol/sdk'
import type { AskOutcome, Question, RunnerContext, RunnerOutput } from '../../core/index.ts'
import { asObject, asText, type JsonObject } from '../json.ts'
import { activity, type Outbox } from '../outbox.ts'
import type { AcpSettings } from './options.ts'

/** The thoughts that one activity keeps, in characters. */
export const THOUGHT_CHARS_MAX = 16_384
/** How many unfinished tool calls of a turn are tracked. */
const TOOL_CALLS_MAX = 256
/** How much of a replay is compared with the log, in characters. */
const REPLAY_CHARS_MAX = 4_096
/** The silence after which a replay is complete; and after its expected end was seen. */
const REPLAY_QUIET_MS = 1_000
const REPLAY_REST_MS = 20

/** An update of the agent. Agents deviate from the schema, so nothing else is assumed. */
export type AcpUpdate = JsonObject & { readonly sessionUpdate: string }
export type PromptResponse = { readonly stopReason: string; readonly usage?: unknown }

/**
 * Converts the updates of one prompt to a turn's outputs. Text becomes deltas; when the agent calls
 * a tool or starts another message, the text so far becomes a message. Thoughts are collected, tool
 * calls are recorded when they start and end, and usage at the end of the turn.
 */
export class UpdateConverter {
  /** The text since the last message. */
  #text = ''
  #messageId: unknown = null
  #thought = ''
  #usage: JsonObject | null = null
  /** Unfinished tool calls, each with the fields of all its updates. */
  readonly #tools = new Map<string, JsonObject>()

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
  *end({ stopReason, usage: reported }: PromptResponse): Generator<RunnerOutput> {
    yield* this.#flushThought()
    const usage = { ...present(asObject(reported)), ...this.#usage }
    if (Object.keys(usage).length > 0) yield activity('usage', usage)
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
    const before = this.#tools.get(id)
    const call: JsonObject = { ...before, ...present(update) }
    const { title, name, kind, status, rawInput: input, locations } = call
    if (before === undefined) {
      yield* this.#flushThought()
      yield* this.#flushMessage()
      yield activity('tool_use', present({ id, title, name, kind, input, locations }))
    }
    if (status === 'completed' || status === 'failed') {
      this.#tools.delete(id)
      const { content, rawOutput: output } = call
      return yield activity('tool_result', present({ id, title, status, input, content, output }))
    }
    if (before !== undefined || this.#tools.size < TOOL_CALLS_MAX) this.#tools.set(id, call)
  }
}

/** Without empty fields: an update contains only what has changed. */
function present(value: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(value).filter(([, field]) => field !== undefined && field !== null),
  )
}

function textOf({ content }: AcpUpdate): string {
  return asText(asObject(content)['text'])
}

type PromptRunParts = {
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly settings: AcpSettings
  /** The agent's session id, if another child can continue the session by it. */
  readonly restorableId: string | null
}

/** One prompt of one turn: outputs go to the turn, permission requests become asks. */
export class PromptRun {
  readonly #parts: PromptRunParts
  readonly #converter = new UpdateConverter()
  #binding: Promise<void> | null = null

  constructor(parts: PromptRunParts) {
    this.#parts = parts
  }

  update(update: AcpUpdate): void {
    if (UpdateConverter.isWork(update)) this.#bind()
    for (const output of this.#converter.take(update)) this.#parts.outbox.push(output)
  }

  permission(request: PermissionRequest): Promise<RequestPermissionOutcome> {
    this.#bind()
    const { context, settings } = this.#parts
    return askPermission(context, request, settings)
  }

  /** Resolves when the turn can accept more output. */
  room(): Promise<void> {
    return this.#parts.outbox.room()
  }

  async end(response: PromptResponse): Promise<void> {
    const { context, outbox } = this.#parts
    this.#bind()
    for (const output of this.#converter.end(response)) outbox.push(output)
    await this.#binding
    if (response.stopReason === 'cancelled' && !context.signal.aborted) {
      throw new Error('the agent cancelled the turn by itself')
    }
  }

  /** Binds the agent's session once the agent works in it. */
  #bind(): void {
    const { context, restorableId: id } = this.#parts
    if (this.#binding !== null || id === null) return
    this.#binding = context.session.backend === null ? context.bind(id) : Promise.resolve()
    // `end` awaits it; this prevents an unhandled rejection until then.
    this.#binding.catch(() => undefined)
  }
}

/** A permission request as the Agent Client Protocol defines it, without its session. */
type PermissionRequest = Omit<RequestPermissionRequest, 'sessionId'>

type PermissionSettings = Partial<Pick<AcpSettings, 'askMs' | 'onNobody'>>

/** A tool call as it is shown with a permission request, as JSON text. */
export const ASK_DATA_CHARS_MAX = 16_384
/** A permission request's question, and the label of an option, in characters. */
export const ASK_TEXT_CHARS_MAX = 2_000
/** How many options of it are passed on. */
const ASK_OPTIONS_MAX = 16

async function askPermission(
  context: RunnerContext,
  request: PermissionRequest,
  settings: PermissionSettings,
): Promise<RequestPermissionOutcome> {
  try {
    return permissionAnswer(await context.ask(permissionQuestion(request, settings)))
  } catch {
    // The turn has ended, or too many asks are open: the request was not allowed.
    return { outcome: 'cancelled' }
  }
}

export function permissionQuestion(
  { toolCall, options: offered }: PermissionRequest,
  { askMs, onNobody }: PermissionSettings,
): Question {
  const options = offered.slice(0, ASK_OPTIONS_MAX)
  return {
    kind: 'permission',
    question: shortened(toolCall.title ?? 'May the agent continue?'),
    options: options.map(({ optionId: id, name }) => ({ id, label: shortened(name) })),
    data: {
      tool: shownTool(toolCall),
      kinds: Object.fromEntries(options.map(({ optionId, kind }) => [optionId, kind])),
    },
    ...(askMs === undefined ? {} : { timeoutMs: askMs }),
    ...(onNobody === undefined ? {} : { onNobody }),
  }
}

/** The tool call as it is shown with the ask; of a large one, the beginning. */
function shownTool(call: PermissionRequest['toolCall']): object {
  const { toolCallId: id, kind, rawInput: input, content, locations } = call
  const title = call.title?.slice(0, ASK_TEXT_CHARS_MAX)
  const shown = { id, title, kind, input, locations, content }
  const json = JSON.stringify(shown)
  if (json.length <= ASK_DATA_CHARS_MAX) return shown
  const head = (JSON.stringify(input) ?? '').slice(0, ASK_TEXT_CHARS_MAX).toWellFormed()
  return { id, title, kind, truncated: true, chars: json.length, head }
}

/**
 * Only a person's answer selects an option. Without one the request is cancelled: if a reject
 * option is selected, some agents tell their model that "the user" refused, which is not true.
 */
export function permissionAnswer(outcome: AskOutcome): RequestPermissionOutcome {
  return outcome.outcome === 'answered'
    ? { outcome: 'selected', optionId: String(outcome.answer) }
    : { outcome: 'cancelled' }
}

function shortened(text: string): string {
  return text.slice(0, ASK_TEXT_CHARS_MAX)
}

/**
 * The replay of a conversation while an agent loads a session. It should be complete when the agent
 * reports that the session is loaded, but some agents (Gemini CLI 0.61) continue after that, and
 * would mix it into the next answer. So we wait until the last answer in our log was repeated; if
 * that does not happen (the agent may have compacted its context), until the agent is silent.
 */
export class Replay {
  #text = ''
  #updatedAt = performance.now()

  update(update: AcpUpdate): void {
    this.#updatedAt = performance.now()
    if (update.sessionUpdate !== 'agent_message_chunk') return
    this.#text = (this.#text + withoutSpace(textOf(update))).slice(-REPLAY_CHARS_MAX)
  }

  /** Resolves when the replay is complete, and after `limitMs` in any case. */
  async complete(lastAnswer: string, limitMs: number): Promise<void> {
    const end = withoutSpace(lastAnswer).slice(-REPLAY_CHARS_MAX)
    const giveUpAt = performance.now() + limitMs
    for (;;) {
      const isRepeated = end !== '' && this.#text.endsWith(end)
      const overAt = this.#updatedAt + (isRepeated ? REPLAY_REST_MS : REPLAY_QUIET_MS)
      const left = Math.min(overAt, giveUpAt) - performance.now()
      if (left <= 0) return
      await sleep(Math.min(left, REPLAY_REST_MS))
    }
  }
}

/** Agents differ in the white space around messages. */
function withoutSpace(text: string): string {
  return text.replace(/\s+/g, '')
}
