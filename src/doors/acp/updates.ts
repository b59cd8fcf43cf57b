/**
 * What a log says, as ACP's updates. The same events make the same updates, whenever they are read:
 * that is how a client that comes back continues at the very update.
 */
import {
  partsOf,
  type BlobPart,
  type Delta,
  type EarlierMessage,
  type Input,
  type SessionEvent,
  type ToolCall,
} from '../../core/index.ts'
import type { EventOf } from '../../core/events.ts'
import { isRecord } from '../../schema/contract.ts'
import { foldToolCall } from '../../wire/tool-calls.ts'
import { messageParts, textBlock } from './content.ts'
import { diffContent } from './questions.ts'

/** `image`: its content is this image, whose bytes have to be read. */
export type Update = {
  readonly sessionUpdate: string
  readonly content?: unknown
  readonly image?: BlobPart
  readonly [field: string]: unknown
}

type Fields = Readonly<Record<string, unknown>>

export class UpdateTranslator {
  readonly #isOwn: (turn: string) => boolean
  /** The message that is being written, as far as it is known. */
  #text = ''
  /** How much of it was told. */
  chars = 0
  /** Messages of the running turn. */
  #messages = 0
  /** Tool calls of the running turn. */
  readonly #calls = new Map<string, ToolCall>()
  readonly #ownSteering = new Set<number>()

  /** `isOwn`: whether this client has sent the prompt of a turn, and shows it already. */
  constructor(isOwn: (turn: string) => boolean) {
    this.#isOwn = isOwn
  }

  /** A message of one's own that goes to a running turn. */
  steering(seq: number): void {
    this.#ownSteering.add(seq)
  }

  take(event: SessionEvent | Delta): readonly Update[] {
    switch (event.type) {
      case 'session.created':
        return (event.origin?.messages ?? []).map(earlierMessage)
      case 'turn.started':
        this.#begin()
        return this.#isOwn(event.turn) ? [] : userMessage(event.input, event.turn)
      case 'turn.steered':
        if (this.#ownSteering.delete(event.steering)) return []
        return userMessage(event.input, `${event.turn}-${event.steering}`)
      case 'delta':
        this.#text += event.text
        return this.#untold(event.turn)
      case 'message.added':
        return this.#endMessage(event)
      case 'turn.activity':
        return this.#activity(event)
      case 'turn.failed':
      case 'turn.cancelled':
      case 'turn.interrupted':
        return this.#stopCalls()
      default:
        return []
    }
  }

  #begin(): void {
    this.#text = ''
    this.chars = 0
    this.#messages = 0
    this.#calls.clear()
  }

  #untold(turn: string): readonly Update[] {
    const rest = this.#text.slice(this.chars)
    if (rest === '') return []
    this.chars = this.#text.length
    return [this.#agentChunk(turn, textBlock(rest))]
  }

  #agentChunk(turn: string, content: unknown): Update {
    const messageId = `${turn}-${this.#messages}`
    return { sessionUpdate: 'agent_message_chunk', content, messageId }
  }

  /** A message has the deltas before it; one that differs from them is not told again. */
  #endMessage({ turn, text }: EventOf<'message.added'>): readonly Update[] {
    const isContinued = text.startsWith(this.#text)
    if (isContinued) this.#text = text
    const updates = this.#untold(turn)
    this.#text = ''
    this.chars = 0
    this.#messages += 1
    return updates
  }

  #activity(event: EventOf<'turn.activity'>): readonly Update[] {
    const { kind, data } = event
    if (!isRecord(data)) return []
    const isNew = !this.#calls.has(String(data['id']))
    const call = foldToolCall(this.#calls, event)
    if (call !== null) return [toolUpdate(call, data, isNew)]
    switch (kind) {
      case 'thought':
        return typeof data['text'] === 'string' ? [thought(data['text'])] : []
      case 'plan':
        return [{ sessionUpdate: 'plan', entries: planEntries(data['entries']) }]
      case 'commands':
        return [commandsUpdate(data['commands'])]
      case 'content':
        return isContent(data) ? [this.#agentChunk(event.turn, data)] : []
      case 'usage':
        return usage(data)
      default:
        return []
    }
  }

  /** What did not come to its end when its turn was cut short will not. */
  #stopCalls(): readonly Update[] {
    const open = [...this.#calls.values()].filter(
      ({ status }) => status !== 'done' && status !== 'failed',
    )
    this.#calls.clear()
    return open.map(({ id: toolCallId }) => ({
      ...{ sessionUpdate: 'tool_call_update', toolCallId, status: 'failed' },
    }))
  }
}

function usage({ contextUsed: used, contextSize: size }: Fields): readonly Update[] {
  if (typeof used !== 'number' || typeof size !== 'number') return []
  return [{ sessionUpdate: 'usage_update', used, size }]
}

function earlierMessage({ role, text }: EarlierMessage, index: number): Update {
  const sessionUpdate = role === 'user' ? 'user_message_chunk' : 'agent_message_chunk'
  return { sessionUpdate, content: textBlock(text), messageId: `earlier-${index}` }
}

function userMessage(input: Input, messageId: string): readonly Update[] {
  const empty = partsOf(input) === null && (typeof input === 'string' ? input : input.text) === ''
  if (empty) return []
  return messageParts(input).map((part) => ({
    ...('block' in part ? { content: part.block } : { image: part.image }),
    ...{ sessionUpdate: 'user_message_chunk', messageId },
  }))
}

function thought(text: string): Update {
  return { sessionUpdate: 'agent_thought_chunk', content: textBlock(text) }
}

const STATUS = { pending: 'pending', running: 'in_progress', done: 'completed', failed: 'failed' }

/** All of a new call; of one that is known, what has changed. */
function toolUpdate(call: ToolCall, changed: Fields, isNew: boolean): Update {
  const has = (name: keyof ToolCall): boolean => isNew || changed[name] !== undefined
  const { id: toolCallId, title, name, kind, status, input, output, diff, locations } = call
  const content = [...(diff ?? []).map(diffContent), ...outputContent(output)]
  const hasContent = content.length > 0 && (has('diff') || has('output'))
  return {
    sessionUpdate: isNew ? 'tool_call' : 'tool_call_update',
    toolCallId,
    ...(has('title') || has('name') ? { title: title ?? name ?? 'tool' } : {}),
    ...(has('kind') && kind !== undefined ? { kind } : {}),
    ...(isNew || status !== undefined ? { status: STATUS[status ?? 'pending'] } : {}),
    ...(has('input') && input !== undefined ? { rawInput: input } : {}),
    ...(has('output') && output !== undefined ? { rawOutput: output } : {}),
    ...(has('locations') && locations !== undefined ? { locations } : {}),
    ...(hasContent ? { content } : {}),
  }
}

function outputContent(output: unknown): readonly object[] {
  if (typeof output !== 'string' || output === '') return []
  return [{ type: 'content', content: textBlock(output) }]
}

function planEntries(entries: unknown): readonly object[] {
  const list = Array.isArray(entries) ? entries.filter(isRecord) : []
  return list.map(({ content, step, text, status, priority }) => ({
    content: asText(content) || asText(step) || asText(text),
    priority: isOneOf(priority, ['high', 'medium', 'low']) ? priority : 'medium',
    status: isOneOf(status, ['pending', 'in_progress', 'completed']) ? status : 'pending',
  }))
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function isOneOf(value: unknown, values: readonly string[]): boolean {
  return typeof value === 'string' && values.includes(value)
}

export function commandsUpdate(commands: unknown): Update {
  const list = Array.isArray(commands) ? commands.filter(isRecord) : []
  const availableCommands = list.map(({ name, description, hint }) => ({
    ...{ name: asText(name), description: asText(description) },
    ...(typeof hint === 'string' ? { input: { hint } } : {}),
  }))
  return { sessionUpdate: 'available_commands_update', availableCommands }
}

/** Content that an agent has sent besides text, in ACP's own form. */
function isContent({ type }: Fields): boolean {
  return isOneOf(type, ['image', 'audio', 'resource', 'resource_link'])
}
