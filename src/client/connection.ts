/**
 * One socket's life: frames one way and the other, a ping when there was nothing else to say, and
 * an end when nothing was heard for too long. It reports exactly one end, and nothing after it.
 */
import type { ClientFrame, ServerFrame } from '../wire/frames.ts'
import type { ClientSocket, Platform } from './platform.ts'
import { CLIENT_LIMITS } from './reconnect.ts'

export interface ConnectionOwner {
  connectionOpened(): void
  connectionReceived(frames: readonly ServerFrame[]): void
  connectionEnded(code: number, reason: string): void
}

export class Connection {
  readonly #owner: ConnectionOwner
  readonly #platform: Platform
  readonly #socket: ClientSocket
  #over = false
  /** Null until the welcome has said how often. */
  #beat: { readonly pingMs: number; readonly deadMs: number } | null = null
  #cancelPing: () => void = () => undefined
  #cancelDead: () => void = () => undefined

  constructor(platform: Platform, url: string, owner: ConnectionOwner) {
    this.#owner = owner
    this.#platform = platform
    this.#socket = new platform.webSocket(url)
    this.#socket.addEventListener('open', () => this.#socketOnOpen())
    this.#socket.addEventListener('message', ({ data }) => this.#socketOnMessage(data))
    // A close follows, and says all there is to say. Unheard, `ws` would throw it.
    this.#socket.addEventListener('error', () => undefined)
    this.#socket.addEventListener('close', ({ code, reason }) => this.#fail(code ?? 1006, reason))
    this.#giveUpAfter(CLIENT_LIMITS.welcomeMs, 'the server did not answer in time')
  }

  send(frame: ClientFrame): void {
    this.sendText(JSON.stringify(frame))
  }

  sendText(json: string): void {
    if (this.#over) return
    this.#pingLater()
    try {
      this.#socket.send(json)
    } catch {
      // A socket that cannot send is about to say that it is closed.
    }
  }

  /** The welcome has arrived: from now on silence counts. */
  keepAlive(beat: { readonly pingMs: number; readonly deadMs: number }): void {
    this.#beat = beat
    this.#pingLater()
    this.#heard()
  }

  /** Something happened to the network: whatever is heard soon shows that this still works. */
  probe(): void {
    if (this.#beat === null) return
    this.send({ type: 'ping' })
    this.#giveUpAfter(CLIENT_LIMITS.probeMs, 'the connection does not answer')
  }

  /** Closes it from this side; nothing is reported. */
  end(code?: number): void {
    if (this.#over) return
    this.#over = true
    this.#cancelPing()
    this.#cancelDead()
    try {
      this.#socket.close(code)
    } catch {
      // It is gone already.
    }
  }

  #socketOnOpen(): void {
    if (!this.#over) this.#owner.connectionOpened()
  }

  #socketOnMessage(data: unknown): void {
    if (this.#over) return
    this.#heard()
    const frames = parseFrames(data)
    if (frames === null) return this.#fail(4400, 'the server does not speak this protocol')
    for (const { type } of frames) if (type === 'ping') this.send({ type: 'pong' })
    this.#owner.connectionReceived(frames)
  }

  #fail(code: number, reason = ''): void {
    if (this.#over) return
    this.end()
    this.#owner.connectionEnded(code, reason)
  }

  #heard(): void {
    if (this.#beat !== null) this.#giveUpAfter(this.#beat.deadMs, 'the connection fell silent')
  }

  #giveUpAfter(ms: number, reason: string): void {
    this.#cancelDead()
    this.#cancelDead = this.#platform.clock.after(ms, () => this.#fail(1006, reason))
  }

  #pingLater(): void {
    if (this.#beat === null) return
    this.#cancelPing()
    const ping = (): void => this.send({ type: 'ping' })
    this.#cancelPing = this.#platform.clock.after(this.#beat.pingMs, ping)
  }
}

/** The frames of one message, or null if it has none. */
function parseFrames(data: unknown): readonly ServerFrame[] | null {
  try {
    const message = JSON.parse(data as string) as unknown
    const frames = Array.isArray(message) ? (message as unknown[]) : [message]
    return frames.every(isFrame) ? frames : null
  } catch {
    return null
  }
}

function isFrame(value: unknown): value is ServerFrame {
  return typeof value === 'object' && value !== null && 'type' in value
}
