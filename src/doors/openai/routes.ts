/** OpenAI's contract, as far as it is served, route by route. */
import { HoldfastError } from '../../core/index.ts'
import { EVENT_STREAM_TYPE } from '../../wire/server-sent-events.ts'
import type { Exchange } from '../exchange.ts'
import { json, type Header, type Route } from '../route.ts'
import { createChatCompletion, readChatRequest } from './chat.ts'
import {
  createConversation,
  deleteConversation,
  getConversation,
  ITEMS_QUERY,
  listItems,
  sessionToDelete,
} from './conversations.ts'
import {
  cancelResponse,
  createResponse,
  getResponse,
  readResponseRequest,
  RESPONSE_QUERY,
  sessionOfResponse,
} from './responses.ts'
import { TurnEntry } from './turn-entry.ts'
import { ChatCompletionRequest, ConversationRequest, ResponseRequest } from './schemas.ts'

const object = { type: 'object' } as const

/** Stock clients send the whole conversation with every message, needed or not. */
const HISTORY_BYTES_MAX = 8_388_608

const turnHeaders: readonly Header[] = [
  {
    name: 'x-session-key',
    description: 'The key of the session; without it the request is its own session.',
  },
  {
    name: 'x-session-busy',
    description: 'If another turn runs: queue, reject, interrupt or collect.',
  },
  { name: 'x-session-wait-ms', description: 'How long to wait for it.' },
  { name: 'Idempotency-Key', description: 'The same key and body join the same turn.' },
  {
    name: 'x-stainless-retry-count',
    description: 'From 1 on: joins the turn of an earlier attempt.',
  },
]

const turnRoute = {
  method: 'POST',
  operation: 'turn.run',
  headers: turnHeaders,
  historyBytesMax: HISTORY_BYTES_MAX,
  answers: {
    200: {
      description: "As OpenAI's: when it is over, or with `stream` as it comes.",
      content: { 'application/json': object, [EVENT_STREAM_TYPE]: { type: 'string' } },
    },
  },
  refusals: [404, 409, 413, 429],
} as const

/** Routes of one server: they share what they remember of attempts. */
export function openAiRoutes(): readonly Route[] {
  const chat = new TurnEntry(readChatRequest)
  const responses = new TurnEntry(readResponseRequest)
  return [
    {
      ...turnRoute,
      path: '/v1/chat/completions',
      name: 'createChatCompletion',
      summary: 'OpenAI: a turn, answered as a chat completion',
      body: ChatCompletionRequest,
      session: (exchange) => chat.session(exchange),
      handle: (exchange) => createChatCompletion(exchange, chat),
    },
    {
      ...turnRoute,
      path: '/v1/responses',
      name: 'createResponse',
      summary: 'OpenAI: a turn, answered as a response',
      body: ResponseRequest,
      session: (exchange) => responses.session(exchange),
      handle: (exchange) => createResponse(exchange, responses),
    },
    ...otherRoutes,
  ]
}

const otherRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/v1/responses/:id',
    name: 'getResponse',
    query: RESPONSE_QUERY,
    summary: 'OpenAI: a response as it is now',
    operation: 'session.read',
    answers: { 200: json('The response.', object) },
    refusals: [404],
    session: sessionOfResponse,
    handle: getResponse,
  },
  {
    method: 'POST',
    path: '/v1/responses/:id/cancel',
    name: 'cancelResponse',
    summary: 'OpenAI: cancel the turn of a response; answered when it is over',
    operation: 'turn.cancel',
    answers: { 200: json('The response, which is over.', object) },
    refusals: [404],
    session: sessionOfResponse,
    handle: cancelResponse,
  },
  {
    method: 'POST',
    path: '/v1/conversations',
    name: 'createConversation',
    summary: 'OpenAI: make a conversation',
    operation: 'session.create',
    body: ConversationRequest,
    answers: { 200: json('The conversation.', object) },
    refusals: [413],
    handle: createConversation,
  },
  {
    method: 'GET',
    path: '/v1/conversations/:id',
    name: 'getConversation',
    summary: 'OpenAI: look at a conversation',
    operation: 'session.read',
    answers: { 200: json('The conversation.', object) },
    refusals: [404],
    handle: getConversation,
  },
  {
    method: 'DELETE',
    path: '/v1/conversations/:id',
    name: 'deleteConversation',
    summary: 'OpenAI: close a conversation for good',
    operation: 'session.close',
    answers: { 200: json('It is closed.', object) },
    refusals: [404],
    session: sessionToDelete,
    handle: deleteConversation,
  },
  {
    method: 'GET',
    path: '/v1/conversations/:id/items',
    name: 'listConversationItems',
    summary: 'OpenAI: what was said in a conversation',
    operation: 'session.read',
    query: ITEMS_QUERY,
    answers: { 200: json('One page.', object) },
    refusals: [404],
    handle: listItems,
  },
  {
    method: 'GET',
    path: '/v1/models',
    name: 'listModels',
    summary: 'OpenAI: the agents, as models',
    operation: 'agent.read',
    answers: { 200: json('The models.', object) },
    handle: listModels,
  },
  {
    method: 'GET',
    path: '/v1/models/:model',
    name: 'getModel',
    summary: 'OpenAI: one agent, as a model',
    operation: 'agent.read',
    answers: { 200: json('The model.', object) },
    refusals: [404],
    handle: getModel,
  },
]

/** Each agent is a model. */
function listModels(exchange: Exchange): void {
  const data = exchange.holdfast.authority.agents.map(modelView)
  exchange.reply(200, { object: 'list', data })
}

function getModel(exchange: Exchange): void {
  const [model = ''] = exchange.params
  const { agents } = exchange.holdfast.authority
  if (agents.includes(model)) return exchange.reply(200, modelView(model))
  throw new HoldfastError('agent_unknown', `there is no agent ${model}: ${agents.join(', ')}`)
}

/** When an agent was set up is not known. */
function modelView(agent: string) {
  return { id: agent, object: 'model', created: 0, owned_by: 'holdfast' }
}
