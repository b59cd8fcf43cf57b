/**
 * Turns: by a session's id or by a key, answered when they are over, as they happen, or at once.
 *
 * I10: a caller that goes away leaves the queue; an admitted turn goes on (see `onDisconnect`).
 * I11: headers are sent after admission only, so a refusal is a status and never half a stream.
 */
import {
  isRequestId,
  type GivenInput,
  type TurnHandle,
  type TurnOptions,
  type SubmittedTurn,
} from '../../core/index.ts'
import { Type } from '../../schema/typebox.ts'
import {
  KeyTurnRequest,
  MoveRequest,
  readKeyTurnBody,
  readMoveBody,
  readTurnBody,
  TurnRequest,
  type TurnBody,
} from '../../wire/bodies.ts'
import { turnView } from '../../wire/views.ts'
import { streamFeed } from '../event-stream.ts'
import { CallerOptions, type Exchange } from '../exchange.ts'
import { decodeInput } from '../parts.ts'
import { json, jsonOrEvents, routes, sessionOfPath } from '../route.ts'
import { CancelledRequest, MovedTurn, TurnOfSession } from './schemas.ts'

const turnRoute = {
  operation: 'turn.run',
  takesParts: true,
  headers: [
    { name: 'Idempotency-Key', description: 'The same key and input join the same turn.' },
    {
      name: 'Prefer',
      description: 'respond-async: answer with 202 as soon as the turn is recorded.',
    },
  ],
  answers: {
    200: jsonOrEvents('The turn when it is over, or its events as they happen.', TurnOfSession),
    202: json('The turn is recorded; Location says where.', TurnOfSession),
  },
} as const

export const turnRoutes = routes({
  'POST /v1/sessions/:id/turns': {
    ...turnRoute,
    name: 'postSessionTurn',
    summary: 'Run a turn in a session',
    body: TurnRequest,
    refusals: [404, 406, 409, 410, 413, 415, 429],
    session: sessionOfPath,
    handle: async (exchange) => {
      const { session } = exchange
      await postTurn(exchange, readTurnBody(await exchange.json()), {
        turn: (input, options) => session.turn(input, options),
        submit: async (input, options) => {
          return { session: session.id, turn: await session.submit(input, options) }
        },
      })
    },
  },
  'POST /v1/keys/:key/turns': {
    ...turnRoute,
    name: 'postKeyTurn',
    summary: 'Run a turn in the session of a key, creating the session in the same step if need be',
    body: KeyTurnRequest,
    refusals: [406, 409, 413, 415, 429],
    session: ({ holdfast, params: [key = ''] }) => holdfast.refOf(key),
    handle: async (exchange) => {
      const [key = ''] = exchange.params
      const { holdfast } = exchange
      const { turn, session } = readKeyTurnBody(await exchange.json())
      const where = { ...session, key }
      await postTurn(exchange, turn, {
        turn: (input, options) => holdfast.turn(where, input, options),
        submit: (input, options) => holdfast.submit(where, input, options),
      })
    },
  },
  'GET /v1/sessions/:id/turns/:turn': {
    name: 'getTurn',
    summary: 'A turn as it is now',
    operation: 'session.read',
    answers: { 200: json('The turn.', TurnOfSession) },
    refusals: [404, 410],
    handle: async (exchange) => {
      const [id = '', turn = ''] = exchange.params
      exchange.reply(200, turnView(id, await exchange.session.getTurn(turn)))
    },
  },
  'POST /v1/sessions/:id/turns/:turn/move': {
    name: 'moveTurn',
    summary: 'Move a turn that waits among the turns of its principal that wait',
    operation: 'turn.move',
    body: MoveRequest,
    answers: { 200: json('What waits for its turn now, in order.', MovedTurn) },
    refusals: [404, 409, 410],
    session: sessionOfPath,
    handle: async (exchange) => {
      const [id = '', turn = ''] = exchange.params
      const { before } = readMoveBody(await exchange.json())
      await exchange.session.moveTurn(turn, before)
      const { queue } = await exchange.session.overview()
      exchange.reply(200, { session: id, queued: queue })
    },
  },
  'DELETE /v1/sessions/:id/turns/:turn': {
    name: 'cancelTurn',
    summary: 'Cancel a turn that waits or runs, or a request that waits to be admitted',
    operation: 'turn.cancel',
    answers: {
      200: json(
        'The turn, which is over, or the request, of which nothing has happened.',
        Type.Union([TurnOfSession, CancelledRequest]),
      ),
    },
    refusals: [404, 410],
    session: sessionOfPath,
    handle: async (exchange) => {
      const [session = '', id = ''] = exchange.params
      if (!isRequestId(id)) {
        return exchange.reply(200, turnView(session, await exchange.session.cancelTurn(id)))
      }
      await exchange.session.cancelRequest(id)
      exchange.reply(200, { session, request: { id, state: 'cancelled' } })
    },
  },
})

/** Where a turn goes: one session, or the one that has the key. */
type Target = {
  turn(input: GivenInput, options: TurnOptions): TurnHandle
  submit(input: GivenInput, options: TurnOptions): Promise<{ session: string; turn: SubmittedTurn }>
}

async function postTurn(exchange: Exchange, body: TurnBody, target: Target): Promise<void> {
  const { wantsEvents } = exchange
  const idempotencyKey = exchange.header('idempotency-key')
  const options = new CallerOptions(exchange, { ...body, idempotencyKey })
  if (!wantsEvents && prefersAsync(exchange)) {
    const { session, turn } = await target.submit(decodeInput(body.input), options)
    exchange.isCommitted = true
    const location = turnPath(exchange, session, turn.id)
    const headers = ['Location', location, 'Preference-Applied', 'respond-async']
    const view = { ...turnView(session, turn), ...steeredView(body, turn) }
    return exchange.reply(202, view, headers)
  }
  const turn = target.turn(decodeInput(body.input), options)
  const { live, turn: id, isSteered } = await turn.admission
  exchange.isCommitted = true
  // Its images and files are stored: a long answer does not keep them in memory.
  body.input = ''
  exchange.forgetBody()
  if (!wantsEvents) {
    const view = { ...turnView(live.id, await turn), ...steeredView(body, { isSteered }) }
    return exchange.reply(200, view)
  }
  const headers = ['Content-Location', turnPath(exchange, live.id, id)]
  await streamFeed(exchange, turn.feed(exchange.signal), { headers })
}

/** A caller that asked for it learns whether the running turn has taken its message. */
function steeredView({ busy }: TurnBody, { isSteered }: { readonly isSteered: boolean }) {
  return busy === 'steer' ? { steered: isSteered } : {}
}

function prefersAsync(exchange: Exchange): boolean {
  const prefer = exchange.header('prefer')
  return prefer !== undefined && /(^|[,; ])respond-async($|[,; ])/i.test(prefer)
}

function turnPath(exchange: Exchange, session: string, turn: string): string {
  return `${exchange.locationOf(session)}/turns/${turn}`
}
