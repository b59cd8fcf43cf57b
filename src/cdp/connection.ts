/**
 * A connection to a browser behind Holdfast that outlives its sockets. What was sent and not
 * confirmed is sent again on the next one; what comes is told once and in order, each message in a
 * task of its own, as clients of the protocol expect it.
 */
import { WebSocket } from 'ws'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import {
  HELD_ACK,
  HELD_VERSION,
  isHeldFrame,
  readHeldFrame,
  Unconfirmed,
  writeHeldFrame,
  type HeldFrame,
} from '../wire/held.ts'
import { heldAddress, type HeldOptions } from './address.ts'

/** The first wait before another try, and the longest; each is varied by chance. */
const RETRY_MS = { first: 25, longest: 2_000 }
/** How long an attempt may take, and how long a socket may be silent. */
const CONNECT_MS = 10_000
const PING_MS = 10_000
const DEAD_MS = 25_000
/** How often a goodbye is tried without a connection; then the grace time has to do. */
const GOODBYE_ATTEMPTS = 4

export type HeldState = 'connecting' | 'live' | 'lost' | 'over'

export type HeldConnectionOptions = HeldOptions & {
  /** What of the browser it is for: `/page/ID`; nothing is the browser itself. */
  readonly below?: string
  /**
   * Told when the state changes: `connecting`, `live`; after a loss `lost` with the reason,
   * `connecting`, `live`; at the end `over` with the reason.
   */
  readonly onState?: (state: HeldState, reason: string | null) => void
}

/** Why a connection is over. */
export class HeldError extends Error {
  override readonly name = 'HeldError'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

type Welcome = HeldFrame & { type: 'welcome' }

export class HeldConnection {
  readonly #url: string
  readonly #options: HeldConnectionOptions
  readonly #unconfirmed = new Unconfirmed<string>()
  readonly #inbox: string[] = []
  #socket: WebSocket | null = null
  #welcome: Welcome | null = null
  /** This socket has been welcomed. */
  #isGreeted = false
  #received = 0
  #confirmed = 0
  #uncountedChars = 0
  #ackTimer: NodeJS.Timeout | null = null
  #retryTimer: NodeJS.Timeout | null = null
  #watchTimer: NodeJS.Timeout | null = null
  #heardAt = 0
  #lostAt = 0
  #retries = 0
  #over: HeldError | null = null
  #told: HeldState | null = null
  #opened: { resolve: () => void; reject: (error: Error) => void } | null = null
  onMessage: ((message: string) => void) | null = null
  onClosed: ((error: HeldError) => void) | null = null

  /** Resolves when the browser is there. */
  static async open(address: string, options: HeldConnectionOptions = {}): Promise<HeldConnection> {
    const connection = new HeldConnection(address, options)
    await new Promise<void>((resolve, reject) => {
      connection.#opened = { resolve, reject }
      connection.#connect()
    })
    return connection
  }

  private constructor(address: string, options: HeldConnectionOptions) {
    this.#url = heldAddress(address, options, options.below)
    this.#options = options
  }

  /** The session of Holdfast that this is, once it is open. */
  get session(): string | null {
    return this.#welcome?.session ?? null
  }

  send(message: string): void {
    if (this.#over !== null) return
    this.#unconfirmed.push(message)
    if (this.#isLive()) this.#socket?.send(message)
  }

  /** Goes for good: what it had in the browser goes with it, as its session's policy has it. */
  close(): void {
    if (this.#over !== null) return
    if (this.#isLive()) this.#say({ type: 'bye' })
    else if (this.#welcome !== null) this.#leaveFromAfar(GOODBYE_ATTEMPTS)
    this.#end(new HeldError('closed', 'closed by this client'), 1000)
  }

  /** Without a connection there is nothing to say goodbye on: one is made for it. */
  #leaveFromAfar(attempts: number): void {
    const socket = this.#newSocket()
    let isDone = false
    socket.on('open', () => socket.send(this.#helloFrame()))
    socket.on('message', (data: Buffer) => {
      const text = data.toString()
      const frame = isHeldFrame(text) ? readHeldFrame(text) : null
      if (frame?.type !== 'welcome' && frame?.type !== 'end') return
      isDone = true
      if (frame.type === 'welcome') socket.send(writeHeldFrame({ type: 'bye' }))
      socket.close(1000)
    })
    // The close event follows, and tries again.
    socket.on('error', () => undefined)
    socket.on('close', () => {
      if (isDone || attempts === 1) return
      setTimeout(() => this.#leaveFromAfar(attempts - 1), RETRY_MS.longest / 4)
    })
  }

  /** Cuts the socket, as a bad network would. For tests. */
  drop(): void {
    this.#socket?.terminate()
  }

  #isLive(): boolean {
    return this.#welcome !== null && this.#socket?.readyState === WebSocket.OPEN && this.#isGreeted
  }

  #connect(): void {
    this.#retryTimer = null
    this.#isGreeted = false
    const socket = this.#newSocket()
    this.#socket = socket
    this.#state('connecting', null)
    socket.on('open', () => this.#hello(socket))
    socket.on('message', (data: Buffer) => this.#receive(socket, data.toString()))
    socket.on('unexpected-response', (_, { statusCode = 0 }) => {
      socket.terminate()
      const isFinal = statusCode < 500 && statusCode !== 429
      this.#lost(socket, `the server answered ${statusCode}`, isFinal)
    })
    socket.on('error', (error) => this.#lost(socket, error.message))
    socket.on('close', () => this.#lost(socket, 'the connection was lost'))
  }

  #newSocket(): WebSocket {
    const { token } = this.#options
    const socket = new WebSocket(this.#url, {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      maxPayload: 0,
      handshakeTimeout: CONNECT_MS,
      ...SOCKET_OPTIONS,
    })
    answerPings(socket)
    return socket
  }

  #helloFrame(): string {
    const known = this.#welcome
    if (known === null || known.token === null) {
      return writeHeldFrame({ type: 'hello', v: HELD_VERSION })
    }
    const { session, attachment, token } = known
    const resume = { session, attachment, token, received: this.#received }
    return writeHeldFrame({ type: 'hello', v: HELD_VERSION, resume })
  }

  #hello(socket: WebSocket): void {
    this.#heardAt = performance.now()
    socket.send(this.#helloFrame())
    this.#watchTimer ??= setInterval(() => this.#watch(), PING_MS / 2).unref()
  }

  #receive(socket: WebSocket, text: string): void {
    if (socket !== this.#socket || this.#over !== null) return
    this.#heardAt = performance.now()
    if (isHeldFrame(text)) return this.#frame(readHeldFrame(text))
    this.#received += 1
    this.#uncountedChars += text.length
    this.#ackSoon()
    this.#inbox.push(text)
    if (this.#inbox.length === 1) setImmediate(() => this.#tellNext())
  }

  /** One message in each task: what it leads to is done before the next one comes. */
  #tellNext(): void {
    const text = this.#inbox[0]
    if (text === undefined) return
    try {
      if (this.#over === null) this.onMessage?.(text)
    } finally {
      this.#inbox.shift()
      if (this.#inbox.length > 0) setImmediate(() => this.#tellNext())
    }
  }

  #frame(frame: HeldFrame | null): void {
    switch (frame?.type) {
      case 'welcome':
        return this.#welcomed(frame)
      case 'ack':
        this.#unconfirmed.confirm(frame.received)
        return
      case 'ping':
        return this.#say({ type: 'pong' })
      case 'end':
        if (frame.retry && this.#welcome !== null) return
        return this.#end(new HeldError(frame.code, frame.reason), 1000)
      default:
    }
  }

  #welcomed(welcome: Welcome): void {
    this.#welcome = welcome
    this.#isGreeted = true
    this.#retries = 0
    this.#unconfirmed.confirm(welcome.received)
    this.#confirmed = this.#received
    this.#say({ type: 'ready' })
    for (const message of this.#unconfirmed.all()) this.#socket?.send(message)
    this.#state('live', null)
    this.#opened?.resolve()
    this.#opened = null
  }

  #ackSoon(): void {
    const due = this.#received - this.#confirmed >= HELD_ACK.messages
    if (due || this.#uncountedChars >= HELD_ACK.bytes) return this.#ack()
    this.#ackTimer ??= setTimeout(() => this.#ack(), HELD_ACK.ms)
  }

  #ack(): void {
    if (this.#ackTimer !== null) clearTimeout(this.#ackTimer)
    this.#ackTimer = null
    this.#confirmed = this.#received
    this.#uncountedChars = 0
    if (this.#isLive()) this.#say({ type: 'ack', received: this.#received })
  }

  #say(frame: HeldFrame): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(writeHeldFrame(frame))
  }

  #watch(): void {
    const silence = performance.now() - this.#heardAt
    if (silence > DEAD_MS) this.#socket?.terminate()
    else if (silence > PING_MS) this.#say({ type: 'ping' })
  }

  #lost(socket: WebSocket, reason: string, isFinal = false): void {
    if (socket !== this.#socket || this.#over !== null) return
    this.#socket = null
    if (this.#isGreeted) this.#lostAt = performance.now()
    this.#isGreeted = false
    const welcome = this.#welcome
    if (welcome === null) return this.#end(new HeldError('unreachable', reason), 1000)
    const isLate = performance.now() - this.#lostAt > welcome.graceMs
    if (isFinal || isLate || welcome.token === null) {
      return this.#end(new HeldError('connection_lost', reason), 1000)
    }
    if (this.#told !== 'connecting') this.#state('lost', reason)
    const wait = Math.min(RETRY_MS.longest, RETRY_MS.first * 2 ** this.#retries)
    this.#retries += 1
    this.#retryTimer = setTimeout(() => this.#connect(), wait * (0.5 + Math.random() / 2))
  }

  #end(error: HeldError, code: number): void {
    if (this.#over !== null) return
    this.#over = error
    for (const timer of [this.#ackTimer, this.#retryTimer]) if (timer !== null) clearTimeout(timer)
    if (this.#watchTimer !== null) clearInterval(this.#watchTimer)
    this.#socket?.close(code)
    this.#state('over', error.message)
    this.#opened?.reject(error)
    this.#opened = null
    this.onClosed?.(error)
  }

  /** Told when it changes: attempts that fail are all of them one `connecting`. */
  #state(state: HeldState, reason: string | null): void {
    if (this.#told === state) return
    this.#told = state
    this.#options.onState?.(state, reason)
  }
}
