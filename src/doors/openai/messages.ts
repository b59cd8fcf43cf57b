/**
 * What a request says, as the input of a turn.
 *
 * A request with a session key repeats what was said before: the log has it, so only the newest
 * message counts, and what comes before it is not even looked at. All messages of other requests
 * count.
 */
import { invalid, type GivenInput, type GivenPart, type HoldfastError } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { readMedia } from './parts.ts'

export type ChatMessage = {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
  /** All of it in order, if it has images or files. */
  readonly parts?: readonly GivenPart[]
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
  if (isEmpty) return { role: known, content: '' }
  const where = `${field}.content`
  if (known !== 'user') return { role: known, content: readContent(content, where) }
  return { role: known, ...readParts(content, where) }
}

/** A user's message may have images and files. */
function readParts(content: unknown, field: string): Pick<ChatMessage, 'content' | 'parts'> {
  if (!Array.isArray(content)) return { content: readContent(content, field) }
  const parts = content.map(
    (part: unknown): GivenPart =>
      readMedia(part, field) ?? { type: 'text', text: readPart(part, field) },
  )
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  const text = texts.join('\n')
  return texts.length < parts.length ? { content: text, parts } : { content: text }
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

/** Audio; or images and files of others than the user. */
function mediaRefused(field: string): HoldfastError {
  return invalid(field, "must be text: only a user's message may have images and files, none audio")
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
 * the speaker before each message, and `messages` has them one by one. System messages are no part
 * of it: they are the turn's setting `instructions`.
 */
export function inputOf(said: readonly ChatMessage[], field: string): GivenInput {
  const messages = said.filter(({ role }) => role !== 'system')
  if (messages.at(-1)?.role !== 'user') throw invalid(field, "must end with the user's message")
  return conversationInput(messages)
}

/** What the system messages say; some clients send an empty one, which says nothing. */
export function instructionsOf(said: readonly ChatMessage[]): string | null {
  const texts = said.filter(({ role }) => role === 'system').map(({ content }) => content)
  return texts.filter((text) => text.trim() !== '').join('\n\n') || null
}

function conversationInput(messages: readonly ChatMessage[]): GivenInput {
  const [only] = messages
  if (messages.length === 1 && only !== undefined) {
    return only.parts === undefined ? only.content : { parts: only.parts }
  }
  const text = messages.map(spoken).join('\n\n')
  const said = messages.map(({ role, content }) => ({ role, content }))
  const media = messages.flatMap(({ parts = [] }) => parts).filter(({ type }) => type !== 'text')
  if (media.length === 0) return { text, messages: said }
  // The text has all that was said: images and files follow it.
  return { text, messages: said, parts: [{ type: 'text', text }, ...media] }
}

const SPEAKERS = { system: 'System', user: 'User', assistant: 'Assistant' } as const

function spoken({ role, content }: ChatMessage): string {
  return `${SPEAKERS[role]}: ${content}`
}

/** The first input of a conversation, after the items that a client has put there before. */
export function afterItems(items: readonly ChatMessage[], input: GivenInput): GivenInput {
  if (items.length === 0) return input
  const fields = typeof input === 'string' ? {} : input
  const whole = conversationInput([...items, ...withMedia(messagesIn(input), partsIn(input))])
  return { ...fields, ...(whole as object), text: textOf(whole), itemsBefore: items.length }
}

/** Images and files belong to the last message. */
function withMedia(
  messages: readonly ChatMessage[],
  parts: readonly GivenPart[],
): readonly ChatMessage[] {
  const media = parts.filter(({ type }) => type !== 'text')
  const last = messages.at(-1)
  return last === undefined || media.length === 0
    ? messages
    : [...messages.slice(0, -1), { ...last, parts: media }]
}

function partsIn(input: GivenInput): readonly GivenPart[] {
  return typeof input === 'string' ? [] : (input.parts ?? [])
}

function textOf(input: GivenInput): string {
  if (typeof input === 'string') return input
  const texts = partsIn(input).flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return input.text ?? texts.join('\n')
}

/** The messages of an input, without the items that were there before. */
export function messagesIn(input: GivenInput): readonly ChatMessage[] {
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
