/** Which session a request means, and the names by which this door calls sessions and turns. */
import { HoldfastError, invalid, type SessionEvent } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { OwnTarget } from './own-target.ts'
import type { ChatBody, ResponseBody } from './schemas.ts'
import { ChainTarget, KeyTarget, type TurnTarget } from './turn-targets.ts'

const KEY_HEADER = 'x-session-key'
const CONVERSATION = /^conv_([\w.:~-]+)$/
const RESPONSE = /^resp_([\w.:~-]+)_(t[1-9]\d{0,14})$/

export function chatTarget(exchange: Exchange, { model }: ChatBody): TurnTarget {
  const key = sessionKey(exchange)
  return key === undefined ? ownTarget(exchange, model, false) : keyTarget(exchange, model, { key })
}

export async function responseTarget(exchange: Exchange, body: ResponseBody): Promise<TurnTarget> {
  const key = sessionKey(exchange)
  const { model, store } = body
  const previous = body.previous_response_id ?? undefined
  const conversation =
    typeof body.conversation === 'string' ? body.conversation : body.conversation?.id
  if ([key, conversation, previous].filter((name) => name !== undefined).length > 1) {
    throw invalid('previous_response_id', `, conversation and ${KEY_HEADER} exclude each other`)
  }
  if (key !== undefined) return keyTarget(exchange, model, { key })
  if (conversation !== undefined) {
    const { labels } = await conversationFacts(exchange, conversation)
    return keyTarget(exchange, model, { key: conversation, labels, ttlMs: null })
  }
  if (previous === undefined) return ownTarget(exchange, model, store !== false)
  const { session, turn } = readResponseId(previous)
  return new ChainTarget(exchange.holdfast, {
    id: session,
    after: turn,
    agent: model ?? undefined,
  })
}

function keyTarget(
  { holdfast }: Exchange,
  model: ChatBody['model'],
  options: ConstructorParameters<typeof KeyTarget>[1],
): TurnTarget {
  const agent = model ?? undefined
  return new KeyTarget(holdfast, agent === undefined ? options : { ...options, agent })
}

function ownTarget(exchange: Exchange, model: ChatBody['model'], isKept: boolean): TurnTarget {
  const caller = exchange.header('authorization') ?? ''
  return new OwnTarget(exchange.holdfast, { caller, agent: model ?? undefined, isKept })
}

/** A header's bytes are UTF-8 for us, like everything else. */
function sessionKey(exchange: Exchange): string | undefined {
  const value = exchange.header(KEY_HEADER)
  if (value === undefined) return undefined
  if (value === '') throw invalid(KEY_HEADER, 'must not be empty')
  const text = Buffer.from(value, 'latin1').toString()
  return text.includes('\uFFFD') ? value : text
}

export type ConversationFacts = {
  /** The session that holds them. */
  readonly id: string
  readonly createdAt: number
  readonly labels: Readonly<Record<string, string>>
  readonly isClosed: boolean
}

/**
 * A conversation is an internal session that holds its facts, and the key of the session in which
 * it takes place: so its agent is the model of its first response. The facts never change, so they
 * are read from the log: the two sessions may have come to be owned by two nodes.
 */
export async function readFacts(
  { holdfast }: Exchange,
  conversation: string,
): Promise<ConversationFacts> {
  const [, id = ''] = CONVERSATION.exec(conversation) ?? []
  if (id === '') throw unknownConversation(conversation)
  const { row, events } = await holdfast.authority.store.read(id, 0, 1)
  const [first] = events.map(({ body }) => JSON.parse(body) as SessionEvent)
  if (row === null || first?.type !== 'session.created' || !first.internal) {
    throw unknownConversation(conversation)
  }
  const { at: createdAt, labels } = first
  return { id, createdAt, labels, isClosed: row.state !== 'open' }
}

/** The facts of one that is not deleted. */
export async function conversationFacts(
  exchange: Exchange,
  conversation: string,
): Promise<ConversationFacts> {
  const facts = await readFacts(exchange, conversation)
  if (!facts.isClosed) return facts
  throw unknownConversation(conversation)
}

export function unknownConversation(conversation: string): HoldfastError {
  return new HoldfastError('session_unknown', `there is no conversation ${conversation}`)
}

export function conversationId(facts: string): string {
  return `conv_${facts}`
}

export function readResponseId(response: string) {
  const [, session, turn] = RESPONSE.exec(response) ?? []
  if (session !== undefined && turn !== undefined) return { session, turn }
  throw new HoldfastError('turn_unknown', `there is no response ${response}`)
}

export function responseId(session: string, turn: string): string {
  return `resp_${session}_${turn}`
}
