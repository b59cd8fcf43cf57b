/** A stock client: its socket is its connection, and when that is lost its sessions are. */
import type { HoldfastError } from '../../core/index.ts'
import { closeCode } from '../../wire/error-table.ts'
import type { Socket } from '../connect/socket.ts'
import type { CdpLimits } from './limits.ts'
import type { Carrier, AttachedClient } from './attached-client.ts'

/** A WebSocket as this door sees it. */
export interface CdpSocket extends Socket {
  /** Cuts a client that does not read, and reports it. */
  cutSlow(): void
  /** Whether what the client sends is left unread; the client then has to wait with it. */
  setPaused(isPaused: boolean): void
}

/** What the server needs of any connection to a browser. */
export interface CdpConnection {
  receive(data: Buffer): void
  /** The socket is closed. */
  closed(code: number): void
}

/** Closed on purpose, with or without a code. */
const GOODBYES: ReadonlySet<number> = new Set([1000, 1005])

export class StockConnection implements Carrier, CdpConnection {
  readonly mayReturn = false
  readonly isAway = false
  readonly #limits: CdpLimits
  #attached: AttachedClient | null = null
  #socket: CdpSocket | null = null
  #isPaused = false
  #isOver = false

  constructor(limits: CdpLimits) {
    this.#limits = limits
  }

  /** The client is admitted, and its socket is open. */
  connect(attached: AttachedClient, socket: CdpSocket): this {
    this.#attached = attached
    if (this.#isOver) socket.close(1011, 'session_closed')
    else this.#socket = socket
    if (this.#isPaused) this.#socket?.setPaused(true)
    return this
  }

  receive(data: Buffer): void {
    this.#attached?.client?.receive(data)
  }

  closed(code: number): void {
    this.#socket = null
    if (GOODBYES.has(code)) this.#attached?.leave()
    else void this.#attached?.lose()
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused
    this.#socket?.setPaused(isPaused)
  }

  deliver(message: Buffer): void {
    const socket = this.#socket
    if (socket === null) return
    // A client that does not read is cut before its unread messages fill the memory.
    if (socket.bufferedBytes > this.#limits.unreadBytesMax) return socket.cutSlow()
    socket.send(message)
  }

  end({ code }: HoldfastError): void {
    this.#isOver = true
    const socket = this.#socket
    this.#socket = null
    // What is not read is not closed either.
    socket?.setPaused(false)
    socket?.close(closeCode(code), code)
  }
}
