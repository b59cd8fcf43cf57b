/** Streamable HTTP for ACP: what `/acp` answers to requests that are no upgrade to a WebSocket. */
import type { HoldfastError } from '../core/index.ts'
import { errorBody } from '../doors/acp/errors.ts'
import { MESSAGE_BYTES_MAX } from '../doors/acp/connection.ts'
import { streamTexts } from '../doors/event-stream.ts'
import { negotiate, type Exchange } from '../doors/exchange.ts'
import {
  INVALID_REQUEST,
  readRpcMessage,
  RpcError,
  rpcErrorText,
  type RpcMessage,
} from '../doors/json-rpc.ts'
import { bodyTooLarge } from '../doors/request-body.ts'
import { json, routes, type Route } from '../doors/route.ts'
import { EVENT_STREAM_TYPE } from '../wire/server-sent-events.ts'
import type { AcpHttp } from './acp-http.ts'

const CONNECTION_ID = {
  name: 'Acp-Connection-Id',
  description: 'The connection, as the answer to `initialize` has it.',
}
const SESSION_ID = {
  name: 'Acp-Session-Id',
  description: 'The session that it is about: that of `params`, or of the stream.',
}
const JSON_TYPE = 'application/json'
/** Of an answer without a body. */
const NO_TYPE = 'text/plain'
const Message = { type: 'object', description: 'A JSON-RPC 2.0 message.' }
/** Sent at once, so that the client knows that the stream is open. */
const OPENED = ': opened\n\n'
const closedBy = ({ code }: HoldfastError): string => `: closed ${code}\n\n`

/** `acp`: asked when a request comes. */
export function acpRoutes(acp: () => AcpHttp): readonly Route[] {
  const common = { operation: 'session.read', query: null, node: nodeOf } as const
  return routes({
    'POST /acp': {
      ...common,
      name: 'postAcpMessage',
      summary: 'A message of an ACP client; `initialize` opens a connection',
      headers: [CONNECTION_ID, SESSION_ID],
      body: Message,
      takesParts: true,
      answers: {
        200: json('The answer to `initialize`; its header `Acp-Connection-Id`.', Message),
        202: { description: 'It was taken; what it is answered comes in a stream.' },
      },
      refusals: [404, 413, 415],
      handle: (exchange) => post(acp(), exchange),
    },
    'GET /acp': {
      ...common,
      name: 'streamAcpMessages',
      summary: 'The messages to an ACP client: of a connection, or of one session on it',
      headers: [CONNECTION_ID, SESSION_ID],
      answers: {
        200: {
          description: 'One message in each event.',
          content: { [EVENT_STREAM_TYPE]: { type: 'string' } },
        },
      },
      refusals: [404, 406, 409],
      handle: (exchange) => {
        negotiate(exchange.header('accept'), [EVENT_STREAM_TYPE])
        const { streams } = acp().find(exchange)
        const texts = streams.read(exchange.header('acp-session-id') ?? null, exchange.signal)
        return streamTexts(exchange, texts, { first: OPENED, broken: closedBy })
      },
    },
    'DELETE /acp': {
      ...common,
      name: 'closeAcpConnection',
      summary: 'Closes the connection of an ACP client',
      headers: [CONNECTION_ID],
      answers: { 202: { description: 'It is closed.' } },
      refusals: [404],
      handle: (exchange) => {
        acp().leave(exchange)
        exchange.send(202, NO_TYPE, '')
      },
    },
  })
}

/** Where the connection is, as its id says. */
function nodeOf(exchange: Exchange): string | null {
  return /^[^.]+\.(.+)$/.exec(exchange.header('acp-connection-id') ?? '')?.[1] ?? null
}

async function post(acp: AcpHttp, exchange: Exchange): Promise<void> {
  const text = await exchange.jsonText()
  if (text.length > MESSAGE_BYTES_MAX) throw bodyTooLarge(MESSAGE_BYTES_MAX)
  try {
    const message = readRpcMessage(text)
    assertSession(exchange, message)
    if (exchange.header('acp-connection-id') === undefined) {
      return await acp.open(exchange, { message, text })
    }
    const { connection, streams } = acp.find(exchange)
    exchange.isCommitted = true
    streams.took(message)
    connection.accept(message, text)
    exchange.send(202, NO_TYPE, '')
  } catch (thrown) {
    if (!(thrown instanceof RpcError)) throw thrown
    exchange.send(400, JSON_TYPE, rpcErrorText(thrown.id, errorBody(thrown)))
  }
}

/** The header and the message name the same session. */
function assertSession(exchange: Exchange, message: RpcMessage): void {
  const header = exchange.header('acp-session-id')
  if (header === undefined || message.type === 'response') return
  const { sessionId = header } = (message.params ?? {}) as { readonly sessionId?: unknown }
  if (sessionId === header) return
  const id = message.type === 'request' ? message.id : null
  const data = { code: 'bad_request', retry: false }
  throw new RpcError(INVALID_REQUEST, 'Acp-Session-Id names another session', data, id)
}
