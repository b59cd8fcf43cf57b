/**
 * ACP connections over streamable HTTP. Each is known by an id, which only the token that it was
 * opened with may use; one whose client opens no stream is given up.
 */
import { HoldfastError } from '../core/index.ts'
import type { AcpConnection } from '../doors/acp/connection.ts'
import type { Exchange } from '../doors/exchange.ts'
import { INVALID_REQUEST, RpcError, type RpcMessage } from '../doors/json-rpc.ts'
import { reportRefusal } from '../doors/refusals.ts'
import { bearerToken } from './access.ts'
import { drainingError } from './forwarding/forwarder.ts'
import { HttpStreams } from './http-streams.ts'

export type HttpConnection = {
  readonly connection: AcpConnection
  readonly streams: HttpStreams
  readonly token: string | undefined
}

/** Makes a connection of streams; `exchange` is the request that opens it. */
export type Connect = (streams: HttpStreams, exchange: Exchange) => AcpConnection

const LEFT = 1000

export class AcpHttp {
  readonly #connect: Connect
  readonly #waitingMax: number
  readonly #connections = new Map<string, HttpConnection>()

  /** `waitingMax`: connections whose stream is not open. */
  constructor(connect: Connect, waitingMax: number) {
    this.#connect = connect
    this.#waitingMax = waitingMax
  }

  /** Throws unless the request names a connection of its caller. */
  find(exchange: Exchange): HttpConnection {
    const id = exchange.header('acp-connection-id')
    if (id === undefined) throw new HoldfastError('bad_request', 'Acp-Connection-Id is missing')
    const found = this.#connections.get(id)
    if (found !== undefined && found.token === bearerToken(exchange.request.headers)) return found
    const message = 'there is no such connection: initialize again'
    throw new HoldfastError('attachment_unknown', message)
  }

  /** Answers `initialize` with a new connection. */
  async open(
    exchange: Exchange,
    { message, text }: { readonly message: RpcMessage; readonly text: string },
  ): Promise<void> {
    if (message.type !== 'request' || message.method !== 'initialize' || message.id === null) {
      const id = message.type === 'request' ? message.id : null
      const data = { code: 'bad_request', retry: false }
      throw new RpcError(INVALID_REQUEST, 'initialize first, by a request with an id', data, id)
    }
    if (exchange.context.isDraining()) throw drainingError()
    exchange.isCommitted = true
    const { entropy, node } = exchange.context.holdfast.authority
    const id = `${entropy.id()}.${node}`
    const streams = this.#streams(exchange, id)
    const connection = this.#connect(streams, exchange)
    if (connection.isOver) throw new HoldfastError('unauthorized', 'the token is no longer good')
    const token = bearerToken(exchange.request.headers)
    this.#connections.set(id, { connection, streams, token })
    this.#boundWaiting()
    connection.accept(message, text)
    const answer = await streams.greeting
    const isOpen = !('error' in (JSON.parse(answer) as object))
    if (!isOpen) streams.cut()
    const headers = isOpen ? ['Acp-Connection-Id', id] : []
    exchange.send(isOpen ? 200 : 400, 'application/json', answer, headers)
  }

  #streams(exchange: Exchange, id: string): HttpStreams {
    const { authority } = exchange.context.holdfast
    const address = exchange.context.addressOf(exchange.request)
    return new HttpStreams({
      address,
      onSessionLost: (session) => this.#connections.get(id)?.connection.loseSession(session),
      onClose: (code) => {
        this.#connections.get(id)?.connection.closed(code)
        this.#connections.delete(id)
      },
      reportSlow: () => {
        const error = new HoldfastError('too_slow', 'the client does not read what it is sent')
        reportRefusal(authority.diagnose, error, { door: 'acp', address })
      },
    })
  }

  /** If too many wait for their stream, the one goes that has waited longest. */
  #boundWaiting(): void {
    if (this.#connections.size <= this.#waitingMax) return
    const all = [...this.#connections.values()]
    const waiting = all.filter(({ streams: { heardAt } }) => heardAt !== null)
    if (waiting.length > this.#waitingMax) waiting[0]?.streams.cut()
  }

  /** The client closes its connection. */
  leave(exchange: Exchange): void {
    this.find(exchange).streams.close(LEFT, 'closed')
  }
}
