/**
 * What a request says, as the input of a turn.
 *
 * A request with a session key repeats what was said before: the log has it, so only the newest
 * message counts, and what comes before it is not even looked at. All messages of other requests
 * count.
 */
import { invalid, type HoldfastError, type Input } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'

export type ChatMessage = {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
}

/** The id of an item that this server has issued, in place of a message. */
export type ItemReference = { readonly reference: string; readonly field: string }

const ROLES: Readonly<Record<string, ChatMessage['role']>> = {
  system: 'system',
  developer: 'system',
  user: 'user',
  assistant: 'assistant',
}
const TEXT_PARTS = ['text', 'input_text', 'output_text']
const NAME_CHARS = 64

/** The entries of a request that count: all of them, or the newest and the instructions. */
export function readEntries(
  entries: readonly unknown[],
  which: 'all' | 'newest',
  name: 'messages' | 'input',
): readonly (ChatMessage | ItemReference)[] {
  const newest = entries.findLastIndex((entry) => !isInstruction(entry))
  return entries.flatMap((entry, index) => {
    const counts = which === 'all' || index === newest || isInstruction(entry)
    return counts ? [readEntry(entry, `${name}[${index}]`, entries)] : []
  })
}

function isInstruction(entry: unknown): boolean {
  return isRecord(entry) && (entry['role'] === 'system' || entry['role'] === 'developer')
}

function readEntry(
  entry: unknown,
  field: string,
  all: readonly unknown[],
): ChatMessage | ItemReference {
  if (!isRecord(entry)) throw invalid(field, 'must be an object')
  const { type, id, role } = entry
  const isReference = type === 'item_reference' || (type ?? role ?? null) === null
  if (isReference && typeof id === 'string') return { reference: id, field }
  const tool = toolIn(entry, all)
  if (tool !== null) throw toolRefused(role === 'tool' ? `${field}.role` : field, tool)
  return readMessage(entry, field)
}

export function readMessage(entry: unknown, field: string): ChatMessage {
  if (!isRecord(entry)) throw invalid(field, 'must be an object')
  const { type, role, content } = entry
  if ((type ?? 'message') !== 'message') {
    throw invalid(field, `must be a message: Holdfast takes no item of type ${shown(type)}`)
  }
  const known = typeof role === 'string' && Object.hasOwn(ROLES, role) ? ROLES[role] : undefined
  if (known === undefined) {
    throw invalid(`${field}.role`, `must be one of ${Object.keys(ROLES).join(', ')}`)
  }
  // An assistant's message that called tools has no content; here it has called none.
  const isEmpty = known === 'assistant' && (content ?? null) === null
  return { role: known, content: isEmpty ? '' : readContent(content, `${field}.content`) }
}

function readContent(content: unknown, field: string): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw invalid(field, 'must be a text, or a list of parts')
  return content.map((part: unknown) => readPart(part, field)).join('\n')
}

function readPart(part: unknown, field: string): string {
  const { type, text, refusal } = isRecord(part) ? part : {}
  if (typeof text === 'string' && TEXT_PARTS.includes(String(type))) return text
  if (type === 'refusal' && typeof refusal === 'string') return refusal
  throw mediaRefused(field)
}

/** Images, audio and files. */
function mediaRefused(field: string): HoldfastError {
  return invalid(field, 'must be text: Holdfast takes no images, audio or files')
}

/** The tool that an entry has called, or whose result it is; null if it has to do with none. */
function toolIn(entry: Readonly<Record<string, unknown>>, all: readonly unknown[]): string | null {
  const { type, role } = entry
  const calls = callsOf(entry)
  if (calls.length > 0) return calls.map(({ name }) => name).join(', ')
  const isResult = role === 'tool' || role === 'function' || String(type).endsWith('_output')
  if (!isResult) return null
  const id = entry['tool_call_id'] ?? entry['call_id'] ?? entry['name']
  const call = all.flatMap(callsOf).find((known) => known.id === id)
  return call?.name ?? shown(id ?? type ?? role)
}

function callsOf(entry: unknown): readonly { readonly id: unknown; readonly name: string }[] {
  if (!isRecord(entry)) return []
  const { type, tool_calls: calls, function_call: call } = entry
  if (String(type).endsWith('_call')) {
    return [{ id: entry['call_id'], name: shown(entry['name'] ?? type) }]
  }
  if (isRecord(call)) return [{ id: call['name'], name: toolName(call) }]
  return (Array.isArray(calls) ? calls : [])
    .filter(isRecord)
    .map((each) => ({ id: each['id'], name: toolName(each) }))
}

/** The name of a tool that is declared or called: OpenAI has it in several places. */
function toolName(tool: unknown): string {
  if (!isRecord(tool)) return shown(tool)
  const described = tool['function'] ?? tool['custom']
  return shown((isRecord(described) ? described['name'] : tool['name']) ?? tool['type'])
}

function shown(name: unknown): string {
  return typeof name === 'string' ? name.slice(0, NAME_CHARS) : 'without a name'
}

function toolRefused(field: string, tool: string): HoldfastError {
  const why = 'an agent behind Holdfast has tools of its own, and calls none of its clients'
  return invalid(field, `has to do with the tool ${tool}: ${why}`)
}

/** Refuses the tools that a client offers, by their names. */
export function assertNoTools(body: unknown): void {
  for (const field of ['tools', 'functions']) {
    const tools = isRecord(body) ? body[field] : null
    if (!Array.isArray(tools) || tools.length === 0) continue
    throw toolRefused(field, tools.slice(0, 8).map(toolName).join(', '))
  }
}

/**
 * The input of a turn. One message is just its text; of several, the text is the conversation with
 * the speaker before each message, and `messages` has them one by one. For a session of the
 * request's own, system messages are a part of that; in others they are instructions, for agents
 * that heed them.
 */
export function inputOf(
  said: readonly ChatMessage[],
  { isOwn }: { readonly isOwn: boolean },
  field: string,
): Input {
  if (said.findLast(({ role }) => role !== 'system')?.role !== 'user') {
    throw invalid(field, "must end with the user's message")
  }
  if (isOwn) return conversationInput(said)
  const { instructions, messages } = separateInstructions(said)
  const input = conversationInput(messages)
  if (instructions === null) return input
  return { ...(typeof input === 'string' ? { text: input } : input), instructions }
}

/** The only place that takes system messages for what they are. */
function separateInstructions(said: readonly ChatMessage[]) {
  const isSystem = ({ role }: ChatMessage): boolean => role === 'system'
  const texts = said.filter(isSystem).map(({ content }) => content)
  const messages = said.filter((message) => !isSystem(message))
  return { instructions: texts.length === 0 ? null : texts.join('\n\n'), messages }
}

function conversationInput(messages: readonly ChatMessage[]): Input {
  const [only] = messages
  if (messages.length === 1 && only !== undefined) return only.content
  return { text: messages.map(spoken).join('\n\n'), messages }
}

const SPEAKERS = { system: 'System', user: 'User', assistant: 'Assistant' } as const

function spoken({ role, content }: ChatMessage): string {
  return `${SPEAKERS[role]}: ${content}`
}

/** The first input of a conversation, after the items that a client has put there before. */
export function afterItems(items: readonly ChatMessage[], input: Input): Input {
  if (items.length === 0) return input
  const fields = typeof input === 'string' ? {} : input
  const whole = conversationInput([...items, ...messagesIn(input)])
  return { ...fields, ...(whole as object), text: textOf(whole), itemsBefore: items.length }
}

function textOf(input: Input): string {
  return typeof input === 'string' ? input : input.text
}

/** The messages of an input, without the items that were there before. */
export function messagesIn(input: Input): readonly ChatMessage[] {
  const { messages, itemsBefore }: Readonly<Record<string, unknown>> =
    typeof input === 'string' ? {} : input
  if (!Array.isArray(messages)) return [{ role: 'user', content: textOf(input) }]
  const all = messages.filter(isChatMessage)
  return typeof itemsBefore === 'number' ? all.slice(itemsBefore) : all
}

/** Native callers choose the fields of their inputs. */
function isChatMessage(message: unknown): message is ChatMessage {
  if (!isRecord(message) || typeof message['content'] !== 'string') return false
  return Object.hasOwn(SPEAKERS, String(message['role']))
}
