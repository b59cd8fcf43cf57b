/** `/v1/responses`: make one, look at one, cancel one. */
import { Type } from '@sinclair/typebox'
import type { TurnRecord } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { query } from '../query.ts'
import { answerParts, wholeAnswer } from './answer.ts'
import { sessionHeaders } from './chat.ts'
import { afterAdmission, type Entry } from './entry.ts'
import { turnFailure } from './errors.ts'
import { newMessage, readInput, wholeConversation } from './messages.ts'
import { OwnPlace } from './own-place.ts'
import type { Admitted } from './places.ts'
import { responseEvents } from './response-events.ts'
import { responseObject, type ResponseFacts } from './response.ts'
import { readResponseBody, type ResponseBody } from './schemas.ts'
import { streamTexts } from './stream.ts'
import { readResponseId, responseId, responsePlace } from './targets.ts'

export async function createResponse(exchange: Exchange, entry: Entry): Promise<void> {
  const body = readResponseBody(await exchange.json())
  const said = readInput(body.input, body.instructions ?? undefined)
  const isBackground = body.background === true
  const place = await responsePlace(exchange, body)
  const read = place instanceof OwnPlace ? wholeConversation : newMessage
  const input = read(said, 'input')
  const admitted = await entry.admit(exchange, { place, input, body, isBackground })
  await afterAdmission(() => sendNew(exchange, admitted, body))
}

async function sendNew(exchange: Exchange, admitted: Admitted, body: ResponseBody): Promise<void> {
  const { session, turn } = admitted
  const record = await session.getTurn(turn)
  const facts = await describe(admitted, record, body)
  if (body.stream === true) {
    const events = responseEvents(facts, answerParts(admitted, exchange.signal))
    return streamTexts(exchange, events, sessionHeaders(admitted))
  }
  if (body.background === true) return sendResponse(exchange, admitted, facts)
  const answer = await wholeAnswer(admitted)
  const failure = turnFailure(answer.outcome)
  if (failure !== null) return exchange.respond(failure)
  const response = responseObject(facts, answer.outcome.state, answer)
  exchange.reply(200, response, sessionHeaders(admitted))
}

async function describe(
  { session, turn }: Admitted,
  { queuedAt, startedAt }: TurnRecord,
  body: Partial<ResponseBody>,
): Promise<ResponseFacts> {
  const model = body.model ?? (await session.state()).agent
  const created = Math.floor((queuedAt ?? startedAt ?? 0) / 1_000)
  return { id: responseId(session.id, turn), created, model, body }
}

export const RESPONSE_QUERY = query({
  include: Type.String({ description: 'Accepted, without effect.' }),
})

export async function getResponse(exchange: Exchange): Promise<void> {
  await sendFound(exchange, find(exchange))
}

/** Answered when the turn is over; one that was over is told as it ended. */
export async function cancelResponse(exchange: Exchange): Promise<void> {
  const found = find(exchange)
  await found.session.cancelTurn(found.turn)
  await sendFound(exchange, found)
}

function find({ holdfast, params: [id = ''] }: Exchange): Admitted {
  const { session, turn } = readResponseId(id)
  return { session: holdfast.session(session), turn }
}

async function sendFound(exchange: Exchange, found: Admitted): Promise<void> {
  const record = await found.session.getTurn(found.turn)
  await sendResponse(exchange, found, await describe(found, record, {}))
}

/** As it is now: with the answer if that is over, and without if not. */
async function sendResponse(
  exchange: Exchange,
  found: Admitted,
  facts: ResponseFacts,
): Promise<void> {
  const { state, endedAt } = await found.session.getTurn(found.turn)
  const answer = endedAt === null ? null : await wholeAnswer(found)
  exchange.reply(200, responseObject(facts, state, answer), sessionHeaders(found))
}
