/**
 * HTTP pipelining: a client may send further requests before it has its answer. Node begins each as
 * soon as it is parsed, so that one connection could have any number of them under way. Here one
 * request of a connection is answered at a time.
 *
 * 1. The others wait, within a bound for the connection and one for all together; a connection that
 *    goes beyond either is closed, and none of its waiting requests has begun.
 * 2. Reading goes on meanwhile, bodies included: a socket that is not read does not tell that its
 *    client has gone (I10).
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { readEarly, type EarlyBody } from '../doors/body.ts'
import { SERVER_LIMITS } from './limits.ts'

export type Serve = (request: IncomingMessage, response: ServerResponse) => void

type PipelinedRequest = {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly body: EarlyBody | null
  bytes: number
}

/** What a request that waits takes in memory, besides its text. */
const REQUEST_BYTES = 4_096

export class Pipelines {
  readonly #serve: Serve
  readonly #closed: (socket: Socket) => void
  /** Connections on which a request is being answered. */
  readonly #busy = new WeakMap<Duplex, PipelinedRequest[]>()
  /** What waits on all connections together. */
  #bytes = 0

  /** `closed` is told of a connection that was closed because too much waited on it. */
  constructor(serve: Serve, closed: (socket: Socket) => void) {
    this.#serve = serve
    this.#closed = closed
  }

  /** Whether a request of this connection is being answered. */
  isBusy(socket: Duplex): boolean {
    return this.#busy.has(socket)
  }

  take(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request
    // The parser goes on with what it has, also when the connection is closed.
    if (!socket.writable) return
    const waiting = this.#busy.get(socket)
    if (waiting === undefined) return this.#begin(request, response, [])
    this.#wait(waiting, request, response)
  }

  #begin(request: IncomingMessage, response: ServerResponse, waiting: PipelinedRequest[]): void {
    const { socket } = request
    this.#busy.set(socket, waiting)
    response.once('close', () => this.#next(socket, waiting))
    this.#serve(request, response)
  }

  #next(socket: Socket, waiting: PipelinedRequest[]): void {
    // The answer was the last one of its connection, or nobody is there to read another.
    if (!socket.writable) return this.#drop(waiting)
    const next = waiting.shift()
    if (next === undefined) return void this.#busy.delete(socket)
    const { request, response, body, bytes } = next
    this.#bytes -= bytes
    // That was for the reader of the answer before.
    socket.setTimeout(0)
    body?.begin()
    response.once('close', () => body?.discard())
    this.#begin(request, response, waiting)
  }

  #wait(waiting: PipelinedRequest[], request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request
    const body = readEarly(request, (bytes) => this.#count(socket, waiting, next, bytes))
    const next: PipelinedRequest = { request, response, body, bytes: 0 }
    waiting.push(next)
    this.#count(socket, waiting, next, REQUEST_BYTES + headBytes(request))
  }

  #count(socket: Socket, waiting: PipelinedRequest[], next: PipelinedRequest, bytes: number): void {
    if (!waiting.includes(next)) return
    next.bytes += bytes
    this.#bytes += bytes
    const { pipelinedBytesMax, pipelinedTotalBytesMax } = SERVER_LIMITS
    const own = waiting.reduce((sum, one) => sum + one.bytes, 0)
    if (own <= pipelinedBytesMax && this.#bytes <= pipelinedTotalBytesMax) return
    this.#drop(waiting)
    socket.destroy()
    this.#closed(socket)
  }

  #drop(waiting: PipelinedRequest[]): void {
    for (const { bytes } of waiting.splice(0)) this.#bytes -= bytes
  }
}

function headBytes({ url = '', rawHeaders }: IncomingMessage): number {
  return rawHeaders.reduce((sum, text) => sum + text.length, url.length)
}
