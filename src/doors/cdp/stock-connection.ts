/** One socket of a stock client, and what the door needs of any socket. */
import type { Seat } from './seat.ts'
import type { CdpSocket, SocketCarrier } from './socket-carrier.ts'

export interface CdpConnection {
  receive(data: Buffer): void
  /** The socket is closed. */
  closed(code: number): void
}

/** Closed on purpose, with or without a code. */
const GOODBYES: ReadonlySet<number> = new Set([1000, 1005])

export class StockConnection implements CdpConnection {
  readonly #seat: Seat
  readonly #carrier: SocketCarrier

  constructor({ seat, carrier }: { seat: Seat; carrier: SocketCarrier }, socket: CdpSocket) {
    this.#seat = seat
    this.#carrier = carrier
    if (!carrier.connect(socket)) socket.close(1011, 'session_closed')
  }

  receive(data: Buffer): void {
    this.#seat.client?.receive(data)
  }

  closed(code: number): void {
    this.#carrier.disconnected()
    if (GOODBYES.has(code)) this.#seat.leave()
    else void this.#seat.lose()
  }
}
