/** A server for tests of the connect door, with every socket that a test opens to it. */
import { builtinAgents, type OpenOptions } from 'holdfast'
import type { ServerOptions } from 'holdfast/server'
import { Puppet } from './puppet.ts'
import { startParts, TestServer, type CloseOptions } from './server.ts'
import { dial, WireClient, type WireOptions } from './wire-client.ts'

export class ConnectServer extends TestServer {
  readonly puppet: Puppet
  readonly #clients: WireClient[] = []

  constructor(puppet: Puppet, parts: Awaited<ReturnType<typeof startParts>>) {
    super(parts)
    this.puppet = puppet
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

  override async close(options: CloseOptions = {}): Promise<void> {
    this.hangUp()
    await super.close(options)
  }
}

export type Attached = {
  readonly client: WireClient
  readonly welcome: Readonly<Record<string, any>>
}

export async function serveConnect(
  options: Partial<OpenOptions> & Pick<ServerOptions, 'connectLimits'> = {},
): Promise<ConnectServer> {
  const puppet = new Puppet()
  const agents = { ...builtinAgents, puppet: puppet.agent, ...options.agents }
  return new ConnectServer(puppet, await startParts({ ...options, agents }))
}
