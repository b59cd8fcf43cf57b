/**
 * A connection to a browser behind Holdfast that outlives its sockets. What was sent and not
 * confirmed is sent again on the next one; what comes is told once and in order, each message in a
 * task of its own, as clients of the protocol expect it.
 */
import type { ClientSocket } from '../client/platform.ts'
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
import { nodePlatform, type HeldPlatform } from './platform.ts'

/** The first wait before another try, and the longest; each is varied by chance. */
const RETRY_MS = { first: 25, longest: 2_000 }
/** How long an attempt may take, and how long a socket may be silent. */
const CONNECT_MS = 15_000
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
  readonly #platform: HeldPlatform
  readonly #unconfirmed = new Unconfirmed<string>()
  readonly #inbox: string[] = []
  #socket: ClientSocket | null = null
  #welcome: Welcome | null = null
  /** This socket has been welcomed. */
  #isGreeted = false
  #received = 0
  #confirmed = 0
  #uncountedChars = 0
  #cancelAck: (() => void) | null = null
  #cancelRetry: () => void = () => undefined
  #cancelWatch: () => void = () => undefined
  #heardAt = 0
  #lostAt = 0
  #retries = 0
  #over: HeldError | null = null
  #told: HeldState | null = null
  #opened: { resolve: () => void; reject: (error: Error) => void } | null = null
  onMessage: ((message: string) => void) | null = null
  onClosed: ((error: HeldError) => void) | null = null

  /** Resolves when the browser is there. */
  static async open(
    address: string,
    options: HeldConnectionOptions = {},
    platform: HeldPlatform = nodePlatform,
  ): Promise<HeldConnection> {
    const connection = new HeldConnection(address, options, platform)
    await new Promise<void>((resolve, reject) => {
      connection.#opened = { resolve, reject }
      connection.#connect()
    })
    return connection
  }

  private constructor(address: string, options: HeldConnectionOptions, platform: HeldPlatform) {
    this.#platform = platform
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
    if (this.#isLive()) this.#send(message)
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
    socket.addEventListener('open', () => socket.send(this.#helloFrame()))
    socket.addEventListener('message', ({ data }) => {
      const text = String(data)
      const frame = isHeldFrame(text) ? readHeldFrame(text) : null
      if (frame?.type !== 'welcome' && frame?.type !== 'end') return
      isDone = true
      if (frame.type === 'welcome') socket.send(writeHeldFrame({ type: 'bye' }))
      socket.close(1000)
    })
    const { clock } = this.#platform
    const late = clock.after(CONNECT_MS, () => socket.close())
    socket.addEventListener('close', () => {
      late()
      if (isDone || attempts === 1) return
      clock.after(RETRY_MS.longest / 4, () => this.#leaveFromAfar(attempts - 1))
    })
  }

  /** Cuts the socket, as a bad network would. For tests. */
  drop(): void {
    const socket: (ClientSocket & { cut?: () => void }) | null = this.#socket
    socket?.cut?.()
  }

  #isLive(): boolean {
    return this.#welcome !== null && this.#socket !== null && this.#isGreeted
  }

  #connect(): void {
    this.#isGreeted = false
    const socket = this.#newSocket()
    this.#socket = socket
    this.#heardAt = this.#platform.clock.monotonic()
    this.#state('connecting', null)
    this.#cancelWatch()
    this.#watchLater(socket)
    socket.addEventListener('open', () => {
      if (socket === this.#socket) this.#send(this.#helloFrame())
    })
    socket.addEventListener('message', ({ data }) => this.#receive(socket, String(data)))
    // The close event follows, with the reason.
    socket.addEventListener('error', () => undefined)
    socket.addEventListener('close', ({ code, reason = '' }) => {
      this.#lost(socket, reason === '' ? 'the connection was lost' : reason, code === 1008)
    })
  }

  #newSocket(): ClientSocket {
    return this.#platform.open(this.#url, this.#options.token)
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

  #receive(socket: ClientSocket, text: string): void {
    if (socket !== this.#socket || this.#over !== null) return
    this.#heardAt = this.#platform.clock.monotonic()
    if (isHeldFrame(text)) return this.#frame(readHeldFrame(text))
    this.#received += 1
    this.#uncountedChars += text.length
    this.#ackSoon()
    this.#inbox.push(text)
    if (this.#inbox.length === 1) this.#platform.defer(() => this.#tellNext())
  }

  /** One message in each task: what it leads to is done before the next one comes. */
  #tellNext(): void {
    const text = this.#inbox[0]
    if (text === undefined) return
    try {
      if (this.#over === null) this.onMessage?.(text)
    } finally {
      this.#inbox.shift()
      if (this.#inbox.length > 0) this.#platform.defer(() => this.#tellNext())
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
    for (const message of this.#unconfirmed.all()) this.#send(message)
    this.#state('live', null)
    this.#opened?.resolve()
    this.#opened = null
  }

  #ackSoon(): void {
    const due = this.#received - this.#confirmed >= HELD_ACK.messages
    if (due || this.#uncountedChars >= HELD_ACK.bytes) return this.#ack()
    this.#cancelAck ??= this.#platform.clock.after(HELD_ACK.ms, () => this.#ack())
  }

  #ack(): void {
    this.#cancelAck?.()
    this.#cancelAck = null
    this.#confirmed = this.#received
    this.#uncountedChars = 0
    if (this.#isLive()) this.#say({ type: 'ack', received: this.#received })
  }

  #say(frame: HeldFrame): void {
    this.#send(writeHeldFrame(frame))
  }

  #send(text: string): void {
    try {
      this.#socket?.send(text)
    } catch {
      // A socket that cannot send is about to say that it is closed.
    }
  }

  #watchLater(socket: ClientSocket): void {
    this.#cancelWatch = this.#platform.clock.after(PING_MS / 2, () => {
      if (socket !== this.#socket) return
      const silence = this.#platform.clock.monotonic() - this.#heardAt
      if (silence > (this.#isGreeted ? DEAD_MS : CONNECT_MS)) {
        this.#lost(socket, 'the connection was lost')
        return socket.close()
      }
      if (silence > PING_MS && this.#isGreeted) this.#say({ type: 'ping' })
      this.#watchLater(socket)
    })
  }

  #lost(socket: ClientSocket, reason: string, isFinal = false): void {
    if (socket !== this.#socket || this.#over !== null) return
    this.#socket = null
    if (this.#isGreeted) this.#lostAt = this.#platform.clock.monotonic()
    this.#isGreeted = false
    const welcome = this.#welcome
    if (welcome === null) return this.#end(new HeldError('unreachable', reason), 1000)
    const isLate = this.#platform.clock.monotonic() - this.#lostAt > welcome.graceMs
    if (isFinal || isLate || welcome.token === null) {
      return this.#end(new HeldError('connection_lost', reason), 1000)
    }
    if (this.#told !== 'connecting') this.#state('lost', reason)
    const wait = Math.min(RETRY_MS.longest, RETRY_MS.first * 2 ** this.#retries)
    this.#retries += 1
    const { clock, random } = this.#platform
    this.#cancelRetry = clock.after(wait * (0.5 + random() / 2), () => this.#connect())
  }

  #end(error: HeldError, code: number): void {
    if (this.#over !== null) return
    this.#over = error
    this.#cancelAck?.()
    this.#cancelRetry()
    this.#cancelWatch()
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
