/** `/v1/responses`: make one, look at one, cancel one. */
import { Type } from '../../schema/typebox.ts'
import type { SessionRef, TurnRecord } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { query } from '../route.ts'
import { answerParts, wholeAnswer } from './answer.ts'
import { sessionHeaders } from './chat.ts'
import { turnFailure } from './errors.ts'
import { newMessage, readInput, wholeConversation } from './messages.ts'
import { OwnTarget } from './own-target.ts'
import { responseEvents } from './response-events.ts'
import { responseObject, type ResponseFacts } from './response.ts'
import { readResponseId, responseId, responseTarget } from './request-targets.ts'
import { readResponseBody, type ResponseBody } from './schemas.ts'
import { streamTexts } from './stream.ts'
import type { OpenAiTurn, TurnEntry } from './turn-entry.ts'
import type { AdmittedTurn } from './turn-targets.ts'

export async function readResponseRequest(exchange: Exchange): Promise<OpenAiTurn<ResponseBody>> {
  const body = readResponseBody(await exchange.json())
  const said = readInput(body.input, body.instructions ?? undefined)
  const target = await responseTarget(exchange, body)
  const isOwn = target instanceof OwnTarget
  const input = isOwn ? wholeConversation(said, 'input') : newMessage(said, 'input')
  return { target, input, body, isBackground: body.background === true }
}

export async function createResponse(
  exchange: Exchange,
  entry: TurnEntry<ResponseBody>,
): Promise<void> {
  const { body, ...admitted } = await entry.admit(exchange)
  const record = await admitted.session.getTurn(admitted.turn)
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
  { session, turn }: AdmittedTurn,
  { queuedAt, startedAt }: TurnRecord,
  body: Partial<ResponseBody>,
): Promise<ResponseFacts> {
  const model = body.model ?? (await session.state()).agent
  const created = Math.floor((queuedAt ?? startedAt ?? 0) / 1_000)
  return { id: responseId(session.id, turn), created, model, body }
}

export function sessionOfResponse({ params: [id = ''] }: Exchange): SessionRef {
  return { id: readResponseId(id).session }
}

export const RESPONSE_QUERY = query({
  include: Type.String({ description: 'Accepted, without effect.' }),
})

export async function getResponse(exchange: Exchange): Promise<void> {
  await sendFound(exchange, find(exchange))
}

/** Answered when the turn is over; one that was over is shown as it ended. */
export async function cancelResponse(exchange: Exchange): Promise<void> {
  const found = find(exchange)
  await found.session.cancelTurn(found.turn)
  await sendFound(exchange, found)
}

function find({ holdfast, params: [id = ''] }: Exchange): AdmittedTurn {
  const { session, turn } = readResponseId(id)
  return { session: holdfast.session(session), turn }
}

async function sendFound(exchange: Exchange, found: AdmittedTurn): Promise<void> {
  const record = await found.session.getTurn(found.turn)
  await sendResponse(exchange, found, await describe(found, record, {}))
}

/** As it is now: with the answer if that is over, and without if not. */
async function sendResponse(
  exchange: Exchange,
  found: AdmittedTurn,
  facts: ResponseFacts,
): Promise<void> {
  const { state, endedAt } = await found.session.getTurn(found.turn)
  const answer = endedAt === null ? null : await wholeAnswer(found)
  exchange.reply(200, responseObject(facts, state, answer), sessionHeaders(found))
}
