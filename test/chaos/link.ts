/** A TCP way that can be cut: by resetting what goes over it, swallowing it, or delaying it. */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

/** `late`: what is sent there arrives when the way is healed, also from those who have gone. */
export type CutMode = 'reset' | 'silence' | 'late'

export class Link {
  readonly port: number
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #cut: CutMode | null = null
  /** What arrives late, in order. */
  #held: (() => void)[] = []

  private constructor(server: Server, to: number) {
    this.#server = server
    this.port = (server.address() as AddressInfo).port
    server.on('connection', (near) => this.#accept(near, to))
  }

  static async to(port: number): Promise<Link> {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Link(server, port)
  }

  #accept(near: Socket, to: number): void {
    if (this.#cut === 'reset') return void near.destroy()
    const far = connect(to, '127.0.0.1')
    this.#carry(near, far)
    this.#carry(far, near)
  }

  #carry(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    from.on('data', (bytes) => {
      if (this.#cut === 'late') this.#held.push(() => to.write(bytes))
      else if (this.#cut === null) to.write(bytes)
    })
    from.on('error', () => undefined)
    from.on('close', () => {
      this.#sockets.delete(from)
      if (this.#cut === 'late') this.#held.push(() => to.end())
      else to.destroy()
    })
  }

  cut(mode: CutMode): void {
    this.#cut = mode
    if (mode === 'reset') this.#destroyAll()
  }

  /** What was silenced has lost bytes: it cannot go on. */
  heal(): void {
    if (this.#cut === 'silence') this.#destroyAll()
    this.#cut = null
    for (const deliver of this.#held.splice(0)) deliver()
  }

  #destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    this.#cut = 'reset'
    this.#destroyAll()
    this.#server.close()
    await once(this.#server, 'close')
  }
}
