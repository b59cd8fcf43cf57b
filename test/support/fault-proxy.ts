/** A TCP proxy that cuts connections after a random number of bytes, in either direction. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

export type FaultOptions = {
  /** Where the server listens. */
  readonly port: number
  /** How many bytes the next connection may carry; asked for each. */
  readonly bytes: () => number
}

export class FaultProxy {
  /** How many connections were cut. */
  cuts = 0
  /** While true, nothing is cut. */
  isGentle = false
  readonly #server: Server
  readonly #open = new Set<Socket>()

  constructor({ port, bytes }: FaultOptions) {
    this.#server = createServer((client) => {
      const upstream = connect(port, '127.0.0.1')
      let left = bytes()
      const carry = (from: Socket, to: Socket): void => {
        this.#open.add(from)
        from.on('data', (data: Buffer) => {
          if (this.isGentle || data.length <= left) {
            left -= data.length
            to.write(data)
            return
          }
          const rest = data.subarray(0, Math.max(0, left))
          left = -1
          this.cuts += 1
          from.pause()
          // The last bytes arrive; what they were the beginning of does not.
          to.write(rest, () => this.#cut(client, upstream))
        })
        from.on('error', () => undefined)
        from.on('close', () => {
          this.#open.delete(from)
          to.destroy()
        })
      }
      carry(client, upstream)
      carry(upstream, client)
    })
  }

  #cut(...ends: Socket[]): void {
    for (const end of ends) end.destroy()
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `ws://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1/connect`
  }

  async close(): Promise<void> {
    this.#cut(...this.#open)
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
