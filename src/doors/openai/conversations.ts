/** `/v1/conversations`: each is a session under its own key, and a few facts kept beside it. */
import {
  invalid,
  type Holdfast,
  type Session,
  type SessionHandle,
  type SessionRef,
} from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { json, query, routes } from '../route.ts'
import { conversationFacts, readFacts, unknownConversation } from './conversation-facts.ts'
import {
  addedItems,
  ItemReader,
  itemUnknown,
  itemView,
  listView,
  noted,
  PAGE_FIELDS,
  pageOf,
  saidItems,
  sessionOfItem,
  type Item,
} from './items.ts'
import { readMessage, type ChatMessage } from './messages.ts'
import { noteItemDeleted, noteItems, notesOf } from './notes.ts'
import {
  ConversationRequest,
  ItemsRequest,
  readConversationBody,
  readItemsBody,
} from './schemas.ts'
import { retryCount } from './turn-entry.ts'

const ITEMS_QUERY = query(PAGE_FIELDS, 'ignored')
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
      const { metadata, items } = readConversationBody(await exchange.json())
      const messages = readItems(items ?? [])
      // The facts of a conversation are an internal session without turns.
      const [agent] = exchange.holdfast.agents
      const options = { internal: true, ttlMs: null, labels: metadata ?? {}, agent }
      const facts = await exchange.holdfast.resolveReserved(options)
      if (messages.length > 0) await noteItems(facts, messages)
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
  'POST /v1/conversations/:id/items': {
    name: 'createConversationItems',
    summary: 'OpenAI: add messages to a conversation in which no response was made',
    operation: 'turn.run',
    body: ItemsRequest,
    answers: { 200: json('The items.', object) },
    refusals: [404, 413],
    session: sessionOfFacts,
    handle: createItems,
  },
  'GET /v1/conversations/:id/items/:item': {
    name: 'getConversationItem',
    summary: 'OpenAI: one item of a conversation',
    operation: 'session.read',
    answers: { 200: json('The item.', object) },
    refusals: [404],
    handle: async (exchange) => exchange.reply(200, itemView((await findItem(exchange)).item)),
  },
  'DELETE /v1/conversations/:id/items/:item': {
    name: 'deleteConversationItem',
    summary: 'OpenAI: take an added message out of a conversation again',
    operation: 'turn.cancel',
    answers: { 200: json('The conversation.', object) },
    refusals: [404],
    session: sessionOfFacts,
    handle: deleteItem,
  },
})

async function sessionOfFacts(exchange: Exchange): Promise<SessionRef> {
  return { id: (await readFacts(exchange, exchange.params[0] ?? '')).id }
}

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

/** What clients have added, then what was said in the turns. */
async function* itemsOf(holdfast: Holdfast, { id, facts }: Conversation): AsyncGenerator<Item> {
  yield* addedItems(facts)
  const session = await holdfast.find(id)
  if (session !== null) yield* saidItems(session)
}

type Conversation = { readonly id: string; readonly facts: SessionHandle }

/** The conversation of the path, which is not deleted. */
async function find(exchange: Exchange): Promise<Conversation> {
  const [id = ''] = exchange.params
  const facts = await conversationFacts(exchange, id)
  return { id, facts: exchange.holdfast.session(facts.id) }
}

async function listItems(exchange: Exchange): Promise<void> {
  const conversation = await find(exchange)
  const items = itemsOf(exchange.holdfast, conversation)
  exchange.reply(200, await pageOf(items, ITEMS_QUERY.read(exchange.search)))
}

/** The turns say what is in a conversation from the first of them on: the agent knows that. */
async function createItems(exchange: Exchange): Promise<void> {
  const { items } = readItemsBody(await exchange.json())
  const messages = readItems(items)
  const { id, facts } = await find(exchange)
  if ((await exchange.holdfast.find(id)) !== null) {
    throw invalid('items', 'cannot be added once a response was made in the conversation')
  }
  if (messages.length === 0) return exchange.reply(200, listView([]))
  const seq = await repeatedNote(exchange, facts, messages)
  exchange.reply(
    200,
    listView(noted(facts.id, seq ?? (await noteItems(facts, messages)), messages)),
  )
}

function readItems(items: readonly unknown[]): readonly ChatMessage[] {
  return items.map((item, index) => readMessage(item, `items[${index}]`))
}

/** The note of an earlier attempt, if this is the client's retry and nothing came after it. */
async function repeatedNote(
  exchange: Exchange,
  facts: SessionHandle,
  items: readonly ChatMessage[],
): Promise<number | null> {
  if (retryCount(exchange) === 0) return null
  let last: { readonly seq: number; readonly data: object } | null = null
  for await (const note of notesOf(facts, 'openai.items')) last = note
  return JSON.stringify(last?.data) === JSON.stringify({ items }) ? (last?.seq ?? null) : null
}

async function findItem(exchange: Exchange): Promise<Conversation & { readonly item: Item }> {
  const conversation = await find(exchange)
  const [, id = ''] = exchange.params
  const session = sessionOfItem(id)
  const talk = await exchange.holdfast.find(conversation.id)
  const isHere = session === conversation.facts.id || (talk !== null && session === talk.id)
  const item = isHere ? await new ItemReader(exchange.holdfast).read(id) : null
  if (item === null) throw itemUnknown(id)
  return { ...conversation, item }
}

/** Nothing can be taken back from an agent that was told: that is refused. */
async function deleteItem(exchange: Exchange): Promise<void> {
  const { id, facts, item } = await findItem(exchange)
  if ((await exchange.holdfast.find(id)) !== null) {
    const problem = 'is known to the agent, which does not forget it: delete the conversation'
    throw invalid('item_id', problem)
  }
  await noteItemDeleted(facts, item.id)
  exchange.reply(200, view(await facts.state()))
}
