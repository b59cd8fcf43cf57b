/** A real server with a real Chromium behind it, and a site for its pages to visit. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { BrowserSpec } from '../../src/browsers/index.ts'
import type { Holdfast } from '../../src/core/index.ts'
import { openHoldfast, type OpenOptions } from '../../src/open.ts'
import { startServer, type HoldfastServer, type ServerOptions } from '../../src/server/server.ts'
import { openUnderTest, startUnderTest } from './nodes-under-test.ts'
import { storeUnderTest } from './store-under-test.ts'

export const CHROMIUM: BrowserSpec = { program: 'chromium' }

export type CdpServerOptions = Partial<OpenOptions> &
  Pick<ServerOptions, 'browsers' | 'browserLimits' | 'cdpLimits' | 'tokens' | 'recordings'>

export class CdpServer {
  readonly holdfast: Holdfast
  readonly server: HoldfastServer

  constructor(parts: { holdfast: Holdfast; server: HoldfastServer }) {
    this.holdfast = parts.holdfast
    this.server = parts.server
  }

  get url(): string {
    return `${this.server.url}/cdp/chromium`
  }

  get socketUrl(): string {
    return this.url.replace('http:', 'ws:')
  }

  close(): Promise<void> {
    return this.server.close({ closeHoldfast: true })
  }
}

export async function serveCdp(options: CdpServerOptions = {}): Promise<CdpServer> {
  const { browsers = { chromium: CHROMIUM }, cdpLimits = {}, browserLimits = {}, ...rest } = options
  const store = storeUnderTest('memory:')
  const holdfast = await openUnderTest(openHoldfast, { store, ...options })
  const server = await startUnderTest(startServer, {
    holdfast,
    port: 0,
    browsers,
    browserLimits,
    cdpLimits,
    ...(rest.tokens === undefined ? {} : { tokens: rest.tokens }),
    ...(rest.recordings === undefined ? {} : { recordings: rest.recordings }),
  })
  return new CdpServer({ holdfast, server })
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
