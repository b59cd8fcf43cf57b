/** What was said in a transcript of Claude Code: a line for each message, chained by their ids. */
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import type { LoggedMessage } from '../logged-message.ts'

/** What Claude Code itself writes as its user: the ends of turns, commands and what they print. */
const OWN_WORDS = /^(?:\[Request interrupted by user|<(?:local-)?command-|<task-notification>)/

/** The texts of a line; results of tools and what Claude Code says to itself are none. */
export function claudeMessages(line: JsonObject): readonly LoggedMessage[] {
  const { type, message, uuid, timestamp, isMeta, isCompactSummary } = line
  if (!isSaid(line) || isMeta === true || isCompactSummary === true) return []
  const { content } = asObject(message)
  const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : asList(content)
  const texts = blocks.map(asObject).filter((block) => block['type'] === 'text')
  const text = texts.map((block) => asText(block['text'])).join('\n')
  if (text === '' || (type === 'user' && OWN_WORDS.test(text))) return []
  const role = type === 'user' ? 'user' : 'assistant'
  return [{ id: asText(uuid), role, text, at: Date.parse(asText(timestamp)) || 0 }]
}

/** What is kept of a line: its messages, and the line before it. */
type Kept = { readonly parent: unknown; readonly messages: readonly LoggedMessage[] }

/** The conversation as Claude Code remembers it, and the folder that it was in last. */
export async function claudeConversation(lines: AsyncIterable<JsonObject>) {
  const byId = new Map<unknown, Kept>()
  let [last, cwd]: [unknown, string] = [undefined, '']
  for await (const line of lines) {
    const { uuid, parentUuid: parent } = line
    if (typeof uuid !== 'string') continue
    byId.set(uuid, { parent, messages: claudeMessages(line) })
    if (isSaid(line)) [last, cwd] = [uuid, asText(line['cwd'])]
  }
  return { messages: chainTo(last, byId), cwd }
}

function isSaid({ type, isSidechain }: JsonObject): boolean {
  return (type === 'user' || type === 'assistant') && isSidechain !== true
}

/** Each line names the one before it: those of the last one are the conversation. */
function chainTo(last: unknown, byId: Map<unknown, Kept>): readonly LoggedMessage[] {
  const chain: (readonly LoggedMessage[])[] = []
  let id = last
  for (let line = byId.get(id); line !== undefined; line = byId.get(id)) {
    chain.push(line.messages)
    byId.delete(id)
    id = line.parent
  }
  return chain.toReversed().flat()
}
