/**
 * A connection that outlives its sockets: it opens one, says hello, pings when there was nothing
 * else to say, and opens the next when a socket is lost or silent for too long.
 *
 * 1. At most one socket is in use; what an older one says is not heard.
 * 2. It ends by a decision of the server, by this client's own, or when the grace time is over: it
 *    never looks alive when it is not.
 * 3. What only a person may decide is never done by itself: `superseded` and `in_use` end it.
 *
 * What is sent again after a loss is for its owner to say: requests without a reply, or messages
 * that were not confirmed.
 */
import type { ClientFrame, Hello, ServerFrame, WelcomeBase } from '../wire/frames.ts'
import {
  CLIENT_LIMITS,
  backoffMs,
  endingOf,
  readClose,
  readRefusal,
  type Ending,
  type Verdict,
} from './endings.ts'
import { watchNetwork, type ClientSocket, type Platform } from './platform.ts'

export type ClientState =
  /** For the first time; or again, and then everything comes again from the beginning. */
  | { readonly name: 'connecting' }
  | { readonly name: 'live' }
  /** `giveUpAt` is in milliseconds since 1970. */
  | { readonly name: 'reconnecting'; readonly attempt: number; readonly giveUpAt: number }
  | ({ readonly name: 'ended' } & Ending)

export interface ConnectionOwner {
  hello(): Hello
  /** Before any handler is called: `changed` follows. */
  welcomed(welcome: WelcomeBase): void
  received(frame: ServerFrame): void
  /** A message that is no frame, where the two are told apart by a mark. */
  message?(text: string): void
  /** All of a message was received. */
  caughtUp(): void
  /** Whether another hello may succeed at once where this one was refused. */
  rethink(code: string): 'no' | 'yes' | 'from the beginning'
  changed(state: ClientState, reason: string | null): void
}

export type ConnectionOptions = {
  readonly url: string
  /** What frames begin with; without it every message is a frame. */
  readonly mark?: string
  /** How long the first welcome is tried for; 0: one attempt. */
  readonly firstWelcomeMs?: number
  /** A socket that held this long was good: the next loss starts with no wait again. */
  readonly stableMs?: number
}

/** What the connection waits for. Each has at most one timer. */
type Wait = 'retry' | 'giveUp' | 'stable' | 'ping' | 'dead'

export class ClientConnection {
  readonly #platform: Omit<Platform, 'storage'>
  readonly #options: Required<ConnectionOptions>
  readonly #owner: ConnectionOwner
  #state: ClientState = { name: 'connecting' }
  #socket: ClientSocket | null = null
  /** How often to ping; null until the welcome has said so. */
  #welcome: WelcomeBase | null = null
  /** How long to try to come back, by the last welcome; null: the policy does not allow it. */
  #graceMs: number | null
  #attempt = 0
  #giveUpAt = 0
  /** Why the server is about to close the socket, as it said. */
  #ending: { readonly code: string; readonly reason: string } | null = null
  /** How to cancel each timer, which does nothing once it has run. */
  readonly #timers = new Map<Wait, () => void>()
  #unwatch = (): void => undefined

  constructor(
    platform: Omit<Platform, 'storage'>,
    options: ConnectionOptions,
    owner: ConnectionOwner,
  ) {
    const { firstWelcomeMs, stableMs } = CLIENT_LIMITS
    this.#platform = platform
    this.#options = { mark: '', firstWelcomeMs, stableMs, ...options }
    this.#graceMs = this.#options.firstWelcomeMs
    this.#owner = owner
  }

  get state(): ClientState {
    return this.#state
  }

  start(): void {
    const { firstWelcomeMs } = this.#options
    this.#attempt = 0
    this.#graceMs = firstWelcomeMs
    this.#unwatch = watchNetwork(
      () => this.#windowOnOnline(),
      () => this.#probe(),
    )
    if (this.#state.name !== 'connecting') this.#change({ name: 'connecting' })
    if (firstWelcomeMs > 0) this.#giveUpLater(firstWelcomeMs)
    this.#open()
  }

  send(frame: ClientFrame): void {
    this.sendText(this.#options.mark + JSON.stringify(frame))
  }

  sendText(text: string): void {
    if (this.#socket === null) return
    this.#pingLater()
    try {
      this.#socket.send(text)
    } catch {
      // A socket that cannot send is about to say that it is closed.
    }
  }

  /** Cuts the socket, as a bad network would. For tests. */
  drop(): void {
    this.#socket?.terminate?.()
  }

  /** Opens another socket in place of this one, to say another hello. */
  renew(): void {
    if (this.#state.name === 'ended') return
    this.#closeSocket()
    this.#attempt = 0
    this.#giveUpLater(this.#graceMs ?? this.#options.firstWelcomeMs)
    this.#retryAfter(0)
    if (this.#state.name === 'live') this.#tellReconnecting(null)
  }

  end(ending: Ending, number = 1000): void {
    if (this.#state.name === 'ended') return
    this.#closeSocket(number)
    this.#unwatch()
    this.#cancel('retry', 'giveUp')
    this.#change({ name: 'ended', ...ending }, ending.reason)
  }

  #open(): void {
    this.#ending = null
    try {
      const socket = new this.#platform.webSocket(this.#options.url)
      this.#socket = socket
      this.#listen(socket)
      this.#giveUpSocketAfter(CLIENT_LIMITS.welcomeMs, 'the server did not answer in time')
    } catch (error) {
      this.#lost(1006, error instanceof Error ? error.message : String(error))
    }
  }

  #listen(socket: ClientSocket): void {
    const isCurrent = (): boolean => socket === this.#socket
    socket.addEventListener('open', () => {
      if (isCurrent()) this.send(this.#owner.hello())
    })
    socket.addEventListener('message', ({ data }) => {
      if (isCurrent()) this.#message(data)
    })
    // A close follows, and says all there is to say. Unheard, `ws` would throw it.
    socket.addEventListener('error', () => undefined)
    socket.addEventListener('close', ({ code, reason }) => {
      if (isCurrent()) this.#lost(code ?? 1006, reason)
    })
  }

  #message(data: unknown): void {
    this.#heard()
    const { mark } = this.#options
    const text = String(data)
    if (!text.startsWith(mark)) return this.#owner.message?.(text)
    const frames = parseFrames(text.slice(mark.length))
    if (frames === null) return this.#lost(4400, 'the server does not speak this protocol')
    for (const { type } of frames) if (type === 'ping') this.send({ type: 'pong' })
    const socket = this.#socket
    for (const frame of frames) {
      this.#receive(frame)
      if (this.#socket !== socket) return
    }
    this.#owner.caughtUp()
  }

  #receive(frame: ServerFrame): void {
    switch (frame.type) {
      case 'welcome':
        return this.#welcomed(frame)
      case 'refuse':
        return this.#judge(readRefusal(frame))
      case 'superseded':
        return this.#judge(readClose(4408, 'continued in another place', null))
      case 'ending':
        this.#ending = frame
        return
      case 'ping':
      case 'pong':
        return
      default:
        if (this.#state.name === 'live') this.#owner.received(frame)
    }
  }

  #welcomed(welcome: WelcomeBase): void {
    if (this.#state.name === 'live') return
    this.#cancel('giveUp')
    this.#welcome = welcome
    this.#graceMs = graceOf(welcome)
    this.#pingLater()
    this.#heard()
    this.#after('stable', this.#options.stableMs, () => {
      this.#attempt = 0
    })
    // Live first: what is to be sent again leaves before a handler has something new to send.
    this.#state = { name: 'live' }
    this.#owner.welcomed(welcome)
    this.#change(this.#state)
  }

  #lost(number: number, reason = ''): void {
    this.#judge(readClose(number, reason, this.#ending))
  }

  /** The socket is of no more use: come back, try another way, or end. */
  #judge(verdict: Verdict): void {
    this.#closeSocket()
    if (verdict.back) return this.#comeBack(verdict)
    const rethought = this.#owner.rethink(verdict.code)
    if (rethought === 'no') return this.end(endingOf(verdict.code, verdict.reason, verdict.hint))
    this.#giveUpLater(this.#graceMs ?? this.#options.firstWelcomeMs)
    this.#retryAfter(0)
    if (rethought === 'from the beginning') this.#change({ name: 'connecting' })
  }

  #comeBack({ code, afterMs, reason }: Verdict): void {
    const { name } = this.#state
    if (name === 'live' && this.#graceMs === null) {
      return this.end(endingOf('connection_lost', reason, 'start_new'))
    }
    if (name === 'connecting' && this.#options.firstWelcomeMs === 0) {
      return this.end(endingOf(code === 'connection_lost' ? 'unreachable' : code, reason))
    }
    if (name === 'live') this.#giveUpLater(this.#graceMs ?? 0)
    this.#attempt += 1
    const { random } = this.#platform
    const waitMs = backoffMs(this.#attempt, random())
    this.#retryAfter(afterMs === 0 ? waitMs : Math.max(waitMs, afterMs * (1 + random() / 2)))
    if (name !== 'connecting') this.#tellReconnecting(reason)
  }

  #tellReconnecting(reason: string | null): void {
    const { state } = this
    const attempt = this.#attempt
    if (state.name === 'reconnecting' && state.attempt === attempt) return
    this.#change({ name: 'reconnecting', attempt, giveUpAt: this.#giveUpAt }, reason)
  }

  #retryAfter(ms: number): void {
    this.#after('retry', ms, () => this.#open())
  }

  #giveUpLater(ms: number): void {
    this.#giveUpAt = this.#platform.clock.now() + ms
    this.#after('giveUp', ms, () => {
      const first = this.#state.name === 'connecting'
      const reason = first ? 'the server could not be reached' : 'the connection did not come back'
      this.end(endingOf(first ? 'unreachable' : 'connection_lost', reason))
    })
  }

  #windowOnOnline(): void {
    if (this.#state.name === 'live') return this.#probe()
    this.#closeSocket()
    this.#attempt = 0
    this.#retryAfter(0)
  }

  /** The network changed: unless something is heard soon, the socket is given up. */
  #probe(): void {
    if (this.#welcome === null) return
    this.send({ type: 'ping' })
    this.#giveUpSocketAfter(CLIENT_LIMITS.probeMs, 'the connection does not answer')
  }

  #heard(): void {
    if (this.#welcome === null) return
    this.#giveUpSocketAfter(this.#welcome.deadMs, 'the connection fell silent')
  }

  #giveUpSocketAfter(ms: number, reason: string): void {
    this.#after('dead', ms, () => this.#lost(1006, reason))
  }

  #pingLater(): void {
    if (this.#welcome === null) return
    this.#after('ping', this.#welcome.pingMs, () => this.send({ type: 'ping' }))
  }

  #closeSocket(number?: number): void {
    const socket = this.#socket
    this.#socket = null
    this.#welcome = null
    this.#cancel('ping', 'dead', 'stable')
    try {
      socket?.close(number)
    } catch {
      // It is gone already.
    }
  }

  #after(wait: Wait, ms: number, run: () => void): void {
    this.#timers.get(wait)?.()
    this.#timers.set(wait, this.#platform.clock.after(ms, run))
  }

  #cancel(...waits: readonly Wait[]): void {
    for (const wait of waits) this.#timers.get(wait)?.()
  }

  #change(state: ClientState, reason: string | null = null): void {
    this.#state = state
    this.#owner.changed(state, reason)
  }
}

/** A watcher attaches anew, so the session's policy is not about it; it tries as long as others. */
function graceOf({ role, resume, session }: WelcomeBase): number | null {
  const { reconnect, graceMs } = session
  if (role === 'watcher') return Math.max(graceMs, CLIENT_LIMITS.firstWelcomeMs)
  return reconnect === 'none' || resume === null ? null : graceMs
}

/** The frames of one message; null if it has none. */
function parseFrames(text: string): readonly ServerFrame[] | null {
  try {
    const message = JSON.parse(text) as unknown
    const frames = Array.isArray(message) ? (message as unknown[]) : [message]
    return frames.every(isFrame) ? frames : null
  } catch {
    return null
  }
}

function isFrame(value: unknown): value is ServerFrame {
  return typeof value === 'object' && value !== null && 'type' in value
}
