/** A TCP proxy that loses replies: it cuts a connection where the server's answer would begin. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

export class CuttingProxy {
  /** How many of the next replies are lost. */
  lose = 0
  /** Whether another one is lost, besides. */
  isLost = (): boolean => false
  /** How many were. */
  lost = 0
  /** How many times a client sent something. */
  requests = 0
  /** Called for every reply that is lost. */
  onLost: () => void = () => undefined
  readonly #server: Server
  readonly #open = new Set<Socket>()

  constructor(port: number) {
    this.#server = createServer((client) => {
      const upstream = connect(port, '127.0.0.1')
      for (const socket of [client, upstream]) {
        this.#open.add(socket)
        socket.on('error', () => undefined)
        socket.on('close', () => {
          this.#open.delete(socket)
          client.destroy()
          upstream.destroy()
        })
      }
      client.on('data', (data) => {
        upstream.write(data)
        this.requests += 1
      })
      upstream.on('data', (data) => {
        if (this.lose === 0 && !this.isLost()) return void client.write(data)
        this.lose = Math.max(0, this.lose - 1)
        this.lost += 1
        client.destroy()
        this.onLost()
      })
    })
  }

  /** Cuts whatever is open now. */
  cut(): void {
    for (const socket of this.#open) socket.destroy()
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async close(): Promise<void> {
    this.cut()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
