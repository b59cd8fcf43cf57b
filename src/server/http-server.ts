/**
 * An HTTP server within the limits that hold for every port: the number of connections, one request
 * of a connection at a time, and a refusal for bytes that are no request.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { HoldfastError, type Diagnose } from '../core/index.ts'
import { readEarly } from '../doors/request-body.ts'
import { problemRefusal, reportRefusal } from '../doors/refusals.ts'
import { headTooLarge, type AccessPolicy } from './access.ts'
import { SERVER_LIMITS } from './limits.ts'
import { plainAddress } from './rates.ts'

export type Serve = (request: IncomingMessage, response: ServerResponse) => void

export type OnUpgrade = (request: IncomingMessage, stream: Duplex, head: Buffer) => void

export function newHttpServer(options: {
  readonly door: 'http' | 'cdp'
  readonly serve: Serve
  readonly upgrade: OnUpgrade
  readonly diagnose: Diagnose
  readonly connections: Connections
  readonly access: Pick<AccessPolicy, 'connected'>
}): Server {
  const { door, serve, upgrade, diagnose, connections, access } = options
  const limits = SERVER_LIMITS
  const take: Serve = (request, response) => connections.serve(request, response, serve)
  const server = createServer(
    {
      maxHeaderSize: limits.headerBytesMax + limits.forwardedBytes,
      headersTimeout: limits.headersMs,
      requestTimeout: limits.requestMs,
      keepAliveTimeout: limits.keepAliveMs,
      connectionsCheckingInterval: limits.headersMs / 2,
    },
    take,
  )
  // Node would drop the headers beyond a count: `checkHead` refuses them instead.
  server.maxHeadersCount = 0
  // An unknown expectation may be ignored; Node would answer at once, out of order.
  server.on('checkExpectation', take)
  server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    // Its answer and that of the request before it would be mixed.
    const use = connections.useOf(stream)
    if (use?.answering !== undefined) return void stream.destroy()
    if (use !== undefined) use.isUpgraded = true
    upgrade(request, stream, head)
  })
  const refuseUnparsed = parserRefuser(diagnose)
  server.on('clientError', (error: Error, stream: Duplex) =>
    refuseUnparsed(error, stream, connections.useOf(stream)?.answering),
  )
  server.on('connection', (socket) => {
    if (!connections.take(socket) || access.connected(socket)) return
    const error = refuseConnection(socket, 'there are too many connections from this address')
    reportRefusal(diagnose, error, { door, address: plainAddress(socket.remoteAddress ?? '') })
  })
  // Refused connections count too, until they have read their answer.
  server.maxConnections = connections.max + limits.descriptorsKept / 4
  server.on('drop', (dropped = {}) => {
    const message = 'a connection was dropped: there are as many as there may be'
    reportClient(diagnose, message, 'connections', dropped)
  })
  server.on('error', ({ message }) => {
    if (server.listening) diagnose('accept_failed', `a connection could not be taken: ${message}`)
  })
  return server
}

type PipelinedRequest = {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly body: ReturnType<typeof readEarly>
  bytes: number
}

type ConnectionUse = {
  /** The response that is under way. */
  answering: ServerResponse | undefined
  readonly waiting: PipelinedRequest[]
  wasServed: boolean
  /** It has a protocol of its own: it is never idle. */
  isUpgraded: boolean
}

/** What a request that waits takes in memory, besides its text. */
const REQUEST_BYTES = 4_096

/**
 * The connections of a server, over all its ports.
 *
 * 1. There are no more than there are descriptors for. When there is no room for one more, the
 *    connection is closed that has been idle longest, those that never sent a request first. So
 *    clients which hold connections without using them keep no other client out, and do not cost
 *    one that is served its connection. If all are in use, the new one is refused with an answer.
 * 2. One request of a connection is answered at a time. A client may send further requests before
 *    it has its answer (HTTP pipelining), and Node begins each as soon as it is parsed. Here they
 *    wait, within a bound for the connection and one for all together; a connection that goes
 *    beyond either is closed, and none of its waiting requests has begun.
 * 3. Reading goes on meanwhile, bodies included: a socket that is not read does not tell that its
 *    client has gone (I10).
 */
export class Connections {
  readonly max: number
  readonly #diagnose: Diagnose
  /** The least recently used first. */
  readonly #open = new Map<Duplex, ConnectionUse>()
  /** What waits on all connections together. */
  #bytes = 0

  constructor(max: number, diagnose: Diagnose) {
    this.max = max
    this.#diagnose = diagnose
  }

  /** Counts a new connection; false if it was refused. */
  take(socket: Socket): boolean {
    const isCounted = this.#admit(socket, false)
    if (isCounted) return true
    const message = 'a connection was refused: there are too many'
    reportClient(this.#diagnose, message, 'too_many', socket)
    refuseConnection(socket, 'there are too many connections')
    return false
  }

  /** The same for one that speaks another protocol: false if there is no room for it. */
  takeOther(socket: Socket): boolean {
    return this.#admit(socket, true)
  }

  #admit(socket: Socket, isUpgraded: boolean): boolean {
    const hasRoom = this.#open.size < this.max || this.#closeIdle(false) || this.#closeIdle(true)
    if (!hasRoom) return false
    const use = { answering: undefined, waiting: [], wasServed: false, isUpgraded }
    this.#open.set(socket, use)
    socket.once('close', () => this.#open.delete(socket))
    return true
  }

  #closeIdle(wasServed: boolean): boolean {
    for (const [socket, use] of this.#open) {
      const isIdle = use.answering === undefined && !use.isUpgraded
      if (!isIdle || use.wasServed !== wasServed) continue
      this.#open.delete(socket)
      socket.destroy()
      const message = 'an idle connection was closed, for there are too many'
      reportClient(this.#diagnose, message, 'too_many', socket)
      return true
    }
    return false
  }

  useOf(socket: Duplex): ConnectionUse | undefined {
    return this.#open.get(socket)
  }

  /** Begins a request, or lets it wait for the one that is being answered on its connection. */
  serve(request: IncomingMessage, response: ServerResponse, begin: Serve): void {
    const use = this.useOf(request.socket)
    // The parser goes on with what it has, also when the connection is closed.
    if (use === undefined || !request.socket.writable) return
    if (use.answering === undefined) return this.#begin(use, request, response, begin)
    const body = readEarly(request, (bytes) => this.#count(use, next, bytes))
    const next: PipelinedRequest = { request, response, body, bytes: 0 }
    use.waiting.push(next)
    const { url = '', rawHeaders } = request
    const headBytes = rawHeaders.reduce((sum, text) => sum + text.length, url.length)
    this.#count(use, next, REQUEST_BYTES + headBytes)
  }

  #begin(
    use: ConnectionUse,
    request: IncomingMessage,
    response: ServerResponse,
    begin: Serve,
  ): void {
    const { socket } = request
    use.answering = response
    use.wasServed = true
    this.#used(socket, use)
    response.once('close', () => this.#next(socket, use, begin))
    begin(request, response)
  }

  #next(socket: Socket, use: ConnectionUse, begin: Serve): void {
    this.#used(socket, use)
    // The answer was the last one of its connection, or the client is gone.
    if (!socket.writable) return this.#drop(use)
    const next = use.waiting.shift()
    use.answering = undefined
    if (next === undefined) return
    const { request, response, body, bytes } = next
    this.#bytes -= bytes
    // That was for the reader of the answer before.
    socket.setTimeout(0)
    body?.begin()
    response.once('close', () => body?.discard())
    this.#begin(use, request, response, begin)
  }

  #used(socket: Socket, use: ConnectionUse): void {
    if (this.#open.delete(socket)) this.#open.set(socket, use)
  }

  #count(use: ConnectionUse, next: PipelinedRequest, bytes: number): void {
    if (!use.waiting.includes(next)) return
    next.bytes += bytes
    this.#bytes += bytes
    const { pipelinedBytesMax, pipelinedTotalBytesMax } = SERVER_LIMITS
    const own = use.waiting.reduce((sum, one) => sum + one.bytes, 0)
    if (own <= pipelinedBytesMax && this.#bytes <= pipelinedTotalBytesMax) return
    this.#drop(use)
    const { socket } = next.request
    socket.destroy()
    const message = 'a connection was closed: too many requests waited on it'
    reportClient(this.#diagnose, message, 'pipelining', socket)
  }

  #drop({ waiting }: ConnectionUse): void {
    for (const { bytes } of waiting.splice(0)) this.#bytes -= bytes
  }
}

/**
 * What Node's HTTP parser rejects never becomes a request: headers over their limit or late, bytes
 * that are no HTTP. It is refused by a problem document, as a request is. `answering`: the response
 * that is under way on the connection.
 */
export function parserRefuser(
  diagnose: Diagnose,
): (thrown: Error, socket: Duplex, answering: ServerResponse | undefined) => void {
  /** The parser fails again at everything that still comes. */
  const refused = new WeakSet<Duplex>()
  return (thrown, socket, answering) => {
    if (refused.has(socket)) return
    const { code = '' } = thrown as NodeJS.ErrnoException
    // What comes after the last request of a connection: it ends with the answer to that one.
    if (code === 'HPE_CLOSED_CONNECTION' && answering !== undefined) return
    const error = parserRefusal(code)
    if (error === null) return void socket.destroy()
    refused.add(socket)
    // A client that left in the middle, or never sent anything, was not refused.
    if (code !== 'HPE_INVALID_EOF_STATE' && (socket as Socket).bytesRead > 0) {
      reportClient(diagnose, error.message, error.code, socket)
    }
    // It would be taken for a part of the answer before it, or for the answer itself.
    const isMixed = answering !== undefined && (answering.headersSent || answering.req.complete)
    if (isMixed || !socket.writable) socket.destroy()
    else answerAndClose(socket, error)
  }
}

/** Null if the connection broke: nothing is refused then. */
function parserRefusal(code: string): HoldfastError | null {
  if (code === 'HPE_HEADER_OVERFLOW') return headTooLarge()
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    return new HoldfastError('request_timeout', 'the request did not arrive in time')
  }
  if (!code.startsWith('HPE_')) return null
  return new HoldfastError('bad_request', 'the request cannot be read as HTTP')
}

function reportClient(diagnose: Diagnose, message: string, reason: string, peer: object): void {
  const address = plainAddress((peer as Partial<Socket>).remoteAddress ?? '')
  diagnose('client_refused', message, { reason, address })
}

/** Answers before a request has come, and closes. */
function refuseConnection(socket: Socket, message: string): HoldfastError {
  const error = new HoldfastError('too_many', message, { retryAfterMs: 1_000 })
  answerAndClose(socket, error)
  return error
}

function answerAndClose(socket: Duplex, error: HoldfastError): void {
  // It is refused and closed: that it broke before changes nothing.
  socket.on('error', () => undefined)
  refuseSocket(socket, error)
  const cut = setTimeout(() => socket.destroy(), SERVER_LIMITS.farewellMs)
  socket.once('close', () => clearTimeout(cut))
}

/** Answers on a socket that has no response object: before a request, or instead of an upgrade. */
export function refuseSocket(
  stream: Duplex,
  error: HoldfastError,
  headers: readonly string[] = [],
): void {
  const { status, type, body, headers: own } = problemRefusal(error)
  const text = JSON.stringify(body)
  const length = String(Buffer.byteLength(text))
  const all = ['Content-Type', type, 'Content-Length', length, 'Connection', 'close', ...own]
  stream.end(headText(status, body.title, [...all, ...headers]) + text)
}

/** The head of an answer as it is sent; `headers` are names and values in turn. */
export function headText(status: number, title: string, headers: readonly string[]): string {
  const lines = [`HTTP/1.1 ${status} ${title}`]
  for (let index = 0; index < headers.length; index += 2) {
    lines.push(`${headers[index]}: ${headers[index + 1]}`)
  }
  return `${lines.join('\r\n')}\r\n\r\n`
}
