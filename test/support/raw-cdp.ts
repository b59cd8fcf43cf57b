/** A client of the protocol that checks nothing and may send anything. */
import { WebSocket } from 'ws'

export type Message = Readonly<Record<string, any>>

export class RawCdp {
  readonly socket: WebSocket
  /** Everything that came, in order. */
  readonly messages: Message[] = []
  /** What came between the messages on a socket that may be taken up again. */
  readonly frames: Message[] = []
  readonly closed: Promise<number>
  #id = 0
  #watchers: (() => void)[] = []

  constructor(url: string, options: { readonly headers?: Record<string, string> } = {}) {
    this.socket = new WebSocket(url, options)
    this.socket.on('message', (data: Buffer) => {
      const text = data.toString()
      if (text.startsWith('#')) this.frames.push(JSON.parse(text.slice(1)) as Message)
      else this.messages.push(JSON.parse(text) as Message)
      for (const look of [...this.#watchers]) look()
    })
    this.closed = new Promise((resolve) => this.socket.on('close', resolve))
    this.socket.on('error', () => undefined)
  }

  static async open(
    url: string,
    options: { readonly headers?: Record<string, string> } = {},
  ): Promise<RawCdp> {
    const client = new RawCdp(url, options)
    await new Promise<void>((resolve, reject) => {
      client.socket.once('open', resolve)
      client.socket.once('error', reject)
    })
    return client
  }

  /** Without the page that a fresh session has, and without a word of it. */
  static async openEmpty(url: string): Promise<RawCdp> {
    const client = await RawCdp.open(url)
    const pages = async (): Promise<{ targetId: string }[]> =>
      (await client.send('Target.getTargets')).targetInfos
    for (const { targetId } of await pages()) await client.send('Target.closeTarget', { targetId })
    while ((await pages()).length > 0) continue
    client.messages.length = 0
    return client
  }

  say(text: string | Buffer): void {
    this.socket.send(text)
  }

  /** The first message, so far or to come, that fits. */
  until(fits: (message: Message) => boolean): Promise<Message> {
    return this.#found(() => this.messages.find(fits))
  }

  /** The first frame. */
  frame(): Promise<Message> {
    return this.#found(() => this.frames[0])
  }

  async #found(find: () => Message | undefined): Promise<Message> {
    for (;;) {
      const found = find()
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
