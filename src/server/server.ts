/** Where requests come from: an HTTP server of its own, or a part of another program's. */
import { once } from 'node:events'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { invalid, type Holdfast } from '../core/index.ts'
import type { CdpCounts } from '../doors/cdp/door.ts'
import { urlHost } from './access.ts'
import {
  RequestHandler,
  type CloseOptions,
  type HandlerOptions,
  type ServerReconfiguration,
} from './handler.ts'
import { newHttpServer } from './http-server.ts'
import { descriptorLimit, SERVER_LIMITS } from './limits.ts'

export type ServerOptions = HandlerOptions & {
  readonly holdfast: Holdfast
  /** 0, the default: any that is free. */
  readonly port?: number
  /** 127.0.0.1 by default; without tokens only a loopback address. */
  readonly host?: string
}

/** Listens, and resolves when requests can come. */
export async function startServer(options: ServerOptions): Promise<HoldfastServer> {
  const { host = '127.0.0.1', port = 0 } = options
  const server = new HoldfastServer(options, host)
  try {
    await server.listen(port)
    return server
  } catch (error) {
    await server.close()
    throw error
  }
}

export class HoldfastServer {
  readonly holdfast: Holdfast
  readonly #handler: RequestHandler
  readonly #server: Server
  readonly #boundHost: string

  constructor(options: ServerOptions, boundHost: string) {
    const { holdfast } = options
    this.holdfast = holdfast
    this.#boundHost = boundHost
    this.#handler = new RequestHandler(holdfast, options, boundHost, '')
    const { serve, upgrade, access, connections } = this.#handler
    const { diagnose } = holdfast.authority
    this.#server = newHttpServer({ door: 'http', serve, upgrade, access, diagnose, connections })
  }

  /**
   * Checks a new configuration, and throws if it cannot be used. The returned function puts it in
   * force for what comes next.
   */
  prepare(options: ServerReconfiguration): () => void {
    return this.#handler.prepare(options)
  }

  /** Serves one browser on a port of its own too, just where Chrome would have it. */
  async listenCdp(browser: string, port: number): Promise<number> {
    const { cdp } = this.#handler
    if (cdp === null) throw new Error('this server has no browsers')
    return cdp.listen(browser, this.#boundHost, port)
  }

  /** Opens the port for Copilot SDKs, which needs tokens. Resolves with its number. */
  async listenCopilot(port: number): Promise<number> {
    return this.#handler.copilot.listen(this.#boundHost, port)
  }

  /** The connections of Copilot SDKs, and the sessions that they are attached to. */
  get copilotCounts(): { readonly connections: number; readonly attached: number } {
    return this.#handler.copilot.door.counts
  }

  /** What the browsers hold now; null where there are none. */
  async browserCounts(): Promise<CdpCounts | null> {
    return this.#handler.cdp?.door.counts() ?? null
  }

  get port(): number {
    return (this.#server.address() as AddressInfo | null)?.port ?? 0
  }

  get url(): string {
    return `http://${urlHost(this.#boundHost)}:${this.port}`
  }

  async listen(port: number): Promise<void> {
    const { backlog, connectionsMax } = SERVER_LIMITS
    await once(this.#server.listen({ port, host: this.#boundHost, backlog }), 'listening')
    this.#handler.start()
    const { about, agents, diagnose } = this.holdfast.authority
    const { max } = this.#handler.connections
    if (max < connectionsMax) {
      const descriptors = descriptorLimit()
      const message = `the system allows ${descriptors} open files: at most ${max} connections`
      diagnose('descriptors_low', `${message} (ulimit -n)`, { descriptors, connections: max })
    }
    diagnose('listening', 'listening', { url: this.url, ...about, agents: agents.join(', ') })
  }

  /**
   * Lets running turns end for `drainMs`, then closes what the server opened: its ports,
   * connections and browsers. The Holdfast behind it stays open; turns that still run go on.
   */
  close(options: CloseOptions = {}): Promise<void> {
    return this.#handler.close(options, this.#server)
  }
}

/**
 * Holdfast below a path of another program's HTTP server: its API, its sockets and the inspector.
 * The program keeps the server itself: listening, TLS, the limits of connections and headers, and
 * every path outside `basePath`.
 */
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
  const handler = new RequestHandler(holdfast, options, 'localhost', basePath)
  handler.start()
  const isBelow = ({ url = '' }: IncomingMessage): boolean => url.startsWith(`${basePath}/`)
  return {
    request: (request, response, next) => {
      if (isBelow(request)) return handler.serve(request, response)
      // The page finds its modules and the API by paths relative to its own.
      const isPage = basePath !== '' && request.url === basePath
      if (isPage) response.writeHead(308, { location: `${basePath}/` }).end()
      else if (next !== undefined) next()
      else response.writeHead(404).end()
    },
    upgrade: (request, stream, head) => {
      if (!isBelow(request)) return false
      handler.upgrade(request, stream, head)
      return true
    },
    close: (closeOptions = {}) => handler.close(closeOptions),
  }
}
