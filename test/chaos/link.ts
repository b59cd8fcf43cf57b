/** A TCP way that can be cut: by resetting what goes over it, or by swallowing it. */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

export type CutMode = 'reset' | 'silence'

export class Link {
  readonly port: number
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #cut: CutMode | null = null

  private constructor(server: Server, to: number) {
    this.#server = server
    this.port = (server.address() as AddressInfo).port
    server.on('connection', (near) => this.#carry(near, to))
  }

  static async to(port: number): Promise<Link> {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Link(server, port)
  }

  #carry(near: Socket, to: number): void {
    if (this.#cut === 'reset') return void near.destroy()
    const far = connect(to, '127.0.0.1')
    for (const [from, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(from)
      from.on('data', (bytes) => {
        if (this.#cut === null) other.write(bytes)
      })
      from.on('error', () => undefined)
      from.on('close', () => {
        this.#sockets.delete(from)
        other.destroy()
      })
    }
  }

  cut(mode: CutMode): void {
    this.#cut = mode
    if (mode === 'reset') this.#destroyAll()
  }

  /** What was silenced has lost bytes: it cannot go on. */
  heal(): void {
    if (this.#cut === 'silence') this.#destroyAll()
    this.#cut = null
  }

  #destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    this.#destroyAll()
    this.#server.close()
    await once(this.#server, 'close')
  }
}
