/**
 * A client whose connection may be lost and taken up again: what it has not confirmed is kept, and
 * its sessions go on meanwhile. Kept within a bound: past it the client is given up (I7, I9).
 */
import { HoldfastError, type Clock } from '../../core/index.ts'
import { closeCode } from '../../wire/error-table.ts'
import { HELD_ACK, Unconfirmed, writeHeldFrame, type HeldFrame } from '../../wire/held.ts'
import type { CdpLimits } from './limits.ts'
import { eventMethod } from './message.ts'
import type { Carrier } from './seat.ts'
import type { CdpSocket } from './socket-carrier.ts'

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
  readonly #unconfirmed = new Unconfirmed<Buffer>()
  #socket: CdpSocket | null = null
  /** Messages of the client that have come, and how many of them it knows of. */
  #received = 0
  #confirmed = 0
  #uncountedBytes = 0
  #cancelAck: (() => void) | null = null
  #cancelAbsence: (() => void) | null = null
  #isAway = false
  #isPaused = false
  #isOver = false
  /** Told when nobody has been there for a while. */
  onAway: () => void = () => undefined
  /** Told when more has to be kept than may be. */
  onOverflow: () => void = () => undefined

  constructor(limits: CdpLimits, clock: Clock) {
    this.#limits = limits
    this.#clock = clock
  }

  get isAway(): boolean {
    return this.#isAway
  }

  /** What is kept for it. */
  get keptBytes(): number {
    return this.#unconfirmed.bytes
  }

  get received(): number {
    return this.#received
  }

  /** Goes on with the message after the last one that came. Throws if it never was sent. */
  resume(received: number): void {
    if (!this.#unconfirmed.confirm(received)) {
      throw new HoldfastError('ahead', 'more messages are said to have come than were sent')
    }
  }

  /** False if it is over already. */
  connect(socket: CdpSocket, welcome: HeldFrame): boolean {
    if (this.#isOver) return false
    this.#cancelAbsence?.()
    this.#cancelAbsence = null
    this.#isAway = false
    const older = this.#socket
    this.#socket = socket
    older?.setPaused(false)
    older?.close(closeCode('superseded'), 'superseded')
    socket.send(writeHeldFrame(welcome))
    this.#confirmed = this.#received
    for (const message of this.#unconfirmed.all()) socket.send(message)
    if (this.#isPaused) socket.setPaused(true)
    return true
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused
    this.#socket?.setPaused(isPaused)
  }

  /** Whether this socket was the one that counts. */
  disconnected(socket: CdpSocket): boolean {
    if (this.#socket !== socket) return false
    this.#socket = null
    this.#cancelAck?.()
    this.#cancelAck = null
    this.#cancelAbsence = this.#clock.after(this.#limits.absentMs, () => {
      this.#isAway = true
      this.onAway()
    })
    return true
  }

  isCurrent(socket: CdpSocket): boolean {
    return this.#socket === socket
  }

  deliver(message: Buffer): void {
    if (this.#isOver) return
    if (this.#socket === null && DROPPABLE.has(eventMethod(message) ?? '')) return
    // One that is larger than the bound itself may come, but none after it.
    if (this.#unconfirmed.bytes > this.#limits.heldBytesMax) return this.onOverflow()
    const kept = message.length < COPY_BYTES ? Buffer.from(message) : message
    this.#unconfirmed.push(kept)
    this.#socket?.send(kept)
  }

  confirm(received: number): void {
    if (!this.#unconfirmed.confirm(received)) {
      throw new HoldfastError('ahead', 'more messages are said to have come than were sent')
    }
  }

  /** A message of the client has come. */
  count(bytes: number): void {
    this.#received += 1
    this.#uncountedBytes += bytes
    const due = this.#received - this.#confirmed >= HELD_ACK.messages
    if (due || this.#uncountedBytes >= HELD_ACK.bytes) return this.#ack()
    this.#cancelAck ??= this.#clock.after(HELD_ACK.ms, () => this.#ack())
  }

  #ack(): void {
    this.#cancelAck?.()
    this.#cancelAck = null
    this.#confirmed = this.#received
    this.#uncountedBytes = 0
    this.say({ type: 'ack', received: this.#received })
  }

  say(frame: HeldFrame): void {
    this.#socket?.send(writeHeldFrame(frame))
  }

  end({ code, message }: HoldfastError): void {
    this.#isOver = true
    this.#cancelAck?.()
    this.#cancelAbsence?.()
    const socket = this.#socket
    this.#socket = null
    socket?.setPaused(false)
    // This place is gone for good, unless a server that starts anew knows better.
    const retry = code === 'draining'
    socket?.send(writeHeldFrame({ type: 'end', code, reason: message, retry }))
    socket?.close(closeCode(code), code)
  }
}
