/**
 * Keeps a session connected: opens a connection, says hello, and comes back when it is lost.
 *
 * 1. At most one connection is in use; what an older one says is not heard.
 * 2. It ends by a decision of the server, by this client's own, or when the grace time is over: it
 *    never looks alive when it is not.
 * 3. What only a person may decide is never done by itself: `superseded` and `in_use` end it.
 */
import type { ClientFrame, Hello, ServerFrame, Welcome } from '../wire/frames.ts'
import { Connection, type ConnectionOwner } from './connection.ts'
import type { Ending } from './errors.ts'
import { watchNetwork, type Platform } from './platform.ts'
import {
  CLIENT_LIMITS,
  backoffMs,
  endingOf,
  readClose,
  readRefusal,
  type Verdict,
} from './reconnect.ts'

export type ClientState =
  /** For the first time; or again, and then everything comes again from the beginning. */
  | { readonly name: 'connecting' }
  | { readonly name: 'live' }
  /** `giveUpAt` is in milliseconds since 1970. */
  | { readonly name: 'reconnecting'; readonly attempt: number; readonly giveUpAt: number }
  | ({ readonly name: 'ended' } & Ending)

export interface LineOwner {
  hello(): Hello
  /** Not yet the moment to call anybody's handlers: `changed` follows. */
  welcomed(welcome: Welcome): void
  received(frame: ServerFrame): void
  /** All of a message was received. */
  caughtUp(): void
  /** Whether another hello may succeed at once where this one was refused. */
  rethink(code: string): 'no' | 'yes' | 'from the beginning'
  changed(state: ClientState): void
}

/** Cancels a timer; does nothing if it has run. */
type Cancel = () => void
const nothing: Cancel = () => undefined

export class Line implements ConnectionOwner {
  readonly #platform: Platform
  readonly #url: string
  readonly #owner: LineOwner
  #state: ClientState = { name: 'connecting' }
  #connection: Connection | null = null
  /** How long to try to come back, by the last welcome; null where nobody may. */
  #graceMs: number | null = CLIENT_LIMITS.firstWelcomeMs
  #attempt = 0
  #giveUpAt = 0
  #said: { readonly code: string; readonly reason: string } | null = null
  #cancelRetry = nothing
  #cancelGiveUp = nothing
  #cancelStable = nothing
  #unwatch = nothing

  constructor(platform: Platform, url: string, owner: LineOwner) {
    this.#platform = platform
    this.#url = url
    this.#owner = owner
  }

  get state(): ClientState {
    return this.#state
  }

  /** Opens it, for the first time or after its end. */
  start(): void {
    this.#attempt = 0
    this.#graceMs = CLIENT_LIMITS.firstWelcomeMs
    this.#unwatch = watchNetwork(
      () => this.#windowOnOnline(),
      () => this.#connection?.probe(),
    )
    if (this.#state.name !== 'connecting') this.#change({ name: 'connecting' })
    this.#giveUpLater(CLIENT_LIMITS.firstWelcomeMs)
    this.#open()
  }

  send(frame: ClientFrame): void {
    this.#connection?.send(frame)
  }

  sendText(json: string): void {
    this.#connection?.sendText(json)
  }

  /** Opens another connection in place of this one, to say another hello. */
  renew(): void {
    if (this.#state.name === 'ended') return
    this.#connection?.end()
    this.#connection = null
    this.#cancelStable()
    this.#attempt = 0
    this.#giveUpLater(this.#graceMs ?? CLIENT_LIMITS.firstWelcomeMs)
    this.#retryAfter(0)
    if (this.#state.name === 'live') this.#tellReconnecting()
  }

  /** Ends it from this side. */
  end(ending: Ending, number = 1000): void {
    if (this.#state.name === 'ended') return
    this.#connection?.end(number)
    this.#connection = null
    this.#unwatch()
    for (const cancel of [this.#cancelRetry, this.#cancelGiveUp, this.#cancelStable]) cancel()
    this.#change({ name: 'ended', ...ending })
  }

  #open(): void {
    this.#said = null
    try {
      this.#connection = new Connection(this.#platform, this.#url, this)
    } catch (error) {
      this.connectionEnded(1006, error instanceof Error ? error.message : String(error))
    }
  }

  connectionOpened(): void {
    this.#connection?.send(this.#owner.hello())
  }

  connectionReceived(frames: readonly ServerFrame[]): void {
    const connection = this.#connection
    for (const frame of frames) {
      this.#receive(frame)
      if (this.#connection !== connection) return
    }
    this.#owner.caughtUp()
  }

  connectionEnded(number: number, reason: string): void {
    this.#judge(readClose(number, reason, this.#said))
  }

  #receive(frame: ServerFrame): void {
    switch (frame.type) {
      case 'welcome':
        return this.#welcome(frame)
      case 'refuse':
        return this.#judge(readRefusal(frame))
      case 'superseded':
        return this.#judge(readClose(4408, 'continued in another place', null))
      case 'ending':
        this.#said = frame
        return
      case 'ping':
      case 'pong':
        return
      default:
        if (this.#state.name === 'live') this.#owner.received(frame)
    }
  }

  #welcome(welcome: Welcome): void {
    if (this.#state.name === 'live') return
    this.#cancelGiveUp()
    this.#graceMs = graceOf(welcome)
    this.#connection?.keepAlive(welcome)
    this.#cancelStable = this.#platform.clock.after(CLIENT_LIMITS.stableMs, () => {
      this.#attempt = 0
    })
    // Live first: what is to be sent again leaves before a handler has something new to send.
    this.#state = { name: 'live' }
    this.#owner.welcomed(welcome)
    this.#change(this.#state)
  }

  /** The connection is of no more use: come back, try another way, or end. */
  #judge(verdict: Verdict): void {
    this.#connection?.end()
    this.#connection = null
    this.#cancelStable()
    if (verdict.back) return this.#comeBack(verdict)
    const rethought = this.#owner.rethink(verdict.code)
    if (rethought === 'no') return this.end(endingOf(verdict.code, verdict.reason, verdict.hint))
    this.#giveUpLater(this.#graceMs ?? CLIENT_LIMITS.firstWelcomeMs)
    this.#retryAfter(0)
    if (rethought === 'from the beginning') this.#change({ name: 'connecting' })
  }

  #comeBack({ afterMs, reason }: Verdict): void {
    const wasLive = this.#state.name === 'live'
    if (wasLive && this.#graceMs === null) {
      return this.end(endingOf('connection_lost', reason, 'start_new'))
    }
    if (wasLive) this.#giveUpLater(this.#graceMs ?? 0)
    this.#attempt += 1
    const { random } = this.#platform
    const waitMs = backoffMs(this.#attempt, random())
    this.#retryAfter(afterMs === 0 ? waitMs : Math.max(waitMs, afterMs * (1 + random() / 2)))
    if (this.#state.name !== 'connecting') this.#tellReconnecting()
  }

  #tellReconnecting(): void {
    const { state } = this
    const attempt = this.#attempt
    const giveUpAt = this.#giveUpAt
    if (state.name === 'reconnecting' && state.attempt === attempt) return
    this.#change({ name: 'reconnecting', attempt, giveUpAt })
  }

  #retryAfter(ms: number): void {
    this.#cancelRetry()
    this.#cancelRetry = this.#platform.clock.after(ms, () => this.#open())
  }

  #giveUpLater(ms: number): void {
    const { clock } = this.#platform
    this.#giveUpAt = clock.now() + ms
    this.#cancelGiveUp()
    this.#cancelGiveUp = clock.after(ms, () => this.#giveUp())
  }

  #giveUp(): void {
    const first = this.#state.name === 'connecting'
    const reason = first ? 'the server could not be reached' : 'the connection did not come back'
    this.end(endingOf(first ? 'unreachable' : 'connection_lost', reason))
  }

  /** Whatever was tried without a network is tried again at once. */
  #windowOnOnline(): void {
    if (this.#state.name === 'live') return this.#connection?.probe()
    this.#connection?.end()
    this.#connection = null
    this.#attempt = 0
    this.#retryAfter(0)
  }

  #change(state: ClientState): void {
    this.#state = state
    this.#owner.changed(state)
  }
}

/** A watcher attaches anew, so the session's policy is not about it; it tries as long as others. */
function graceOf({ role, resume, session }: Welcome): number | null {
  const { reconnect, graceMs } = session
  if (role === 'watcher') return Math.max(graceMs, CLIENT_LIMITS.firstWelcomeMs)
  return reconnect === 'none' || resume === null ? null : graceMs
}
