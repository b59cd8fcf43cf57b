/** Conversations that were begun in the agent's own program, read from the file that has them. */
import { invalid, type AdoptedConversation, type EarlierMessage } from '../core/index.ts'
import type { Workplace } from '../platform/child.ts'
import { findLog, linesOf, openLog, type ConversationFiles } from './conversation-files.ts'
import type { JsonObject } from './json.ts'

/** A conversation with the pictures that tools have read may be large, but not so large. */
const LOG_BYTES_MAX = 268_435_456

type Source = { readonly workplace: Workplace; readonly files: ConversationFiles }
type Conversation = { readonly messages: readonly EarlierMessage[]; readonly cwd: string }
/** Keeps of the lines what was said only: all of them may be too much for the memory. */
type ReadConversation = (lines: AsyncIterable<JsonObject>) => Promise<Conversation>

/** The conversation, with the folder that it was in: the agent continues it there. */
export async function adoptFrom(
  { workplace, files }: Source,
  backend: string,
  read: ReadConversation,
): Promise<AdoptedConversation> {
  const env = workplace.environment({ cwd: '', home: '' })
  const log = await findLog(files, env, backend)
  const file = log === null ? null : await openLog(files, env, log)
  if (file === null)
    throw invalid('backend', 'must be the id of a conversation that the agent has stored')
  try {
    const { size } = await file.stat()
    if (size > LOG_BYTES_MAX) throw invalid('backend', 'is too large')
    if (size === 0) throw invalid('backend', 'has no message yet')
    const { messages, cwd } = await read(linesOf(file, { start: 0, end: size - 1 }))
    if (messages.length === 0 || cwd === '') throw invalid('backend', 'has no message yet')
    const said = messages.map(({ role, text, at }) => ({ role, text, at }))
    return { messages: said, settings: { cwd }, position: { bytes: size } }
  } finally {
    await file.close()
  }
}
