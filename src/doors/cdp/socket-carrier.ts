/** A stock client: its socket is its connection, and when that is lost its sessions are. */
import type { HoldfastError } from '../../core/index.ts'
import { closeCode } from '../../wire/error-table.ts'
import type { Socket } from '../connect/socket.ts'
import type { CdpLimits } from './limits.ts'
import type { Carrier } from './seat.ts'

/** A WebSocket as this door sees it. */
export interface CdpSocket extends Socket {
  /** Cuts a client that does not read, and reports it. */
  cutSlow(): void
  /** Whether what the client sends is left unread; the client then has to wait with it. */
  setPaused(isPaused: boolean): void
}

export class SocketCarrier implements Carrier {
  readonly mayReturn = false
  readonly isAway = false
  readonly #limits: CdpLimits
  #socket: CdpSocket | null = null
  #isPaused = false
  #isOver = false

  constructor(limits: CdpLimits) {
    this.#limits = limits
  }

  /** False if it is over already. */
  connect(socket: CdpSocket): boolean {
    if (this.#isOver) return false
    this.#socket = socket
    if (this.#isPaused) socket.setPaused(true)
    return true
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused
    this.#socket?.setPaused(isPaused)
  }

  disconnected(): void {
    this.#socket = null
  }

  deliver(message: Buffer): void {
    const socket = this.#socket
    if (socket === null) return
    // Whoever does not read is given up before what waits for it fills the memory.
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
