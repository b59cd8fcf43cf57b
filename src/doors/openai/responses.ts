/** `/v1/responses`: make one, look at one, follow one, cancel one, delete one. */
import { Type } from '../../schema/typebox.ts'
import { invalid, type SessionHandle, type TurnRecord } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { json, jsonOrEvents, query, routes, visibleRef, type Route } from '../route.ts'
import { sendAnswer, sessionHeaders, streamAnswer, wholeAnswer } from './answer.ts'
import { inputItems, ItemReader, itemUnknown, PAGE_FIELDS, pageOf, sessionOfItem } from './items.ts'
import {
  inputOf,
  instructionsOf,
  messagesIn,
  readEntries,
  type ChatMessage,
  type ItemReference,
} from './messages.ts'
import { deletedTurns, eventsOf, isDeleted, noteResponseDeleted } from './notes.ts'
import { responseEventWriter, responseView, type ResponseFacts } from './response-view.ts'
import { readResponseBody, ResponseRequest, type ResponseBody } from './schemas.ts'
import {
  readResponseId,
  responseTarget,
  responseUnknown,
  type AdmittedTurn,
  type TurnTarget,
} from './targets.ts'
import { TurnEntry, type OpenAiTurn } from './turn-entry.ts'

const object = { type: 'object' }
/** Each is looked up in a log. */
const REFERENCES_MAX = 1_000
const PAGE_QUERY = query(PAGE_FIELDS, 'ignored')
const STREAM_QUERY = query(
  {
    stream: Type.Boolean({ description: 'As a stream of events.' }),
    starting_after: Type.Integer({
      minimum: 0,
      description: 'With `stream`: the number of the last event that is known.',
    }),
  },
  'ignored',
)

export function responseRoutes(): readonly Route[] {
  const entry = new TurnEntry(readResponseRequest)
  return routes({
    'POST /v1/responses': {
      ...entry.route,
      name: 'createResponse',
      summary: 'OpenAI: a turn, answered as a response',
      body: ResponseRequest,
      handle: async (exchange) => respond(exchange, await entry.admit(exchange)),
    },
    'GET /v1/responses/:id': {
      name: 'getResponse',
      query: STREAM_QUERY,
      summary: 'OpenAI: a response as it is now, or with `stream` as it comes',
      operation: 'session.read',
      answers: { 200: jsonOrEvents('The response.', object) },
      refusals: [404],
      session: sessionOfResponse,
      handle: getResponse,
    },
    'DELETE /v1/responses/:id': {
      name: 'deleteResponse',
      summary: 'OpenAI: make a response that is over unreadable, or erase it',
      operation: 'session.close',
      answers: { 200: json('It is deleted.', object) },
      refusals: [404],
      session: sessionOfResponse,
      handle: deleteResponse,
    },
    'GET /v1/responses/:id/input_items': {
      name: 'listInputItems',
      query: PAGE_QUERY,
      summary: 'OpenAI: what the turn of a response was given',
      operation: 'session.read',
      answers: { 200: json('One page.', object) },
      refusals: [404],
      handle: async (exchange) => {
        const { session, turn } = await find(exchange)
        const messages = messagesIn((await session.getTurn(turn)).input)
        const items = inputItems(session.id, turn, messages)
        exchange.reply(200, await pageOf(items, PAGE_QUERY.read(exchange.search)))
      },
    },
    'POST /v1/responses/:id/cancel': {
      name: 'cancelResponse',
      summary: 'OpenAI: cancel the turn of a response; answered when it is over',
      operation: 'turn.cancel',
      answers: { 200: json('The response, which is over.', object) },
      refusals: [404],
      session: sessionOfResponse,
      handle: async (exchange) => {
        const found = await find(exchange)
        // Returns when the turn is over; one that was over is shown as it ended.
        await found.session.cancelTurn(found.turn)
        await sendNow(exchange, found, {})
      },
    },
  })
}

async function readResponseRequest(exchange: Exchange): Promise<OpenAiTurn<ResponseBody>> {
  const body = readResponseBody(await exchange.json())
  const target = await responseTarget(exchange, body)
  const said = await readInput(exchange, target, body)
  const isBackground = body.background === true
  const instructions = instructionsOf(said)
  return { target, input: inputOf(said, 'input'), instructions, body, isBackground }
}

async function readInput(
  exchange: Exchange,
  target: TurnTarget,
  { input, instructions }: ResponseBody,
): Promise<readonly ChatMessage[]> {
  const system = { role: 'system', content: instructions ?? '' } as const
  const entries =
    typeof input === 'string'
      ? [{ role: 'user', content: input } as const]
      : readEntries(input, target.takes, 'input')
  const said: ChatMessage[] = (instructions ?? null) === null ? [] : [system]
  const items = new ItemReader(exchange.holdfast)
  if (entries.filter((entry) => 'reference' in entry).length > REFERENCES_MAX) {
    throw invalid('input', `has more than ${REFERENCES_MAX} item references`)
  }
  for (const entry of entries) {
    const message = 'role' in entry ? entry : await referred(items, target, entry)
    if (message !== null) said.push(message)
  }
  return said
}

/** The message that an item reference stands for; null if the turn's session has it already. */
async function referred(
  items: ItemReader,
  target: TurnTarget,
  { reference, field }: ItemReference,
): Promise<ChatMessage | null> {
  const item = await items.read(reference)
  if (item === null) throw itemUnknown(reference, field)
  if (await target.remembers(sessionOfItem(reference) ?? '')) return null
  return { role: item.role, content: item.content }
}

async function respond(
  exchange: Exchange,
  { body, ...admitted }: AdmittedTurn & { readonly body: ResponseBody },
): Promise<void> {
  if (body.background === true && body.stream !== true) return sendNow(exchange, admitted, body)
  const record = await admitted.session.getTurn(admitted.turn)
  const facts = await describe(admitted, record, body)
  if (body.stream === true) {
    return streamAnswer(exchange, admitted, responseEventWriter(facts))
  }
  await sendAnswer(exchange, admitted, (answer) =>
    responseView(facts, answer.outcome.state, answer),
  )
}

async function describe(
  admitted: AdmittedTurn,
  { queuedAt, startedAt }: TurnRecord,
  body: Partial<ResponseBody>,
): Promise<ResponseFacts> {
  const model = body.model ?? (await admitted.session.state()).agent
  const created = Math.floor((queuedAt ?? startedAt ?? 0) / 1_000)
  return { admitted, created, model, body }
}

function named({ holdfast, params: [id = ''] }: Exchange): AdmittedTurn {
  const { session, turn } = readResponseId(id)
  return { session: holdfast.session(session), turn }
}

function sessionOfResponse(exchange: Exchange) {
  return visibleRef(named(exchange).session, exchange.operation)
}

/** The turn of a response that is there, and was not deleted. */
async function find(exchange: Exchange): Promise<AdmittedTurn> {
  const { session, turn } = named(exchange)
  await session.getTurn(turn)
  if (await isDeleted(session, turn)) throw responseUnknown(exchange.params[0] ?? '')
  return { session, turn }
}

async function getResponse(exchange: Exchange): Promise<void> {
  const { stream = false, starting_after: after } = STREAM_QUERY.read(exchange.search)
  const found = await find(exchange)
  if (!stream) return sendNow(exchange, found, {})
  const facts = await describe(found, await found.session.getTurn(found.turn), {})
  await streamAnswer(exchange, found, responseEventWriter(facts, after))
}

/** Sends the response as it is now: with the answer if that is over, and without if not. */
async function sendNow(
  exchange: Exchange,
  found: AdmittedTurn,
  body: Partial<ResponseBody>,
): Promise<void> {
  const record = await found.session.getTurn(found.turn)
  const answer = record.endedAt === null ? null : await wholeAnswer(found)
  const response = responseView(await describe(found, record, body), record.state, answer)
  exchange.reply(200, response, sessionHeaders(found))
}

/**
 * A log is not rewritten, so the response is left out of what this door reads from it. A session
 * that was made for responses alone is erased with the last of them.
 */
async function deleteResponse(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const { session, turn } = await find(exchange)
  if ((await session.getTurn(turn)).endedAt === null) {
    throw invalid('response_id', 'is the id of a response that is not over: cancel it first')
  }
  const { internal, closed } = await session.state()
  if (internal && (await isLastLeft(session, turn))) await session.erase()
  else if (closed === null) await noteResponseDeleted(session, turn)
  else throw invalid('response_id', 'is of a closed session, which can only be erased as a whole')
  exchange.reply(200, { id, object: 'response', deleted: true })
}

/** Whether all other responses of its session are deleted. */
async function isLastLeft(session: SessionHandle, turn: string): Promise<boolean> {
  const deleted = await deletedTurns(session, 0)
  for await (const event of eventsOf(session, 0)) {
    if ('turn' in event && event.turn !== turn && !deleted.has(event.turn)) return false
  }
  return true
}
