/** A client of the Copilot door, byte by byte: it says what the SDK says, and what it never would. */
import { connect, type Socket } from 'node:net'

export type RpcObject = { readonly [field: string]: any }
export type CopilotEvent = { readonly type: string; readonly id: string; readonly data: any }

export type RawOptions = {
  readonly host?: string
  /** It does not answer what the server asks, as if it stood still. */
  readonly silent?: boolean
}

/** The frame of a text, whatever it is. */
export function frame(text: string): Buffer {
  return Buffer.from(`Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`)
}

export class RawCopilot {
  readonly socket: Socket
  /** All that came, in order. */
  readonly messages: RpcObject[] = []
  readonly closed: Promise<void>
  isClosed = false
  /** Answers to what the server asks, by method; others are answered with an error. */
  readonly handlers: Record<string, (params: any) => unknown> = {}
  #buffer = Buffer.alloc(0)
  #id = 0
  #waiting: (() => void)[] = []

  constructor(port: number, { host = '127.0.0.1', silent = false }: RawOptions = {}) {
    this.socket = connect({ port, host, noDelay: true })
    this.socket.on('error', () => undefined)
    this.closed = new Promise((resolve) => {
      this.socket.once('close', () => {
        this.isClosed = true
        this.#wake()
        resolve()
      })
    })
    this.socket.on('data', (data: Buffer) => {
      this.#buffer = Buffer.concat([this.#buffer, data])
      for (let text = this.#next(); text !== null; text = this.#next()) {
        const message = JSON.parse(text) as RpcObject
        this.messages.push(message)
        if (!silent && message['method'] !== undefined && message['id'] !== undefined) {
          this.#answer(message)
        }
      }
      this.#wake()
    })
  }

  /** Connects, and shows a token. */
  static async open(port: number, token: string, options: RawOptions = {}): Promise<RawCopilot> {
    const client = new RawCopilot(port, options)
    await client.request('connect', { token })
    return client
  }

  #next(): string | null {
    const end = this.#buffer.indexOf('\r\n\r\n')
    if (end === -1) return null
    const length = Number(
      /Content-Length: (\d+)/.exec(this.#buffer.toString('latin1', 0, end))?.[1],
    )
    const from = end + 4
    if (this.#buffer.length < from + length) return null
    const text = this.#buffer.toString('utf8', from, from + length)
    this.#buffer = this.#buffer.subarray(from + length)
    return text
  }

  #answer({ id, method, params }: RpcObject): void {
    const handler = this.handlers[method as string]
    if (handler === undefined) {
      const error = { code: -32_601, message: `Unhandled method ${method}` }
      return this.say({ id, error })
    }
    void Promise.resolve(handler(params)).then((result) => this.say({ id, result }))
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }

  raw(bytes: string | Buffer): void {
    this.socket.write(bytes)
  }

  say(message: object): void {
    this.raw(frame(JSON.stringify({ jsonrpc: '2.0', ...message })))
  }

  /** The result; rejects with the error. */
  async request(method: string, params: object = {}): Promise<any> {
    const { error, result } = await this.response(this.ask(method, params))
    if (error === undefined) return result
    throw Object.assign(new Error(error.message), { rpc: error, data: error.data })
  }

  /** Sends a request; returns its id. */
  ask(method: string, params: object = {}): number {
    this.#id += 1
    this.say({ id: this.#id, method, params })
    return this.#id
  }

  response(id: number | string): Promise<RpcObject> {
    return this.message((message) => message['id'] === id && message['method'] === undefined)
  }

  /** The first message, so far or to come, that fits. */
  async message(fits: (message: RpcObject) => boolean, from = 0): Promise<RpcObject> {
    for (let index = from; ;) {
      for (; index < this.messages.length; index += 1) {
        const message = this.messages[index]
        if (message !== undefined && fits(message)) return message
      }
      if (this.isClosed) throw new Error('closed before it came')
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  /** The events of a session, so far. */
  events(session?: string): readonly CopilotEvent[] {
    return this.messages
      .filter(({ method, params }) => {
        return method === 'session.event' && (session ?? params.sessionId) === params.sessionId
      })
      .map(({ params }) => params.event as CopilotEvent)
  }

  async event(type: string, from = 0): Promise<CopilotEvent> {
    const { params } = await this.message(
      (message) => message['method'] === 'session.event' && message['params'].event.type === type,
      from,
    )
    return params.event as CopilotEvent
  }

  async cut(): Promise<void> {
    this.socket.destroy()
    await this.closed
  }
}
