/**
 * A client whose connection may be lost and resumed: what it has not confirmed is kept, and its
 * sessions go on meanwhile. Kept within a bound: past it the client is given up (I7, I9).
 */
import { HoldfastError, type Clock } from '../../core/index.ts'
import { MessageReplay } from '../../wire/replay.ts'
import type { Connection } from '../connect/connection.ts'
import type { CdpLimits } from './limits.ts'
import { eventMethod } from './message.ts'
import type { Carrier } from './attached-client.ts'

/** Events of which a client that was away misses nothing: the next one says it all again. */
const DROPPABLE: ReadonlySet<string> = new Set([
  'Network.dataReceived',
  'Page.screencastFrame',
  'Tracing.bufferUsage',
  'Performance.metrics',
])

/** Smaller ones are copied, so that they do not keep what they were cut from. */
const COPY_BYTES = 16_384

export class HeldCarrier implements Carrier {
  readonly mayReturn = true
  readonly #limits: CdpLimits
  readonly #clock: Clock
  readonly #replay: MessageReplay<Buffer>
  #connection: Connection | null = null
  #cancelAbsence: (() => void) | null = null
  #isAway = false
  #isPaused = false
  #isOver = false
  /** Called when the client has been without a connection for a while. */
  onAway: () => void = () => undefined
  /** Called when more has to be kept than may be. */
  onOverflow: () => void = () => undefined

  constructor(limits: CdpLimits, clock: Clock) {
    this.#limits = limits
    this.#clock = clock
    this.#replay = new MessageReplay(clock)
  }

  get isAway(): boolean {
    return this.#isAway
  }

  /** What is kept for it. */
  get keptBytes(): number {
    return this.#replay.bytes
  }

  get received(): number {
    return this.#replay.received
  }

  connect(connection: Connection): void {
    this.#cancelAbsence?.()
    this.#cancelAbsence = null
    this.#isAway = false
    this.#connection = connection
    if (this.#isPaused) connection.socket.setPaused?.(true)
    this.#replay.connect({
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
    this.#replay.disconnect()
    this.#cancelAbsence ??= this.#clock.after(this.#limits.absentMs, () => {
      this.#isAway = true
      this.onAway()
    })
  }

  deliver(message: Buffer): void {
    if (this.#isOver) return
    if (this.#connection === null && DROPPABLE.has(eventMethod(message) ?? '')) return
    // One that is larger than the bound itself may come, but none after it.
    if (this.#replay.bytes > this.#limits.heldBytesMax) return this.onOverflow()
    this.#replay.send(message.length < COPY_BYTES ? Buffer.from(message) : message)
  }

  confirm(received: number): void {
    if (this.#replay.confirm(received)) return
    throw new HoldfastError('ahead', 'more messages are said to have come than were sent')
  }

  /** A message of the client has come. */
  count(message: Buffer): void {
    this.#replay.count(message)
  }

  end(error: HoldfastError): void {
    this.#isOver = true
    this.#replay.disconnect()
    this.#cancelAbsence?.()
    const connection = this.#connection
    this.#connection = null
    // What is not read is not closed either.
    connection?.socket.setPaused?.(false)
    connection?.refuse(error)
  }
}
