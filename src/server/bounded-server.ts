/** An HTTP server within the bounds that hold for every port. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Diagnose } from '../core/index.ts'
import { plainAddress } from './addresses.ts'
import type { Connections } from './connections.ts'
import { SERVER_LIMITS } from './limits.ts'
import { Pipelines, type Serve } from './pipelines.ts'
import { Unparsed } from './unparsed.ts'

/** Takes a request to upgrade its connection. */
export type OnUpgrade = (request: IncomingMessage, stream: Duplex, head: Buffer) => void

export type ServerParts = {
  readonly serve: Serve
  readonly upgrade: OnUpgrade
  readonly diagnose: Diagnose
  readonly connections: Connections
}

export function newServer({ serve, upgrade, diagnose, connections }: ServerParts): Server {
  const limits = SERVER_LIMITS
  /** The response that was begun last on each connection. */
  const begun = new WeakMap<Duplex, ServerResponse>()
  const begin: Serve = (request, response) => {
    begun.set(request.socket, response)
    serve(request, response)
  }
  const pipelines = new Pipelines(begin, ({ remoteAddress = '' }) => {
    const message = 'a connection was closed: too many requests waited on it'
    diagnose('client_refused', message, {
      reason: 'pipelining',
      address: plainAddress(remoteAddress),
    })
  })
  const take: Serve = (request, response) => {
    const { socket } = request
    connections.used(socket)
    response.once('close', () => connections.used(socket))
    pipelines.take(request, response)
  }
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
  // An expectation that is not known may be ignored; Node would answer at once, out of turn.
  server.on('checkExpectation', take)
  server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    // Its answer and that of the request before it would be mixed.
    if (pipelines.isBusy(stream)) return void stream.destroy()
    connections.upgraded(stream)
    upgrade(request, stream, head)
  })
  const unparsed = new Unparsed(diagnose)
  server.on('clientError', (error: Error, stream: Duplex) =>
    unparsed.refuse(error, stream, pipelines.isBusy(stream) ? begun.get(stream) : undefined),
  )
  server.on('connection', (socket) => connections.take(socket, (one) => pipelines.isBusy(one)))
  // Those that were just refused still read their answer.
  server.maxConnections = connections.max + limits.descriptorsKept / 4
  server.on('drop', (dropped) => {
    const message = 'a connection was dropped: there are as many as there may be'
    const address = plainAddress(dropped?.remoteAddress ?? '')
    diagnose('client_refused', message, { reason: 'connections', address })
  })
  server.on('error', ({ message }) => {
    if (server.listening) diagnose('accept_failed', `a connection could not be taken: ${message}`)
  })
  return server
}
