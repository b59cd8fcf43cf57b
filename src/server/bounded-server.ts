/** An HTTP server within the bounds that hold for every port. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { SERVER_LIMITS } from './limits.ts'

export function newServer(
  serve: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  const limits = SERVER_LIMITS
  const server = createServer(
    {
      maxHeaderSize: limits.headerBytesMax + limits.forwardedBytes,
      headersTimeout: limits.headersMs,
      requestTimeout: limits.requestMs,
      keepAliveTimeout: limits.keepAliveMs,
      connectionsCheckingInterval: limits.headersMs / 2,
    },
    serve,
  )
  // Node would drop the headers beyond a count: `checkHead` refuses them instead.
  server.maxHeadersCount = 0
  server.maxConnections = limits.connectionsMax
  return server
}
