/**
 * A client that follows one session through any number of lost connections, as `docs/reference/wire.md`
 * tells it to, and notes what it receives twice, too late, or not at all.
 */
import { WebSocket, type RawData } from 'ws'

type Frame = { readonly type: string; readonly [field: string]: any }
type Resume = { readonly attachment: string; readonly token: string }

export type FollowerOptions = {
  readonly url: string
  readonly key: string
  /** What the session is created with. */
  readonly options: object
}

export class Follower {
  /** The positions of the events that it received, in the order in which they came. */
  readonly seqs: number[] = []
  readonly problems: string[] = []
  deltas = 0
  connections = 0
  session = ''
  /** The turns that its requests became, by the requests' ids. */
  readonly turns = new Map<string, string>()
  readonly #options: FollowerOptions
  readonly #requests = new Map<string, string>()
  #socket: WebSocket | null = null
  #resume: Resume | null = null
  #seq = 0
  #delta = 0
  /** What the running turn has said since its last message, as far as it received it. */
  #said = ''
  /** Deltas that a message has replaced are not sent. */
  #maySkip = false
  #isDone = false
  #changed: (() => void)[] = []

  constructor(options: FollowerOptions) {
    this.#options = options
    this.#connect()
  }

  get seq(): number {
    return this.#seq
  }

  /** Asks for a turn, again with every connection until there is a reply. */
  ask(id: string, input: string): void {
    this.#requests.set(id, input)
    this.#send({ type: 'turn', id, input })
  }

  /** Waits until it has received so much, and all its requests have replies. */
  async caughtUp(seq: number): Promise<void> {
    while (this.#seq < seq || this.#requests.size > 0) {
      await new Promise<void>((resolve) => this.#changed.push(resolve))
    }
  }

  /** Sends a bye frame. */
  leave(): Promise<void> {
    this.#isDone = true
    return new Promise((resolve) => {
      if (this.#socket === null || this.#socket.readyState === WebSocket.CLOSED) return resolve()
      this.#socket.once('close', () => resolve())
      if (this.#socket.readyState === WebSocket.OPEN) this.#send({ type: 'bye' })
      else this.#socket.terminate()
    })
  }

  #connect(): void {
    const socket = new WebSocket(this.#options.url)
    this.#socket = socket
    this.connections += 1
    socket.on('open', () => this.#hello())
    socket.on('message', (data: RawData) => {
      const value = JSON.parse((data as Buffer).toString()) as Frame | Frame[]
      for (const frame of Array.isArray(value) ? value : [value]) this.#take(frame)
      for (const changed of this.#changed.splice(0)) changed()
    })
    socket.on('error', () => undefined)
    socket.on('close', () => {
      if (!this.#isDone) setImmediate(() => this.#connect())
    })
  }

  #hello(): void {
    const { key, options } = this.#options
    const after = { seq: this.#seq, delta: this.#delta }
    const who =
      this.#resume === null
        ? { key, options }
        : { session: this.session, auth: { resume: this.#resume } }
    this.#send({ type: 'hello', v: 1, ...who, ...(this.#seq === 0 ? {} : { after }) })
  }

  #send(frame: object): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame))
  }

  #take(frame: Frame): void {
    if (typeof frame['seq'] === 'number') return this.#event(frame, frame['seq'])
    switch (frame.type) {
      case 'welcome':
        return this.#welcome(frame)
      case 'delta':
        return this.#takeDelta(frame)
      case 'reply':
        return this.#reply(frame)
      case 'ping':
        return this.#send({ type: 'pong' })
      case 'pong':
        return
      default:
        this.problems.push(JSON.stringify(frame))
    }
  }

  #welcome({ session, attachment, resume, epoch, after }: Frame): void {
    this.session = session.id as string
    this.#resume = { attachment, token: resume }
    if (after.seq !== this.#seq || after.delta !== this.#delta) {
      this.problems.push(`welcomed after ${JSON.stringify(after)}`)
    }
    this.#send({ type: 'ready', epoch })
    for (const [id, input] of this.#requests) this.#send({ type: 'turn', id, input })
  }

  #event(frame: Frame, seq: number): void {
    if (seq <= this.#seq) this.problems.push(`event ${seq} after ${this.#seq}`)
    this.#seq = seq
    this.seqs.push(seq)
    if (frame.type === 'turn.started') this.#delta = 0
    if (frame.type === 'message.added') {
      if (!String(frame['text']).includes(this.#said)) {
        this.problems.push(`the message of ${seq} is not what was said before it`)
      }
      this.#said = ''
      this.#maySkip = true
    }
    if (frame.type === 'turn.started') [this.#said, this.#maySkip] = ['', false]
  }

  #takeDelta({ n, text }: Frame): void {
    if (n <= this.#delta) this.problems.push(`delta ${n} after ${this.#delta}`)
    if (n > this.#delta + 1 && !this.#maySkip) {
      this.problems.push(`delta ${n} after ${this.#delta}: lost`)
    }
    this.deltas += 1
    this.#maySkip = false
    this.#delta = n as number
    this.#said += text as string
  }

  #reply({ id, turn, error }: Frame): void {
    if (error !== undefined) this.problems.push(`refused: ${JSON.stringify(error)}`)
    const known = this.turns.get(id)
    if (known !== undefined && known !== turn) this.problems.push(`${id} is ${known} and ${turn}`)
    this.turns.set(id, turn)
    this.#requests.delete(id)
  }
}
