/** The conversation as the model is sent it: the log is the memory. */
import type { Message } from '../../core/index.ts'

export type ChatMessage = {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
}

/** The newest messages that fit, oldest first; the first of them is a user's. */
export async function recentMessages(
  history: AsyncIterable<Message>,
  {
    historyMax,
    historyCharsMax,
  }: { readonly historyMax: number; readonly historyCharsMax: number },
): Promise<readonly ChatMessage[]> {
  const recent: ChatMessage[] = []
  let chars = 0
  for await (const { role, text } of history) {
    if (text === '') continue
    recent.push({ role, content: text })
    chars += text.length
    while (recent.length > historyMax || (chars > historyCharsMax && recent.length > 0)) {
      chars -= recent.shift()?.content.length ?? 0
    }
  }
  const first = recent.findIndex(({ role }) => role === 'user')
  return first < 0 ? [] : recent.slice(first)
}
