/** Conversations of Claude Code that were begun without Holdfast, read from their transcripts. */
import { readFile, stat } from 'node:fs/promises'
import { invalid, type AdoptedConversation, type EarlierMessage } from '../../core/index.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { parsedLine } from './messages.ts'
import { findTranscript } from './start.ts'

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
/** A transcript with the pictures that tools have read may be large, but not so large. */
const TRANSCRIPT_BYTES_MAX = 268_435_456

/** The conversation, with the folder that it was begun in: Claude Code goes on there. */
export async function readTranscript(
  backend: string,
  env: Readonly<Record<string, string>>,
): Promise<AdoptedConversation> {
  if (!UUID.test(backend)) throw invalid('backend', 'must be the id of a session of Claude Code')
  const file = await findTranscript(backend, env)
  if (file === null) throw invalid('backend', 'is no session that Claude Code has stored here')
  if ((await stat(file)).size > TRANSCRIPT_BYTES_MAX) throw invalid('backend', 'is too large')
  const lines = (await readFile(file, 'utf8')).split('\n').map(parsedLine)
  const last = lines.findLast(isSaid)
  const cwd = asText(last?.['cwd'])
  if (last === undefined || cwd === '') throw invalid('backend', 'has no message yet')
  const said = chainTo(last, lines).filter(isSaid)
  return { messages: said.flatMap(messagesIn), settings: { cwd } }
}

function isSaid(line: JsonObject): boolean {
  const { type, isSidechain } = line
  return (type === 'user' || type === 'assistant') && isSidechain !== true
}

/** Each line names the one before it: those of the last one are the conversation. */
function chainTo(last: JsonObject, lines: readonly JsonObject[]): readonly JsonObject[] {
  const byId = new Map(lines.map((line) => [line['uuid'], line]))
  const chain: JsonObject[] = []
  for (let line: JsonObject | undefined = last; line !== undefined;) {
    chain.unshift(line)
    byId.delete(line['uuid'])
    line = byId.get(line['parentUuid'])
  }
  return chain
}

/** The texts of a line; results of tools and what Claude Code says to itself are none. */
function messagesIn({ type, message, timestamp, isMeta }: JsonObject): readonly EarlierMessage[] {
  const { content } = asObject(message)
  const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : asList(content)
  const texts = blocks.map(asObject).filter((block) => block['type'] === 'text')
  const text = texts.map((block) => asText(block['text'])).join('\n')
  if (text === '' || isMeta === true) return []
  const at = Date.parse(asText(timestamp))
  return [{ role: type === 'user' ? 'user' : 'assistant', text, at: Number.isNaN(at) ? 0 : at }]
}
