/** What was said in a rollout of Codex: the file of a thread, with a line for each event. */
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import type { LoggedMessage } from '../logged-message.ts'

/** The messages of a line, in the form of this version or of earlier ones. */
export function codexMessages({ type, payload, timestamp }: JsonObject): readonly LoggedMessage[] {
  const event = asObject(payload)
  const said = type === 'event_msg' ? messageOf(event) : null
  if (said === null || said.text === '') return []
  const id = asText(event['turn_id'])
  return [{ id, ...said, at: Date.parse(asText(timestamp)) || 0 }]
}

/** The conversation, and the folder that it was in last. */
export async function codexConversation(lines: AsyncIterable<JsonObject>) {
  const messages: LoggedMessage[] = []
  let cwd = ''
  for await (const line of lines) {
    const { type, payload } = line
    if (type === 'session_meta' || type === 'turn_context') cwd = asText(asObject(payload)['cwd'])
    messages.push(...codexMessages(line))
  }
  return { messages, cwd }
}

function messageOf({
  type,
  message,
  item,
}: JsonObject): Pick<LoggedMessage, 'role' | 'text'> | null {
  if (type === 'user_message') return { role: 'user', text: asText(message) }
  if (type === 'agent_message') return { role: 'assistant', text: asText(message) }
  if (type !== 'item_completed') return null
  const { type: kind, content } = asObject(item)
  const text = asList(content)
    .map((part) => asText(asObject(part)['text']))
    .join('\n')
  if (kind === 'UserMessage') return { role: 'user', text }
  return kind === 'AgentMessage' ? { role: 'assistant', text } : null
}
