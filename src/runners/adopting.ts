/** Conversations that were begun in the agent's own program, read from the file that has them. */
import { invalid, type AdoptedConversation, type EarlierMessage } from '../core/index.ts'
import type { Workplace } from '../platform/child.ts'
import { findLog, openLog, type ConversationFiles } from './conversation-files.ts'
import { parsedLine, type JsonObject } from './json.ts'

/** A conversation with the pictures that tools have read may be large, but not so large. */
const LOG_BYTES_MAX = 268_435_456

type Source = { readonly workplace: Workplace; readonly files: ConversationFiles }
type Conversation = { readonly messages: readonly EarlierMessage[]; readonly cwd: string }

/** The conversation, with the folder that it was in: the agent continues it there. */
export async function adoptFrom(
  { workplace, files }: Source,
  backend: string,
  read: (lines: readonly JsonObject[]) => Conversation,
): Promise<AdoptedConversation> {
  const data = await readLog({ workplace, files }, backend)
  const { messages, cwd } = read(data.toString('utf8').split('\n').map(parsedLine))
  if (messages.length === 0 || cwd === '') throw invalid('backend', 'has no message yet')
  const said = messages.map(({ role, text, at }) => ({ role, text, at }))
  return { messages: said, settings: { cwd }, position: { bytes: data.length } }
}

async function readLog({ workplace, files }: Source, backend: string): Promise<Buffer> {
  const env = workplace.environment({ cwd: '', home: '' })
  const log = await findLog(files, env, backend)
  const file = log === null ? null : await openLog(files, env, log)
  if (file === null)
    throw invalid('backend', 'must be the id of a conversation that the agent has stored')
  try {
    if ((await file.stat()).size > LOG_BYTES_MAX) throw invalid('backend', 'is too large')
    return await file.readFile()
  } finally {
    await file.close()
  }
}
