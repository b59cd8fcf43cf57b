/** A client of the protocol that checks nothing and may send anything. */
import { WebSocket } from 'ws'

export type Message = Readonly<Record<string, any>>

export class RawCdp {
  readonly socket: WebSocket
  /** Everything that came, in order. */
  readonly messages: Message[] = []
  readonly closed: Promise<number>
  #id = 0
  #watchers: (() => void)[] = []

  constructor(url: string, options: { readonly headers?: Record<string, string> } = {}) {
    this.socket = new WebSocket(url, options)
    this.socket.on('message', (data: Buffer) => {
      this.messages.push(JSON.parse(data.toString()) as Message)
      for (const look of [...this.#watchers]) look()
    })
    this.closed = new Promise((resolve) => this.socket.on('close', resolve))
    this.socket.on('error', () => undefined)
  }

  static async open(url: string): Promise<RawCdp> {
    const client = new RawCdp(url)
    await new Promise<void>((resolve, reject) => {
      client.socket.once('open', resolve)
      client.socket.once('error', reject)
    })
    return client
  }

  say(text: string | Buffer): void {
    this.socket.send(text)
  }

  /** The first message, so far or to come, that fits. */
  async until(fits: (message: Message) => boolean): Promise<Message> {
    for (;;) {
      const found = this.messages.find(fits)
      if (found !== undefined) return found
      await new Promise<void>((resolve) => {
        const look = (): void => {
          this.#watchers = this.#watchers.filter((other) => other !== look)
          resolve()
        }
        this.#watchers.push(look)
      })
    }
  }

  /** The whole reply, error or not. */
  ask(method: string, params: object = {}, sessionId?: string): Promise<Message> {
    this.#id += 1
    const id = this.#id
    this.say(
      JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) }),
    )
    return this.until((message) => message['id'] === id)
  }

  /** The result; throws what the protocol refused with. */
  async send(method: string, params: object = {}, sessionId?: string): Promise<any> {
    const { result, error } = await this.ask(method, params, sessionId)
    if (error !== undefined) throw new Error(`${method}: ${error.code} ${error.message}`)
    return result
  }

  events(method: string): Message[] {
    return this.messages.filter((message) => message['method'] === method)
  }

  close(): void {
    this.socket.close()
  }
}
