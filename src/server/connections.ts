/**
 * The connections of a server, over all its ports: no more than there are descriptors for. When
 * there is no room for one more, the connection goes that has been idle for longest: one that sends
 * nothing, slowly, or nothing more. So whoever holds connections without using them keeps nobody
 * out. If all are in use, the new one is refused with an answer.
 */
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { HoldfastError, type Diagnose } from '../core/index.ts'
import { plainAddress } from './addresses.ts'
import { SERVER_LIMITS } from './limits.ts'
import { refuseUpgrade } from './upgrade.ts'

export type IsBusy = (socket: Duplex) => boolean

export class Connections {
  readonly max: number
  readonly #diagnose: Diagnose
  /** The one that was used longest ago first; each with whether a request of it is under way. */
  readonly #open = new Map<Duplex, IsBusy>()
  /** Sockets of a protocol of their own: these are never idle. */
  readonly #upgraded = new WeakSet<Duplex>()

  constructor(max: number, diagnose: Diagnose) {
    this.max = max
    this.#diagnose = diagnose
  }

  /** Counts a new connection, or refuses it. `isBusy`: whether a request of it is under way. */
  take(socket: Socket, isBusy: IsBusy): void {
    if (this.#open.size >= this.max && !this.#makeRoom()) {
      this.#tell('a connection was refused: there are too many', socket)
      refuseConnection(socket, 'there are too many connections')
      return
    }
    this.#open.set(socket, isBusy)
    socket.once('close', () => this.#open.delete(socket))
  }

  /** Something was asked or answered on it just now. */
  used(socket: Duplex): void {
    const isBusy = this.#open.get(socket)
    if (isBusy === undefined) return
    this.#open.delete(socket)
    this.#open.set(socket, isBusy)
  }

  upgraded(socket: Duplex): void {
    this.#upgraded.add(socket)
  }

  #makeRoom(): boolean {
    for (const [socket, isBusy] of this.#open) {
      if (this.#upgraded.has(socket) || isBusy(socket)) continue
      this.#open.delete(socket)
      socket.destroy()
      this.#tell('an idle connection was closed, for there are too many', socket as Socket)
      return true
    }
    return false
  }

  #tell(message: string, { remoteAddress = '' }: Socket): void {
    const address = plainAddress(remoteAddress)
    this.#diagnose('client_refused', message, { reason: 'too_many', address })
  }
}

/** One client has too many. Returns what it is told. */
export function refuseOfOne(socket: Socket): HoldfastError {
  return refuseConnection(socket, 'there are too many connections from this address')
}

/** Answers before anything is asked, and closes. */
function refuseConnection(socket: Socket, message: string): HoldfastError {
  const error = new HoldfastError('too_many', message, { retryAfterMs: 1_000 })
  answerAndClose(socket, error)
  return error
}

/** Answers with this refusal, outside of any exchange, and closes soon after. */
export function answerAndClose(socket: Duplex, error: HoldfastError): void {
  // It is refused and closed: that it broke before changes nothing.
  socket.on('error', () => undefined)
  refuseUpgrade(socket, error)
  const cut = setTimeout(() => socket.destroy(), SERVER_LIMITS.farewellMs)
  socket.once('close', () => clearTimeout(cut))
}
