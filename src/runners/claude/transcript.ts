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

/** The conversation as Claude Code remembers it, and the folder that it was in last. */
export function claudeConversation(lines: readonly JsonObject[]) {
  const last = lines.findLast(isSaid)
  const said = last === undefined ? [] : chainTo(last, lines)
  return { messages: said.flatMap(claudeMessages), cwd: asText(last?.['cwd']) }
}

function isSaid({ type, isSidechain }: JsonObject): boolean {
  return (type === 'user' || type === 'assistant') && isSidechain !== true
}

/** Each line names the one before it: those of the last one are the conversation. */
function chainTo(last: JsonObject, lines: readonly JsonObject[]): readonly JsonObject[] {
  const byId = new Map(lines.map((line) => [line['uuid'], line]))
  const chain: JsonObject[] = []
  for (let line: JsonObject | undefined = last; line !== undefined;) {
    chain.push(line)
    byId.delete(line['uuid'])
    line = byId.get(line['parentUuid'])
  }
  return chain.toReversed()
}
