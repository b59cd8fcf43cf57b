/**
 * Turns: by a session's id or by a key, answered when they are over, as they happen, or at once.
 *
 * I10: a caller that goes away leaves the queue; an admitted turn goes on (see `onDisconnect`).
 * I11: headers are sent after admission only, so a refusal is a status and never half a stream.
 */
import {
  isRequestId,
  type Input,
  type TurnHandle,
  type TurnOptions,
  type TurnRecord,
} from '../../core/index.ts'
import { readKeyTurnBody, readTurnBody, type TurnBody } from '../../wire/bodies.ts'
import { EVENT_STREAM_TYPE } from '../../wire/server-sent-events.ts'
import { turnView } from '../../wire/views.ts'
import { streamFeed } from '../event-stream.ts'
import { negotiate, type Exchange } from '../exchange.ts'
import { sessionLocation } from './sessions.ts'

/** Where a turn goes: one session, or whichever has the key. */
type Target = {
  readonly turn: (input: Input, options: TurnOptions) => TurnHandle
  readonly submit: (
    input: Input,
    options: TurnOptions,
  ) => Promise<{ readonly session: string; readonly turn: TurnRecord }>
}

export async function postSessionTurn(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const session = exchange.holdfast.session(id)
  const body = readTurnBody(await exchange.json())
  await postTurn(exchange, body, {
    turn: (input, options) => session.turn(input, options),
    submit: async (input, options) => ({
      session: id,
      turn: await session.submit(input, options),
    }),
  })
}

export async function postKeyTurn(exchange: Exchange): Promise<void> {
  const [key = ''] = exchange.params
  const { holdfast } = exchange
  const { turn, session } = readKeyTurnBody(await exchange.json())
  const options = { ...session, key }
  await postTurn(exchange, turn, {
    turn: (input, turnOptions) => holdfast.turn(options, input, turnOptions),
    submit: (input, turnOptions) => holdfast.submit(options, input, turnOptions),
  })
}

async function postTurn(exchange: Exchange, body: TurnBody, target: Target): Promise<void> {
  const type = negotiate(exchange.header('accept'), ['application/json', EVENT_STREAM_TYPE])
  const { input, busy, waitMs, onDisconnect } = body
  const options: TurnOptions = {
    busy,
    waitMs,
    onDisconnect,
    idempotencyKey: exchange.header('idempotency-key'),
    // Read only by a turn that has to wait, or is to be cancelled when its caller goes.
    get signal() {
      return exchange.signal
    },
  }
  if (type === 'application/json' && prefersAsync(exchange)) {
    const submitted = await target.submit(input, options)
    exchange.isCommitted = true
    return replyQueued(exchange, submitted)
  }
  const turn = target.turn(input, options)
  if (type === EVENT_STREAM_TYPE) return streamTurn(exchange, turn)
  const { live } = await turn.admission
  exchange.isCommitted = true
  exchange.reply(200, turnView(live.id, await turn))
}

function prefersAsync(exchange: Exchange): boolean {
  const prefer = exchange.header('prefer')
  return prefer !== undefined && /(^|[,; ])respond-async($|[,; ])/i.test(prefer)
}

function replyQueued(
  exchange: Exchange,
  { session, turn }: { readonly session: string; readonly turn: TurnRecord },
): void {
  exchange.reply(202, turnView(session, turn), [
    'Location',
    turnPath(exchange, session, turn.id),
    'Preference-Applied',
    'respond-async',
  ])
}

async function streamTurn(exchange: Exchange, turn: TurnHandle): Promise<void> {
  const { live, turn: id } = await turn.admission
  exchange.isCommitted = true
  const headers = ['Content-Location', turnPath(exchange, live.id, id)]
  await streamFeed(exchange, turn.feed(exchange.signal), { headers })
}

function turnPath(exchange: Exchange, session: string, turn: string): string {
  return `${sessionLocation(exchange, session)}/turns/${turn}`
}

export async function getTurn(exchange: Exchange): Promise<void> {
  const [id = '', turn = ''] = exchange.params
  exchange.reply(200, turnView(id, await exchange.holdfast.session(id).getTurn(turn)))
}

/** A turn, or a request that waits and is not admitted. */
export async function cancelTurn(exchange: Exchange): Promise<void> {
  const [id = '', turn = ''] = exchange.params
  const session = exchange.holdfast.session(id)
  if (!isRequestId(turn)) return exchange.reply(200, turnView(id, await session.cancelTurn(turn)))
  await session.cancelRequest(turn)
  exchange.reply(200, { session: id, request: { id: turn, state: 'cancelled' } })
}
