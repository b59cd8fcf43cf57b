/**
 * A socket that came to the wrong node: its messages go to the owner and back as they are. When
 * either end closes, so does the other, with the same code and reason.
 */
import { WebSocket, type RawData } from 'ws'
import type { ForwardedSocket, ForwardedSocketOptions } from '../../doors/connect/socket.ts'
import { answerPings, SOCKET_OPTIONS } from '../../wire/control-frames.ts'
import { FORWARD_LIMITS } from '../limits.ts'
import { CLIENT_HEADER, SEAL_HEADER, type Seal } from './seal.ts'

export const CONNECT_PATH = '/v1/connect'

/** Codes that stand for a broken connection, and may not be sent. */
const BROKEN: ReadonlySet<number> = new Set([1005, 1006, 1015])
const COME_BACK = 1012
const AS_TEXT = { binary: false }

export class OwnerSocket implements ForwardedSocket {
  readonly #options: ForwardedSocketOptions
  /** What was said before the other node could be reached. */
  #waiting: (string | Buffer)[]
  #socket: WebSocket | null = null
  #isOver = false

  constructor(seal: Seal, url: Promise<string | null>, options: ForwardedSocketOptions) {
    this.#options = options
    this.#waiting = [options.hello]
    void url.then((to) => this.#open(seal, to))
  }

  #open(seal: Seal, to: string | null): void {
    if (this.#isOver) return
    // The client comes back.
    if (to === null) return this.#end(1006, '')
    const { address, path = CONNECT_PATH, headers = {}, messageBytesMax } = this.#options
    const url = new URL(`${to.replace(/\/$/, '')}${path}`.replace(/^http/, 'ws'))
    const sealed = seal.make({ method: 'GET', url: url.pathname + url.search, from: address })
    const socket = new WebSocket(url, {
      headers: { ...headers, [SEAL_HEADER]: sealed, [CLIENT_HEADER]: address },
      handshakeTimeout: FORWARD_LIMITS.connectMs,
      ...SOCKET_OPTIONS,
      ...(messageBytesMax === undefined ? {} : { maxPayload: messageBytesMax }),
    })
    this.#socket = socket
    answerPings(socket)
    socket.on('open', () => {
      for (const message of this.#waiting.splice(0)) socket.send(message, AS_TEXT)
    })
    socket.on('message', (data: RawData) => this.#options.onMessage(data as Buffer))
    socket.on('close', (code, reason) => this.#end(code, reason.toString()))
    // The close event follows.
    socket.on('error', () => undefined)
  }

  send(message: string | Buffer): void {
    const socket = this.#socket
    if (socket?.readyState === WebSocket.OPEN) {
      if (socket.bufferedAmount > this.#options.bufferedBytesMax) return socket.terminate()
      return socket.send(message, AS_TEXT)
    }
    if (this.#waiting.length < FORWARD_LIMITS.messagesWaitingMax) this.#waiting.push(message)
  }

  close(code = 1006): void {
    if (this.#isOver) return
    this.#isOver = true
    // As abrupt as it was on the other side: the session's policy decides what that means.
    if (BROKEN.has(code)) this.#socket?.terminate()
    else this.#socket?.close(code)
  }

  #end(code: number, reason: string): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#waiting = []
    this.#options.onClose(BROKEN.has(code) ? COME_BACK : code, reason)
  }
}
