/** Nodes of one cluster inside this process: quicker than real ones, where none has to die. */
import { randomBytes } from 'node:crypto'
import { openHoldfast, type Holdfast, type OpenOptions } from 'holdfast'
import { startServer, type HoldfastServer, type ServerOptions } from 'holdfast/server'
import { freePort } from './server-process.ts'

const secret = randomBytes(32).toString('hex')

export type NodeOptions = Partial<Omit<ServerOptions, 'holdfast'>> & Pick<OpenOptions, 'agents'>

export class ClusterNode {
  readonly holdfast: Holdfast
  readonly server: HoldfastServer

  private constructor(holdfast: Holdfast, server: HoldfastServer) {
    this.holdfast = holdfast
    this.server = server
  }

  static async start(
    store: string,
    { agents, ...options }: NodeOptions = {},
  ): Promise<ClusterNode> {
    const port = await freePort()
    const holdfast = await openHoldfast({
      store,
      advertise: `http://127.0.0.1:${port}`,
      ...(agents === undefined ? {} : { agents }),
    })
    return new ClusterNode(
      holdfast,
      await startServer({ holdfast, port, cluster: { secret }, ...options }),
    )
  }

  get url(): string {
    return this.server.url
  }

  async call(method: string, path: string, { body, headers = {} }: Call = {}): Promise<Answer> {
    const json: Record<string, string> =
      body === undefined ? {} : { 'content-type': 'application/json' }
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { ...json, ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    const isJson = /json\b/.test(response.headers.get('content-type') ?? '')
    return { status: response.status, text, body: isJson ? JSON.parse(text) : null }
  }

  close(): Promise<void> {
    return this.server.close({ closeHoldfast: true })
  }
}

export type Call = {
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

export type Answer = { readonly status: number; readonly text: string; readonly body: any }
