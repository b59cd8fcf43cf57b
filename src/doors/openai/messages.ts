/**
 * What a request says, as the input of a turn.
 *
 * In a session with a memory only the new message counts: the last one, which must be the user's. A
 * request that is a session of its own brings the whole conversation along, and the agent gets it.
 */
import { invalid, type Input } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'

export type ChatMessage = {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
}

const ROLES: Readonly<Record<string, ChatMessage['role']>> = {
  system: 'system',
  developer: 'system',
  user: 'user',
  assistant: 'assistant',
}
const TEXT_PARTS = ['text', 'input_text', 'output_text']

/**
 * `messages` of a chat completion. Where the session remembers, what was said before is not looked
 * at: it may hold what this session never saw, and it is not taken.
 */
export function readMessages(
  messages: readonly unknown[],
  which: 'all' | 'new',
): readonly ChatMessage[] {
  return messages.flatMap((message, index) => {
    const counts = which === 'all' || index === messages.length - 1 || isInstruction(message)
    return counts ? [readMessage(message, `messages[${index}]`)] : []
  })
}

function isInstruction(message: unknown): boolean {
  return isRecord(message) && (message['role'] === 'system' || message['role'] === 'developer')
}

export function readInput(
  input: string | readonly unknown[],
  instructions: string | undefined,
): readonly ChatMessage[] {
  const system: readonly ChatMessage[] =
    instructions === undefined ? [] : [{ role: 'system', content: instructions }]
  if (typeof input === 'string') return [...system, { role: 'user', content: input }]
  return [...system, ...input.map((item, index) => readMessage(item, `input[${index}]`))]
}

function readMessage(message: unknown, field: string): ChatMessage {
  if (!isRecord(message)) throw invalid(field, 'must be an object')
  const { type = 'message', role, content } = message
  if (type !== 'message') throw invalid(field, 'must be a message: Holdfast takes no other items')
  const known = typeof role === 'string' && Object.hasOwn(ROLES, role) ? ROLES[role] : undefined
  if (known === undefined) {
    throw invalid(`${field}.role`, `must be one of ${Object.keys(ROLES).join(', ')}`)
  }
  return { role: known, content: readContent(content, `${field}.content`) }
}

function readContent(content: unknown, field: string): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw invalid(field, 'must be a text, or a list of parts')
  const texts = content.map((part: unknown) =>
    isRecord(part) && TEXT_PARTS.includes(String(part['type'])) ? part['text'] : null,
  )
  if (texts.every((text) => typeof text === 'string')) return texts.join('')
  throw invalid(field, 'must be text: Holdfast takes no images, audio or files')
}

/**
 * In a session with a memory, the new message alone; instructions go along, for agents that heed
 * them. For a session of the request's own, the whole conversation: one message is just its text;
 * of several, the text is the conversation with the speaker before each message, and `messages`
 * has them one by one.
 */
export function inputOf(
  said: readonly ChatMessage[],
  { isOwn }: { readonly isOwn: boolean },
  field: string,
): Input {
  const last = said.at(-1)
  if (last?.role !== 'user') throw invalid(field, "must end with the user's message")
  const text = last.content
  if (isOwn) {
    return said.length === 1 ? text : { text: said.map(spoken).join('\n\n'), messages: said }
  }
  const instructions = said.filter(({ role }) => role === 'system').map(({ content }) => content)
  return instructions.length === 0 ? text : { text, instructions: instructions.join('\n\n') }
}

const SPEAKERS = { system: 'System', user: 'User', assistant: 'Assistant' } as const

function spoken({ role, content }: ChatMessage): string {
  return `${SPEAKERS[role]}: ${content}`
}
