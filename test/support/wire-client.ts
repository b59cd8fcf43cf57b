/** One socket to `/v1/connect` in a test's hand: it keeps every frame, and can misbehave on request. */
import { WebSocket, type ClientOptions, type RawData } from 'ws'

export type Frame = { readonly type: string; readonly [field: string]: any }
export type Closed = { readonly code: number; readonly reason: string }

export type WireOptions = ClientOptions & {
  /** It does not answer pings, as if its network were gone. */
  readonly silent?: boolean
}

export class WireClient {
  readonly socket: WebSocket
  /** All that came, in order; an array of frames counts as its frames. */
  readonly frames: Frame[] = []
  /** How many messages brought them. */
  messages = 0
  readonly closed: Promise<Closed>
  isClosed = false
  #waiting: (() => void)[] = []

  constructor(url: string, { silent = false, ...options }: WireOptions = {}) {
    this.socket = new WebSocket(`${url.replace('http', 'ws')}/v1/connect`, options)
    this.closed = new Promise((resolve) => {
      this.socket.once('close', (code, reason) => {
        this.isClosed = true
        resolve({ code, reason: String(reason) })
        this.#wake()
      })
    })
    // The close event follows.
    this.socket.on('error', () => undefined)
    this.socket.on('message', (data: RawData) => {
      this.messages += 1
      const value = JSON.parse((data as Buffer).toString()) as Frame | Frame[]
      for (const frame of Array.isArray(value) ? value : [value]) this.#take(frame, silent)
      this.#wake()
    })
  }

  #take(frame: Frame, silent: boolean): void {
    this.frames.push(frame)
    if (frame.type === 'ping' && !silent) this.send({ type: 'pong' })
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }

  get opened(): Promise<void> {
    if (this.socket.readyState === WebSocket.OPEN) return Promise.resolve()
    return new Promise((resolve) => this.socket.once('open', () => resolve()))
  }

  /** Sends a frame, or several in one message. */
  send(frame: object): void {
    this.raw(JSON.stringify(frame))
  }

  /** Sends whatever it is given, when it can. */
  raw(data: string | Buffer): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(data)
    else if (this.socket.readyState === WebSocket.CONNECTING) {
      this.socket.once('open', () => this.socket.send(data))
    }
  }

  /** The first frame that fits, of those that came or will come. */
  async frame(fits: string | ((frame: Frame) => boolean), from = 0): Promise<Frame> {
    const matches = typeof fits === 'string' ? ({ type }: Frame): boolean => type === fits : fits
    for (let index = from; ;) {
      for (; index < this.frames.length; index += 1) {
        const frame = this.frames[index]
        if (frame !== undefined && matches(frame)) return frame
      }
      if (this.isClosed) throw new Error(`closed before it came: ${JSON.stringify(this.frames)}`)
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  of(type: string): readonly Frame[] {
    return this.frames.filter((frame) => frame.type === type)
  }

  /** The reply to the request of that id. */
  reply(id: string): Promise<Frame> {
    return this.frame((frame) => frame.type === 'reply' && frame['id'] === id)
  }

  /** Where it stands: what `after` would say. */
  get seen(): { readonly seq: number; readonly delta: number } {
    let [seq, delta] = [0, 0]
    for (const frame of this.frames) {
      if (frame.type === 'welcome') ({ seq, delta } = frame['after'] as typeof this.seen)
      if (typeof frame['seq'] === 'number') seq = frame['seq']
      if (frame.type === 'turn.started') delta = 0
      if (frame.type === 'delta') delta = frame['n'] as number
    }
    return { seq, delta }
  }

  /** Disconnects without a bye frame. */
  async cut(): Promise<void> {
    this.socket.terminate()
    await this.closed
  }
}

/** Connects and says hello. */
export function dial(url: string, hello: object, options: WireOptions = {}): WireClient {
  const client = new WireClient(url, options)
  client.send({ type: 'hello', v: 1, ...hello })
  return client
}
