/**
 * A client of a browser session: its attachment, which the authority knows, and what carries its
 * messages. A lost connection is reported to the authority, which decides what the loss means.
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
import type { CdpLimits } from './limits.ts'
import { eventMethod } from './protocol.ts'

export abstract class AttachedClient {
  readonly session: SessionHandle
  readonly carrier: Carrier
  attachment: AttachmentHandle
  /** Its connection is lost and cannot be resumed; another one may get its attachment. */
  isLost = false
  isOver = false

  constructor(session: SessionHandle, carrier: Carrier, attachment: AttachmentHandle) {
    this.session = session
    this.carrier = carrier
    this.attachment = attachment
    carrier.attached = this
  }

  /** The page that it is connected to; null: the browser. */
  abstract readonly target: string | null
  /** Logs a warning in its CDP sessions with a page; null: in those with any page. */
  abstract warn(text: string, page: string | null): void
  abstract receive(data: Buffer): void
  /** The client is away: whatever waits for it goes on. */
  abstract actForAbsent(): void
  /** Its sessions are over, but its contexts and pages stay for now. */
  abstract endSessions(): void
  /** The client is gone for good, with everything that ends with it. */
  protected abstract remove(): void

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
    this.endSessions()
    // A session that is gone meanwhile has ended its attachments already.
    await this.attachment.lose().catch(() => undefined)
  }

  /** The attachment is over, or the session, or the browser. */
  end(error: HoldfastError): void {
    if (this.isOver) return
    this.isOver = true
    this.endSessions()
    this.remove()
    this.carrier.end(error)
  }
}

/** A WebSocket as this door sees it. */
export interface CdpSocket extends Socket {
  /** Cuts a client that does not read, and reports it. */
  cutSlow?(): void
}

type Line = { readonly socket: CdpSocket; refuse(error: HoldfastError): void }

/** What carries a client's messages to it: a socket, or one that may be replaced. */
export abstract class Carrier {
  /** Whether a lost connection can be resumed. */
  abstract readonly mayReturn: boolean
  /** The client has been disconnected for a while, but may come back. */
  isAway = false
  /** The client that it is for, once that is attached. */
  attached: AttachedClient | null = null
  protected line: Line | null = null
  protected isOver = false
  protected readonly limits: CdpLimits
  #isPaused = false

  constructor(limits: CdpLimits) {
    this.limits = limits
  }

  abstract deliver(message: Buffer): void

  protected open(line: Line): void {
    this.line = line
    if (this.#isPaused) line.socket.setPaused?.(true)
  }

  /** Whether the server stops reading from the client. */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused
    this.line?.socket.setPaused?.(isPaused)
  }

  /** The client's attachment is over, for this reason. */
  end(error: HoldfastError): void {
    this.isOver = true
    const { line } = this
    this.line = null
    // What is not read is not closed either.
    line?.socket.setPaused?.(false)
    line?.refuse(error)
  }
}

/** A stock client: its socket is its connection, and when that is lost its sessions are. */
export class StockConnection extends Carrier {
  readonly mayReturn = false

  /** The client is admitted, and its socket is open. */
  connect(socket: CdpSocket): this {
    const refuse = ({ code }: HoldfastError): void => socket.close(closeCode(code), code)
    if (this.isOver) socket.close(1011, 'session_closed')
    else this.open({ socket, refuse })
    return this
  }

  receive(data: Buffer): void {
    this.attached?.receive(data)
  }

  closed(code: number): void {
    this.line = null
    // Closed on purpose, with or without a code.
    if (code === 1000 || code === 1005) this.attached?.leave()
    else void this.attached?.lose()
  }

  deliver(message: Buffer): void {
    if (this.line === null) return
    const { socket } = this.line
    // A client that does not read is cut before its unread messages fill the memory.
    if (socket.bufferedBytes > this.limits.unreadBytesMax) return socket.cutSlow?.()
    socket.send(message)
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
export class HeldCarrier extends Carrier {
  readonly mayReturn = true
  readonly replay: MessageReplay<Buffer>
  readonly #clock: Clock
  #cancelAbsence: (() => void) | null = null

  constructor(limits: CdpLimits, clock: Clock) {
    super(limits)
    this.#clock = clock
    this.replay = new MessageReplay(clock)
  }

  connect(connection: Connection): void {
    this.#cancelAbsence?.()
    this.#cancelAbsence = null
    this.isAway = false
    this.open(connection)
    this.replay.connect({
      sendMessage: (message) => connection.socket.send(message),
      sendAck: (received) => connection.say({ type: 'ack', received }),
    })
  }

  /** A connection is over, which may never have been this client's. */
  disconnected(connection: Connection): void {
    if (this.isOver || (this.line ?? connection) !== connection) return
    this.line = null
    this.replay.disconnect()
    this.#cancelAbsence ??= this.#clock.after(this.limits.absentMs, () => {
      this.isAway = true
      this.attached?.actForAbsent()
    })
  }

  deliver(message: Buffer): void {
    if (this.isOver) return
    if (this.line === null && DROPPABLE.has(eventMethod(message))) return
    // One that is larger than the bound itself may come, but none after it.
    if (this.replay.bytes > this.limits.heldBytesMax) return this.giveUp()
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

  override end(error: HoldfastError): void {
    this.replay.disconnect()
    this.#cancelAbsence?.()
    super.end(error)
  }
}
