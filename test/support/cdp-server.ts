/** A real server with a real Chromium behind it, and a site for its pages to visit. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Holdfast } from 'holdfast'
import type { BrowserSpec, HoldfastServer } from 'holdfast/server'
import { serve, type TestServer, type TestServerOptions } from './server.ts'

export const CHROMIUM: BrowserSpec = { program: 'chromium' }

export class CdpServer {
  readonly #server: TestServer

  constructor(server: TestServer) {
    this.#server = server
  }

  get holdfast(): Holdfast {
    return this.#server.holdfast
  }

  get server(): HoldfastServer {
    return this.#server.server
  }

  get url(): string {
    return `${this.#server.url}/cdp/chromium`
  }

  get socketUrl(): string {
    return this.url.replace('http:', 'ws:')
  }

  close(): Promise<void> {
    return this.#server.close()
  }
}

export async function serveCdp(options: TestServerOptions = {}): Promise<CdpServer> {
  return new CdpServer(await serve({ browsers: { chromium: CHROMIUM }, ...options }))
}

/** Pages by path: what they say is their path, unless given here. */
export class Site {
  readonly #server: Server
  readonly pages: Record<string, string> = {}

  constructor() {
    this.#server = createServer((request, response) => {
      const [path = '/'] = (request.url ?? '/').split('?')
      const isScript = path.endsWith('.js')
      const body = this.pages[path] ?? `<title>${path}</title><p>${path}</p>`
      const type = isScript ? 'text/javascript' : 'text/html'
      const download = path.endsWith('.bin') ? { 'content-disposition': 'attachment' } : {}
      response.writeHead(200, { 'content-type': type, ...download }).end(body)
    })
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return this
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve))
    this.#server.closeAllConnections()
    await closed
  }
}
