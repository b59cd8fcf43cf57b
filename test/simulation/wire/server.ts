/** A node with its connect door open. */
import type { Connection } from '../../../src/doors/connect/connection.ts'
import type { Hub } from '../../../src/doors/connect/hub.ts'
import type { ConnectLimits } from '../../../src/doors/connect/hub.ts'
import type { Gatekeeper, Socket } from '../../../src/doors/connect/socket.ts'
import type { Modules } from '../modules.ts'
import { Node, type NodeOptions } from '../node.ts'

/** Bounds so tight that every path is taken. */
export const CONNECT_LIMITS: Partial<ConnectLimits> = {
  helloMs: 1_500,
  pingMs: 1_000,
  deadMs: 2_600,
  probeMs: 900,
  slowMs: 2_000,
  watchMs: 250,
}

/** The token that pages show where one is needed. */
export const TOKEN = 'of-this-world'

export class Server extends Node {
  readonly hub: Hub
  /** Called when it has stopped listening. */
  whenClosed: () => void = () => undefined
  readonly #modules: Modules
  #isListening = true

  constructor(
    options: NodeOptions & {
      readonly connectLimits: Partial<ConnectLimits>
      /** Nobody is let in without a token. */
      readonly isGuarded: boolean
    },
  ) {
    super(options)
    const { modules, history, connectLimits, isGuarded } = options
    this.#modules = modules
    const gate: Gatekeeper = {
      prepare: () => null,
      grant: (token) =>
        !isGuarded || token === TOKEN ? ['watch', 'talk', 'answer', 'admin'] : null,
      callerOf: (token) => {
        const holder = { kind: 'token', issuer: 'holdfast', id: 'the-token' } as const
        return { by: token === TOKEN ? holder : this.holdfast.by, access: null }
      },
      hold: () => () => undefined,
      failed: (address) => void history.record({ type: 'gate.failed', address }),
    }
    this.hub = new modules.Hub({ holdfast: this.holdfast, gate, limits: connectLimits })
  }

  /** One that is about to stop still listens, and says so. */
  get isListening(): boolean {
    return this.process.state !== 'dead' && this.ready && this.#isListening
  }

  accept(socket: Socket): Connection {
    const { Connection: Accepted, connectService } = this.#modules
    return new Accepted(this.hub, socket, connectService)
  }

  protected override async close(drainMs: number): Promise<void> {
    await super.close(drainMs)
    this.#isListening = false
    this.hub.close()
    this.whenClosed()
  }
}
