/**
 * The HTTP server.
 *
 * It stops in order: it takes no new turns while running ones may end, then it ends every stream,
 * then it cuts the remaining connections. It closes what it opened, and the Holdfast behind it only
 * with `closeHoldfast`.
 */
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Diagnose, Holdfast } from '../core/index.ts'
import type { CdpCounts } from '../doors/cdp/overview.ts'
import { checkAccessOptions } from './access.ts'
import { urlHost } from './addresses.ts'
import { descriptorLimit } from './descriptors.ts'
import { RequestHandler, type CloseOptions, type HandlerOptions } from './handler.ts'
import { Connections, newHttpServer } from './http-server.ts'
import { SERVER_LIMITS } from './limits.ts'

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
  checkAccessOptions(host, options)
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
  readonly #connections: Connections
  readonly #diagnose: Diagnose
  readonly #boundHost: string
  #closing: Promise<void> | null = null

  constructor(options: ServerOptions, boundHost: string) {
    this.holdfast = options.holdfast
    this.#boundHost = boundHost
    this.#diagnose = this.holdfast.authority.diagnose
    const handler = new RequestHandler(this.holdfast, options, { host: boundHost, basePath: '' })
    this.#handler = handler
    this.#connections = new Connections(handler.connectionsMax, this.#diagnose)
    this.#server = newHttpServer({
      door: 'http',
      serve: (request, response) => handler.serve(request, response),
      upgrade: handler.upgrade,
      access: handler.access,
      diagnose: this.#diagnose,
      connections: this.#connections,
    })
  }

  /** Serves one browser on a port of its own too, just where Chrome would have it. */
  async listenCdp(browser: string, port: number): Promise<number> {
    const { cdp } = this.#handler
    if (cdp === null) throw new Error('this server has no browsers')
    return cdp.listen(browser, { host: this.#boundHost, port, connections: this.#connections })
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
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      const { backlog } = SERVER_LIMITS
      this.#server.listen({ port, host: this.#boundHost, backlog }, () => {
        this.#server.off('error', reject)
        resolve()
      })
    })
    this.#handler.start()
    this.#reportLimit()
    const { about, agents } = this.holdfast.authority
    this.#diagnose('listening', 'listening', { url: this.url, ...about, agents: agents.join(', ') })
  }

  #reportLimit(): void {
    const { max } = this.#connections
    if (max >= SERVER_LIMITS.connectionsMax) return
    const descriptors = descriptorLimit()
    const message = `the system allows ${descriptors} open files: at most ${max} connections`
    this.#diagnose('descriptors_low', `${message} (ulimit -n)`, { descriptors, connections: max })
  }

  /**
   * Lets running turns end for `drainMs`, then closes what the server opened: its ports,
   * connections and browsers. The Holdfast behind it stays open; turns that still run go on.
   */
  close(options: CloseOptions = {}): Promise<void> {
    this.#closing ??= this.#close(options)
    return this.#closing
  }

  async #close(options: CloseOptions): Promise<void> {
    const wasListening = this.#server.listening
    try {
      // Still listening: new requests are refused as draining, and may go to another node.
      await this.#handler.drain(options)
    } finally {
      await this.#disconnect(options.drainMs ?? 0)
    }
    if (wasListening) this.#diagnose('stopped', 'the server has stopped')
  }

  async #disconnect(drainMs: number): Promise<void> {
    await this.#handler.disconnect()
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.#server.closeIdleConnections()
    await this.#handler.finishForwarding(drainMs)
    const cut = setTimeout(() => this.#server.closeAllConnections(), SERVER_LIMITS.farewellMs)
    await closed
    clearTimeout(cut)
  }
}
