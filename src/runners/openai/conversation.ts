/** The messages that the model gets. */
import type { Message, RunnerTurn } from '../../core/index.ts'

export type ModelMessage = {
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
): Promise<readonly ModelMessage[]> {
  const recent: ModelMessage[] = []
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

const ROLES: ReadonlySet<unknown> = new Set(['system', 'user', 'assistant'])

/**
 * The messages of this turn's input: a whole conversation is passed on unchanged, and instructions
 * become a system message before the text.
 */
export function inputMessages({ input, text }: RunnerTurn): readonly ModelMessage[] {
  const { messages, instructions } = typeof input === 'string' ? {} : (input as InputParts)
  if (Array.isArray(messages) && messages.length > 0 && messages.every(isMessage)) {
    return messages.map(({ role, content }) => ({ role, content }))
  }
  const own = { role: 'user', content: text } as const
  return typeof instructions === 'string' ? [{ role: 'system', content: instructions }, own] : [own]
}

type InputParts = { readonly messages?: unknown; readonly instructions?: unknown }

function isMessage(value: unknown): value is ModelMessage {
  const { role, content } = (value ?? {}) as Partial<ModelMessage>
  return ROLES.has(role) && typeof content === 'string'
}
