/** What a held connection needs of Node: sockets, time, chance. The simulator has others. */
import { WebSocket } from 'ws'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import {
  systemClock,
  type ClientSocket,
  type ClientSocketEvent,
  type Platform,
} from '../client/platform.ts'

export type HeldPlatform = Omit<Platform, 'storage'> & {
  /** Runs in a task of its own, in order. */
  readonly defer: (run: () => void) => void
}

/** How long an attempt to connect may take. */
const CONNECT_MS = 10_000
/** A socket is closed with this after an HTTP answer that would be the same the next time. */
const REFUSED = 1008

export function nodePlatform(token: string | undefined): HeldPlatform {
  return {
    webSocket: class extends NodeSocket {
      constructor(url: string) {
        super(url, token)
      }
    },
    clock: systemClock,
    random: Math.random,
    defer: (run) => void setImmediate(run),
  }
}

class NodeSocket implements ClientSocket {
  readonly #socket: WebSocket
  /** Why the handshake failed; the close event does not say. */
  #failure: ClientSocketEvent = {}

  constructor(url: string, token: string | undefined) {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
    const bounds = { maxPayload: 0, handshakeTimeout: CONNECT_MS }
    const socket = new WebSocket(url, { headers, ...bounds, ...SOCKET_OPTIONS })
    this.#socket = socket
    answerPings(socket)
    socket.on('unexpected-response', (_, { statusCode = 0 }) => {
      const isFinal = statusCode < 500 && statusCode !== 429
      const reason = `the server answered ${statusCode}`
      this.#failure = { reason, ...(isFinal ? { code: REFUSED } : {}) }
      socket.terminate()
    })
    socket.on('error', ({ message: reason }) => {
      this.#failure = { reason, ...this.#failure }
    })
  }

  send(data: string): void {
    this.#socket.send(data)
  }

  close(code?: number): void {
    this.#socket.close(code)
  }

  terminate(): void {
    this.#socket.terminate()
  }

  addEventListener(...[type, listener]: Parameters<ClientSocket['addEventListener']>): void {
    if (type !== 'close') return this.#socket.addEventListener(type as 'message', listener)
    this.#socket.on('close', (code: number, reason: Buffer) => {
      listener({ code, reason: reason.toString(), ...this.#failure })
    })
  }
}
