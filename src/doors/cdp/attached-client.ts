/**
 * A client of a browser session: its attachment, which the authority knows, its CDP sessions, and
 * what carries its messages. A lost connection is reported to the authority, which decides what the
 * loss means.
 */
import {
  HoldfastError,
  type AttachmentHandle,
  type Clock,
  type SessionHandle,
} from '../../core/index.ts'
import { closeCode } from '../../wire/error-table.ts'
import { MessageReplay } from '../../wire/replay.ts'
import type { Connection } from '../connect/connection.ts'
import type { Socket } from '../connect/socket.ts'
import type { CdpClient, Outlet } from './client.ts'
import type { CdpLimits } from './limits.ts'
import { eventMethod } from './protocol.ts'

/** What carries a client's messages to it: a socket, or one that may be replaced. */
export interface Carrier extends Outlet {
  /** The client that it is for, once that is attached. */
  attached: AttachedClient | null
  /** The client's attachment is over, for this reason. */
  end(error: HoldfastError): void
}

export class AttachedClient {
  readonly session: SessionHandle
  readonly carrier: Carrier
  attachment: AttachmentHandle
  client: CdpClient | null = null
  /** Its connection is lost and cannot be resumed; another one may get its attachment. */
  isLost = false
  isOver = false
  /** The client is gone for good, or another one has its attachment. */
  onEnd: () => void = () => undefined

  constructor(session: SessionHandle, carrier: Carrier, attachment: AttachmentHandle) {
    this.session = session
    this.carrier = carrier
    this.attachment = attachment
    carrier.attached = this
  }

  /** The client said goodbye, or cannot be served any longer for this reason. */
  leave(why?: HoldfastError): void {
    // One that has ended meanwhile has nothing left to leave.
    void this.attachment.leave(why?.code).catch(() => undefined)
    this.end(why ?? new HoldfastError('attachment_ended', 'the client has left'))
  }

  /** The connection is lost for good, but the place may be kept for the client's next one. */
  async lose(): Promise<void> {
    if (this.isOver || this.isLost) return
    this.isLost = true
    this.client?.endSessions()
    // A session that is gone meanwhile has ended its attachments already.
    await this.attachment.lose().catch(() => undefined)
  }

  /** The attachment is over, or the session, or the browser. */
  end(error: HoldfastError): void {
    if (this.isOver) return
    this.isOver = true
    this.client?.end()
    this.carrier.end(error)
    this.onEnd()
  }

  /** Another connection takes the place: what the client had made stays. */
  give({ client }: AttachedClient): void {
    this.isOver = true
    this.onEnd()
    if (this.client !== null && client !== null) this.client.tenant.handOver(this.client, client)
  }
}

/** A WebSocket as this door sees it. */
export interface CdpSocket extends Socket {
  /** Cuts a client that does not read, and reports it. */
  cutSlow(): void
  /** Whether what the client sends is left unread; the client then has to wait with it. */
  setPaused(isPaused: boolean): void
}

/** What the server needs of any connection to a browser. */
export type CdpConnection = Pick<StockConnection, 'receive' | 'closed'>

/** A stock client: its socket is its connection, and when that is lost its sessions are. */
export class StockConnection implements Carrier {
  readonly mayReturn = false
  readonly isAway = false
  attached: AttachedClient | null = null
  readonly #limits: CdpLimits
  #socket: CdpSocket | null = null
  #isPaused = false
  #isOver = false

  constructor(limits: CdpLimits) {
    this.#limits = limits
  }

  /** The client is admitted, and its socket is open. */
  connect(socket: CdpSocket): this {
    if (this.#isOver) socket.close(1011, 'session_closed')
    else this.#socket = socket
    if (this.#isPaused) this.#socket?.setPaused(true)
    return this
  }

  receive(data: Buffer): void {
    this.attached?.client?.receive(data)
  }

  closed(code: number): void {
    this.#socket = null
    // Closed on purpose, with or without a code.
    if (code === 1000 || code === 1005) this.attached?.leave()
    else void this.attached?.lose()
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

/** Events of which a client that was away misses nothing: the next one says it all again. */
const DROPPABLE: ReadonlySet<string | null> = new Set([
  ...['Network.dataReceived', 'Page.screencastFrame'],
  ...['Tracing.bufferUsage', 'Performance.metrics'],
])

/** Smaller messages are copied, so that they do not keep what they were cut from. */
const COPY_BYTES = 16_384

/**
 * A client whose connection may be lost and resumed: what it has not confirmed is kept, and its
 * sessions go on meanwhile. Kept within a bound: past it the client is given up (I7, I9).
 */
export class HeldCarrier implements Carrier {
  readonly mayReturn = true
  /** The client has been without a connection for a while. */
  isAway = false
  attached: AttachedClient | null = null
  readonly replay: MessageReplay<Buffer>
  readonly #limits: CdpLimits
  readonly #clock: Clock
  #connection: Connection | null = null
  #cancelAbsence: (() => void) | null = null
  #isPaused = false
  #isOver = false

  constructor(limits: CdpLimits, clock: Clock) {
    this.#limits = limits
    this.#clock = clock
    this.replay = new MessageReplay(clock)
  }

  connect(connection: Connection): void {
    this.#cancelAbsence?.()
    this.#cancelAbsence = null
    this.isAway = false
    this.#connection = connection
    if (this.#isPaused) connection.socket.setPaused?.(true)
    this.replay.connect({
      sendMessage: (message) => connection.socket.send(message),
      sendAck: (received) => connection.say({ type: 'ack', received }),
    })
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused
    this.#connection?.socket.setPaused?.(isPaused)
  }

  /** A connection is over, which may never have been this client's. */
  disconnected(connection: Connection): void {
    if (this.#isOver || (this.#connection ?? connection) !== connection) return
    this.#connection = null
    this.replay.disconnect()
    this.#cancelAbsence ??= this.#clock.after(this.#limits.absentMs, () => {
      this.isAway = true
      this.attached?.client?.actForAbsent()
    })
  }

  deliver(message: Buffer): void {
    if (this.#isOver) return
    if (this.#connection === null && DROPPABLE.has(eventMethod(message))) return
    // One that is larger than the bound itself may come, but none after it.
    if (this.replay.bytes > this.#limits.heldBytesMax) return this.giveUp()
    this.replay.send(message.length < COPY_BYTES ? Buffer.from(message) : message)
  }

  /** More has to be kept than may be. */
  giveUp(): void {
    this.attached?.leave(new HoldfastError('too_slow', 'more was missed than is kept'))
  }

  confirm(received: number): void {
    if (this.replay.confirm(received)) return
    throw new HoldfastError('ahead', 'more messages are said to have come than were sent')
  }

  end(error: HoldfastError): void {
    this.#isOver = true
    this.replay.disconnect()
    this.#cancelAbsence?.()
    const connection = this.#connection
    this.#connection = null
    // What is not read is not closed either.
    connection?.socket.setPaused?.(false)
    connection?.refuse(error)
  }
}
