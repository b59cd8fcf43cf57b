/**
 * Holdfast below a path of another program's HTTP server: its API, its sockets and the inspector.
 * The program keeps the server itself: listening, TLS, the limits of connections and headers, and
 * every path outside `basePath`.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { invalid, type Holdfast } from '../core/index.ts'
import { RequestHandler, type CloseOptions, type HandlerOptions } from './handler.ts'

export type MountOptions = HandlerOptions & {
  /** What comes before every path, as `/holdfast`. Empty, the default: all paths are Holdfast's. */
  readonly basePath?: string
}

export type HoldfastHandler = {
  /**
   * Answers a request below `basePath`. Any other goes to `next`, as Express and Connect call it;
   * without `next` it is answered with 404.
   */
  readonly request: (request: IncomingMessage, response: ServerResponse, next?: () => void) => void
  /** Takes a socket below `basePath`; false, and nothing is done, for any other. */
  readonly upgrade: (request: IncomingMessage, stream: Duplex, head: Buffer) => boolean
  /**
   * Lets running turns end for `drainMs`, then ends all streams and sockets. The server stays open,
   * and refuses new turns; so does the Holdfast, unless `closeHoldfast` is set.
   */
  readonly close: (options?: CloseOptions) => Promise<void>
}

/** Without tokens it answers only what comes to a loopback address, under a name of loopback. */
export function createHandler(holdfast: Holdfast, options: MountOptions = {}): HoldfastHandler {
  const { basePath = '' } = options
  if (basePath !== '' && !/^(\/[\w.~-]+)+$/.test(basePath)) {
    throw invalid('basePath', 'must be like /holdfast, without a slash at its end')
  }
  const handler = new RequestHandler(holdfast, options, { host: 'localhost', basePath })
  handler.start()
  let closing: Promise<void> | null = null
  return {
    request: (request, response, next) => {
      const { url = '' } = request
      if (isBelow(basePath, url)) return handler.serve(request, response)
      // The page finds its modules and the API by paths relative to its own.
      if (basePath !== '' && url === basePath) return redirect(response, `${basePath}/`)
      if (next !== undefined) return next()
      response.writeHead(404).end()
    },
    upgrade: (request, stream, head) => {
      if (!isBelow(basePath, request.url ?? '')) return false
      handler.upgrade(request, stream, head)
      return true
    },
    close: (closeOptions = {}) => {
      closing ??= close(handler, closeOptions)
      return closing
    },
  }
}

function isBelow(basePath: string, url: string): boolean {
  return url.startsWith(`${basePath}/`)
}

function redirect(response: ServerResponse, location: string): void {
  response.writeHead(308, { location }).end()
}

async function close(handler: RequestHandler, options: CloseOptions): Promise<void> {
  try {
    await handler.drain(options)
  } finally {
    await handler.disconnect()
    await handler.finishForwarding(options.drainMs ?? 0)
  }
}
