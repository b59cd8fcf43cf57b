/** What is known of a conversation besides what is said in it. */
import { asHoldfastError, HoldfastError, type SessionEvent } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'

const CONVERSATION = /^conv_([\w.:~-]+)$/

export function isError(error: unknown, code: HoldfastError['code']): boolean {
  return asHoldfastError(error).code === code
}

/**
 * A conversation is an internal session that holds its facts, and the key of the session in which
 * it takes place: so its agent is the model of its first response. The facts never change, so they
 * are read from the log: the two sessions may have come to be owned by two nodes.
 */
export async function readFacts({ holdfast }: Exchange, conversation: string) {
  const [, id = ''] = CONVERSATION.exec(conversation) ?? []
  if (id === '') throw unknownConversation(conversation)
  const { row, events } = await holdfast
    .session(id)
    .read(0, 1)
    .catch((error: unknown) => {
      if (isError(error, 'session_unknown')) return { row: null, events: [] }
      throw error
    })
  const [first] = events.map(({ body }) => JSON.parse(body) as SessionEvent)
  if (row === null || first?.type !== 'session.created' || !first.internal) {
    throw unknownConversation(conversation)
  }
  return { id, createdAt: first.at, labels: first.labels, isClosed: row.state !== 'open' }
}

/** The facts of one that is not deleted. */
export async function conversationFacts(exchange: Exchange, conversation: string) {
  const facts = await readFacts(exchange, conversation)
  if (!facts.isClosed) return facts
  throw unknownConversation(conversation)
}

export function unknownConversation(conversation: string): HoldfastError {
  return new HoldfastError('session_unknown', `there is no conversation ${conversation}`)
}
