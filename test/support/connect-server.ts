/** A real server for tests of the connect door, and all the sockets that a test opens to it. */
import { openHoldfast, type OpenOptions } from '../../src/open.ts'
import type { Holdfast } from '../../src/core/index.ts'
import { builtinAgents } from '../../src/open.ts'
import { startServer, type HoldfastServer, type ServerOptions } from '../../src/server/server.ts'
import { openUnderTest, startUnderTest } from './nodes-under-test.ts'
import { Puppet } from './puppet.ts'
import { storeUnderTest } from './store-under-test.ts'
import { dial, WireClient, type WireOptions } from './wire-client.ts'

export class ConnectServer {
  readonly puppet: Puppet
  readonly holdfast: Holdfast
  readonly server: HoldfastServer
  readonly #clients: WireClient[] = []

  constructor(parts: { puppet: Puppet; holdfast: Holdfast; server: HoldfastServer }) {
    this.puppet = parts.puppet
    this.holdfast = parts.holdfast
    this.server = parts.server
  }

  get url(): string {
    return this.server.url
  }

  /** Opens a socket and says hello. */
  dial(hello: object, options: WireOptions = {}): WireClient {
    return this.#keep(dial(this.url, hello, options))
  }

  /** Opens a socket and says nothing. */
  connect(options: WireOptions = {}): WireClient {
    return this.#keep(new WireClient(this.url, options))
  }

  /** Attaches and waits for the welcome. */
  async attach(hello: object, options: WireOptions = {}): Promise<Attached> {
    const client = this.dial(hello, options)
    const welcome = await client.frame('welcome')
    return { client, welcome }
  }

  #keep(client: WireClient): WireClient {
    this.#clients.push(client)
    return client
  }

  /** Cuts what a test has left open. */
  hangUp(): void {
    for (const { socket } of this.#clients.splice(0)) socket.terminate()
  }

  async close(): Promise<void> {
    this.hangUp()
    await this.server.close({ closeHoldfast: true })
  }
}

export type Attached = {
  readonly client: WireClient
  readonly welcome: Readonly<Record<string, any>>
}

export async function serveConnect(
  options: Partial<OpenOptions> & Pick<ServerOptions, 'connectLimits'> = {},
): Promise<ConnectServer> {
  const { connectLimits, ...open } = options
  const puppet = new Puppet()
  const agents = { ...builtinAgents, puppet: puppet.agent, ...open.agents }
  const holdfast = await openUnderTest(openHoldfast, {
    store: storeUnderTest('memory:'),
    ...open,
    agents,
  })
  const limits = connectLimits === undefined ? {} : { connectLimits }
  const server = await startUnderTest(startServer, { holdfast, port: 0, ...limits })
  return new ConnectServer({ puppet, holdfast, server })
}
