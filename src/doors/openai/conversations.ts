/** `/v1/conversations`: each is a session under its own key, and a few facts kept beside it. */
import { Type } from '../../schema/typebox.ts'
import { invalid, type Message, type Session, type SessionHandle } from '../../core/index.ts'
import { oneOf } from '../../schema/contract.ts'
import type { Exchange } from '../exchange.ts'
import { json, query, routes } from '../route.ts'
import { itemStatus, textPart } from './responses.ts'
import { ConversationRequest, readConversationBody } from './schemas.ts'
import { conversationFacts, readFacts, unknownConversation } from './targets.ts'

const ITEMS_MAX = 100
const ITEMS = 20

const ITEMS_QUERY = query({
  after: Type.String({ description: "As OpenAI's." }),
  limit: Type.Integer({ minimum: 1, maximum: ITEMS_MAX, description: "As OpenAI's." }),
  order: oneOf(['asc', 'desc'], { description: "As OpenAI's." }),
  include: Type.String({ description: 'Accepted, without effect.' }),
})
const object = { type: 'object' }

export const CONVERSATION_ROUTES = routes({
  'POST /v1/conversations': {
    name: 'createConversation',
    summary: 'OpenAI: make a conversation',
    operation: 'session.create',
    body: ConversationRequest,
    answers: { 200: json('The conversation.', object) },
    refusals: [413],
    handle: async (exchange) => {
      const { metadata } = readConversationBody(await exchange.json())
      // The facts of a conversation are an internal session without turns.
      const options = { internal: true, ttlMs: null, labels: metadata ?? {} }
      const facts = await exchange.holdfast.resolve(options)
      exchange.reply(200, view(await facts.state()))
    },
  },
  'GET /v1/conversations/:id': {
    name: 'getConversation',
    summary: 'OpenAI: look at a conversation',
    operation: 'session.read',
    answers: { 200: json('The conversation.', object) },
    refusals: [404],
    handle: async (exchange) => {
      const [id = ''] = exchange.params
      exchange.reply(200, view(await conversationFacts(exchange, id)))
    },
  },
  'DELETE /v1/conversations/:id': {
    name: 'deleteConversation',
    summary: 'OpenAI: close a conversation for good',
    operation: 'session.close',
    answers: { 200: json('It is closed.', object) },
    refusals: [404],
    // Its facts are closed first, and may be another node's than its session.
    session: async (exchange) => {
      const [key = ''] = exchange.params
      const { id, isClosed } = await readFacts(exchange, key)
      return isClosed ? exchange.holdfast.refOf(key) : { id }
    },
    handle: deleteConversation,
  },
  'GET /v1/conversations/:id/items': {
    name: 'listConversationItems',
    summary: 'OpenAI: what was said in a conversation',
    operation: 'session.read',
    query: ITEMS_QUERY,
    answers: { 200: json('One page.', object) },
    refusals: [404],
    handle: listItems,
  },
})

function view({ id, createdAt, labels }: Pick<Session, 'id' | 'createdAt' | 'labels'>) {
  return {
    id: `conv_${id}`,
    object: 'conversation',
    created_at: Math.floor(createdAt / 1_000),
    metadata: labels,
  }
}

/**
 * First its facts, so that no turn starts any more; then the session, if there is one. If each has
 * another owner, both do their part: the request is forwarded again until both are closed.
 */
async function deleteConversation(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const facts = await readFacts(exchange, id)
  const { holdfast } = exchange
  if (facts.isClosed && (await holdfast.find(id)) === null) throw unknownConversation(id)
  if (!facts.isClosed) await holdfast.session(facts.id).close('deleted')
  await (await holdfast.find(id))?.close('deleted')
  exchange.reply(200, { id, object: 'conversation.deleted', deleted: true })
}

/** What was said, the newest first unless asked otherwise. */
async function listItems(exchange: Exchange): Promise<void> {
  const { after: item, limit = ITEMS, order = 'desc' } = ITEMS_QUERY.read(exchange.search)
  const [id = ''] = exchange.params
  await conversationFacts(exchange, id)
  const isAscending = order === 'asc'
  const session = await exchange.holdfast.find(id)
  const after = item === undefined ? null : readItemId(item)
  const page = session === null ? [] : await readPage(session, { after, limit, isAscending })
  const data = page.slice(0, limit).map((message) => itemOf(id, message))
  exchange.reply(200, {
    object: 'list',
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: page.length > limit,
  })
}

/** One more than the limit, if there are more. */
async function readPage(
  session: SessionHandle,
  { after, limit, isAscending }: { after: number | null; limit: number; isAscending: boolean },
): Promise<readonly Message[]> {
  const page: Message[] = []
  for await (const message of session.messages()) {
    if (after !== null && !isAscending && message.seq >= after) break
    if (after !== null && isAscending && message.seq <= after) continue
    page.push(message)
    if (page.length <= limit) continue
    if (isAscending) break
    if (page.length > limit + 1) page.shift()
  }
  return isAscending ? page : page.toReversed()
}

function itemOf(conversation: string, { seq, role, text, partial }: Message) {
  const part = role === 'user' ? { type: 'input_text', text } : textPart(text)
  const id = `msg_${conversation.slice('conv_'.length)}_${seq}`
  return { id, type: 'message', status: itemStatus(partial === true), role, content: [part] }
}

function readItemId(id: string): number {
  const [, seq] = /^msg_.+_(\d{1,15})$/.exec(id) ?? []
  if (seq !== undefined) return Number(seq)
  throw invalid('after', 'must be the id of an item')
}
