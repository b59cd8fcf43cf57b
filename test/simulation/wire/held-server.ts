/** A node whose sockets lead to a browser: one that takes messages, and sends some of its own. */
import { LOCAL, type ReconnectPolicy, type SessionHandle } from '../../../src/core/index.ts'
import type { CallerAddress } from '../../../src/doors/cdp/address.ts'
import type { CdpDoor, EnteringClient, HeldClient } from '../../../src/doors/cdp/door.ts'
import type { AttachedClient } from '../../../src/doors/cdp/attached-client.ts'
import { CDP_LIMITS } from '../../../src/doors/cdp/limits.ts'
import type { Hub } from '../../../src/doors/connect/hub.ts'
import type { Socket } from '../../../src/doors/connect/socket.ts'
import { Node, type NodeOptions } from '../node.ts'
import type { Listener } from './network.ts'
import { CONNECT_LIMITS } from './server.ts'

export type HeldServerOptions = NodeOptions & {
  readonly heldBytesMax: number
  /** What a program asks for, by its name. */
  readonly kindOf: (client: string) => { reconnect: ReconnectPolicy; graceMs: number }
}

/** What a program has of the browser. */
type Served = {
  readonly attachment: string
  taken: number
  emitted: number
  attached: AttachedClient
}

export class HeldServer extends Node implements Listener {
  readonly hub: Hub
  readonly #options: HeldServerOptions
  readonly #served = new Map<string, Served>()
  readonly #held = new Map<string, HeldClient>()
  whenClosed: () => void = () => undefined
  #isListening = true

  constructor(options: HeldServerOptions) {
    super(options)
    this.#options = options
    this.hub = new options.modules.Hub({ holdfast: this.holdfast, limits: CONNECT_LIMITS })
  }

  get isListening(): boolean {
    return this.process.state !== 'dead' && this.ready && this.#isListening
  }

  get served(): readonly Served[] {
    return [...this.#served.values()]
  }

  accept(socket: Socket): ReturnType<Listener['accept']> {
    const { modules, kindOf } = this.#options
    const { reconnect, graceMs } = kindOf(socket.address)
    const address = {
      browser: 'a',
      reconnect,
      graceMs,
      by: LOCAL,
      access: null,
    } as unknown as CallerAddress
    const { hub } = this
    const caller = { address, target: null, token: undefined }
    const service = modules.heldService({ door: this.#door(), ...caller })
    const connection = new modules.Connection(hub, socket, service)
    return {
      receive: (message) => connection.receive(Buffer.from(message)),
      closed: () => connection.closed(),
    }
  }

  /** The part of the door that a connection uses. */
  #door(): CdpDoor {
    const { heldBytesMax } = this.#options
    const limits = { ...CDP_LIMITS, absentMs: 1_000, heldBytesMax }
    const door = {
      holdfast: this.holdfast,
      limits,
      admit: (address: CallerAddress, entering: EnteringClient) => this.#admit(address, entering),
      heldClient: (attachment: string) => this.#held.get(attachment) ?? null,
    }
    return door as unknown as CdpDoor
  }

  async #admit(
    { reconnect, graceMs }: CallerAddress,
    { carrier }: EnteringClient,
  ): Promise<AttachedClient> {
    const options = { ...(reconnect && { reconnect }), ...(graceMs && { graceMs }) }
    const session = await this.holdfast.resolve(options)
    const attachment = await session.attach({ role: 'driver', resumable: true })
    const attached = this.#client(session, carrier, attachment)
    void this.#follow(session, attached)
    return attached
  }

  #client(...place: ConstructorParameters<typeof AttachedClient>): AttachedClient {
    const { history, modules } = this.#options
    const server = this
    const { id: attachment } = place[2]
    const client = new (class extends modules.AttachedClient {
      readonly target = null

      receive(data: Buffer): void {
        if (server.process.state === 'dead') return
        const { client: from, n } = JSON.parse(data.toString()) as { client: string; n: number }
        served.taken += 1
        history.record({ type: 'held.taken', attachment, client: from, n })
        if (n % 3 === 0) server.emit(served)
      }

      actForAbsent(): void {}
      endSessions(): void {}
      warn(): void {}

      protected remove(): void {
        server.#held.delete(attachment)
        server.#served.delete(attachment)
      }
    })(...place)
    const served: Served = { attachment, taken: 0, emitted: 0, attached: client }
    this.#served.set(attachment, served)
    this.#held.set(attachment, client as unknown as HeldClient)
    return client
  }

  /** The browser says something to one of its clients. */
  emit(served: Served): void {
    served.emitted += 1
    const { attachment, emitted: n, attached } = served
    this.#options.history.record({ type: 'held.emitted', attachment, n })
    attached.carrier.deliver(Buffer.from(JSON.stringify({ attachment, n })))
  }

  /** As the door does: an attachment that ended is gone, and so is a session that closed. */
  async #follow(session: SessionHandle, attached: AttachedClient): Promise<void> {
    const { HoldfastError } = this.#options.modules.core
    let error = new HoldfastError('session_closed', 'the session is closed')
    try {
      for await (const event of session.events()) {
        const isOver = event.type === 'attachment.ended' && event.reason !== 'session_closed'
        if (isOver) attached.end(new HoldfastError('attachment_ended', event.reason))
      }
    } catch (thrown) {
      if (thrown instanceof HoldfastError) error = thrown
    }
    attached.end(error)
  }

  protected override async close(drainMs: number): Promise<void> {
    await super.close(drainMs)
    this.#isListening = false
    const { HoldfastError } = this.#options.modules.core
    const error = new HoldfastError('draining', 'the server is about to stop')
    for (const { attached } of this.served) attached.end(error)
    this.hub.close()
    this.whenClosed()
  }
}
