/**
 * A connection to a browser behind Holdfast that outlives its sockets. What was sent and not
 * confirmed is sent again on the next one; what comes is delivered once and in order, each message
 * in a task of its own, as clients of the protocol expect it.
 */
import { ClientConnection, type ClientState } from '../client/connection.ts'
import { endingOf } from '../client/endings.ts'
import type { Hello, ReplayWelcome } from '../wire/frames.ts'
import { FRAME_MARK, MessageReplay, REPLAY_VERSION } from '../wire/replay.ts'
import { nodePlatform, type HeldPlatform } from './platform.ts'

/** How long a goodbye is tried without a connection; then the grace time has to do. */
const GOODBYE_MS = 2_000

export type HeldState = 'connecting' | 'live' | 'lost' | 'over'

export type HeldOptions = {
  /** Clients that name the same key share one browser session, and find it again. */
  readonly key?: string
  readonly token?: string
  readonly reconnect?: 'none' | 'early' | 'resume' | 'reopen'
  readonly graceMs?: number
  readonly ttlMs?: number
  /** Writes the traffic down, where the server was started with `--record`. */
  readonly record?: boolean
}

export type HeldConnectionOptions = HeldOptions & {
  /** What of the browser it is for: `/page/ID`; nothing is the browser itself. */
  readonly below?: string
  /**
   * Called when the state changes: `connecting`, `live`; after a loss `lost` with the reason,
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

export class HeldConnection {
  readonly #options: HeldConnectionOptions
  readonly #platform: HeldPlatform
  readonly #connection: ClientConnection
  readonly #replay: MessageReplay<string>
  #welcome: ReplayWelcome | null = null
  #state: HeldState | null = null
  #opened: { resolve: () => void; reject: (error: Error) => void } | null = null
  onMessage: ((message: string) => void) | null = null
  onClosed: ((error: HeldError) => void) | null = null

  /** Resolves when the browser is there. */
  static async open(
    address: string,
    options: HeldConnectionOptions = {},
    platform: HeldPlatform = nodePlatform(options.token),
  ): Promise<HeldConnection> {
    const connection = new HeldConnection(address, options, platform)
    await new Promise<void>((resolve, reject) => {
      connection.#opened = { resolve, reject }
      connection.#change('connecting', null)
      connection.#connection.start()
    })
    return connection
  }

  private constructor(address: string, options: HeldConnectionOptions, platform: HeldPlatform) {
    this.#options = options
    this.#platform = platform
    this.#replay = new MessageReplay(platform.clock)
    const url = heldAddress(address, options)
    // One attempt to begin with, so that `open` fails at once where there is no such browser.
    const once = { url, mark: FRAME_MARK, firstWelcomeMs: 0, stableMs: 0 }
    this.#connection = new ClientConnection(platform, once, {
      hello: () => this.#hello(),
      welcomed: (welcome: ReplayWelcome) => this.#welcomed(welcome),
      received: (frame) => {
        if (frame.type === 'ack') this.#replay.confirm(frame.received)
      },
      message: (text) => this.#receive(text),
      caughtUp: () => undefined,
      rethink: () => 'no',
      changed: (state, reason) => this.#changed(state, reason),
    })
  }

  /** The session of Holdfast that this is, once it is open. */
  get session(): string | null {
    return this.#welcome?.session.id ?? null
  }

  get #isOver(): boolean {
    return this.#state === 'over'
  }

  send(message: string): void {
    if (!this.#isOver) this.#replay.send(message)
  }

  /** Goes for good: what it had in the browser goes with it, as its session's policy has it. */
  close(): void {
    if (this.#isOver) return
    const { state } = this.#connection
    const mayReturn = this.#welcome !== null && state.name === 'reconnecting'
    this.#end(new HeldError('closed', 'closed by this client'))
    // Without a connection there is nothing to say goodbye on: the next one is for that.
    if (mayReturn) this.#platform.clock.after(GOODBYE_MS, () => this.#hangUp())
    else this.#leave()
  }

  /** Cuts the socket, as a bad network would. For tests. */
  drop(): void {
    this.#connection.drop()
  }

  #leave(): void {
    this.#connection.send({ type: 'bye' })
    this.#hangUp()
  }

  #hangUp(): void {
    this.#connection.end(endingOf('left', 'closed by this client'))
  }

  #hello(): Hello {
    const { resume, session, attachment } = this.#welcome ?? {}
    const hello = { type: 'hello', v: REPLAY_VERSION } as const
    if (attachment === undefined || session === undefined || typeof resume !== 'string')
      return hello
    const { received } = this.#replay
    // Only this object has the token, so an older connection is its own: no need to ask it.
    const back = { session: session.id, received, take: true }
    return { ...hello, ...back, auth: { resume: { attachment, token: resume } } }
  }

  #welcomed(welcome: ReplayWelcome): void {
    this.#welcome = welcome
    if (this.#isOver) return this.#leave()
    this.#replay.confirm(welcome.received)
    this.#connection.send({ type: 'ready', epoch: welcome.epoch })
    this.#replay.connect({
      sendMessage: (message) => this.#connection.sendText(message),
      sendAck: (received) => this.#connection.send({ type: 'ack', received }),
    })
  }

  /** Each message in a task of its own: what it leads to is done before the next one comes. */
  #receive(text: string): void {
    this.#replay.count(text)
    this.#platform.defer(() => {
      if (!this.#isOver) this.onMessage?.(text)
    })
  }

  #changed(state: ClientState, reason: string | null): void {
    if (state.name !== 'live') this.#replay.disconnect()
    if (state.name === 'ended') return this.#end(new HeldError(state.code, state.reason))
    if (this.#isOver) return
    if (state.name === 'reconnecting') {
      if (this.#state === 'live') this.#change('lost', reason)
      return this.#change('connecting', null)
    }
    if (state.name !== 'live') return
    this.#change('live', null)
    this.#opened?.resolve()
  }

  #end(error: HeldError): void {
    if (this.#isOver) return
    this.#replay.disconnect()
    this.#change('over', error.message)
    this.#opened?.reject(error)
    this.onClosed?.(error)
  }

  #change(state: HeldState, reason: string | null): void {
    if (this.#state === state) return
    this.#state = state
    this.#options.onState?.(state, reason)
  }
}

/** The socket that may be resumed, from `http://HOST/cdp/NAME`. */
function heldAddress(address: string, options: HeldConnectionOptions): string {
  const { below = '' } = options
  const url = new URL(address)
  url.protocol = url.protocol.replace('http', 'ws')
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/held${below}`
  for (const name of ['key', 'reconnect', 'graceMs', 'ttlMs'] as const) {
    const value = options[name]
    if (value !== undefined) url.searchParams.set(name, String(value))
  }
  if (options.record === true) url.searchParams.set('record', '1')
  return url.href
}
