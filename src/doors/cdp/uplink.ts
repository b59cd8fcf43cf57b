/**
 * Sends messages to a browser for all of its clients. Chromium buffers whatever it is sent, so a
 * drained pipe says little: after `signBytes` the browser is asked for a sign that it has processed
 * all of that, and while more than `underwayBytesMax` is unconfirmed, further messages wait here.
 *
 * 1. The messages of one client keep their order.
 * 2. The client that has sent the fewest bytes is next: a flood delays others only by what is
 *    unconfirmed already.
 * 3. The server does not read from a client whose messages wait, so its queue stays small.
 */
import { NAMES_BYTES, type CdpLimits } from './limits.ts'
import type { MessageParts } from './protocol.ts'

type QueuedMessage = { readonly parts: MessageParts; readonly bytes: number }

export class FairQueue {
  /** Commands that have no reply; `BrowserLink` counts them. */
  unanswered = 0
  unansweredBytes = 0
  readonly waiting: QueuedMessage[] = []
  /** Bytes sent so far, in virtual time: the client with the lowest value is next. */
  turn = 0
  /** Called with true when its messages begin to wait, with false when all of them are sent. */
  readonly onWaiting: (isWaiting: boolean) => void

  constructor(onWaiting: (isWaiting: boolean) => void) {
    this.onWaiting = onWaiting
  }
}

type UplinkOptions = {
  readonly send: (...parts: MessageParts) => void
  readonly limits: Pick<CdpLimits, 'underwayBytesMax' | 'signBytes' | 'messageBytesMax'>
  /** Asks the browser for a sign, which comes when everything sent before is processed. */
  readonly askForSign: (onSign: () => void) => void
}

export class Uplink {
  readonly #options: UplinkOptions
  readonly #waiting = new Set<FairQueue>()
  /** What the browser has been sent, and has not confirmed by a sign. */
  underwayBytes = 0
  /** Of these, sent since the last sign was requested. */
  #unsignedBytes = 0
  /** The turn that was taken last: an idle client starts from here and saves up nothing. */
  #turn = 0

  constructor(options: UplinkOptions) {
    this.#options = options
  }

  /** Clients whose messages wait. */
  get waiting(): number {
    return this.#waiting.size
  }

  /** Without a queue the message is the door's own, and sent at once. Throws if it is too large. */
  send(parts: MessageParts, queue: FairQueue | null): number {
    const bytes = bytesOf(parts)
    // Chromium would stop reading for good.
    if (bytes > this.#options.limits.messageBytesMax + NAMES_BYTES) {
      throw new RangeError('the message is too large')
    }
    if (queue === null) this.#pass({ parts, bytes })
    else this.#enqueue(queue, { parts, bytes })
    return bytes
  }

  #enqueue(queue: FairQueue, message: QueuedMessage): void {
    queue.turn = Math.max(queue.turn, this.#turn)
    if (this.#waiting.size === 0 && this.#hasRoom) return this.#take(queue, message)
    queue.waiting.push(message)
    if (this.#waiting.has(queue)) return
    this.#waiting.add(queue)
    queue.onWaiting(true)
  }

  get #hasRoom(): boolean {
    return this.underwayBytes < this.#options.limits.underwayBytesMax
  }

  #take(queue: FairQueue, message: QueuedMessage): void {
    this.#turn = queue.turn
    queue.turn += message.bytes
    this.#pass(message)
  }

  #pass({ parts, bytes }: QueuedMessage): void {
    const { send, limits, askForSign } = this.#options
    send(...parts)
    this.underwayBytes += bytes
    this.#unsignedBytes += bytes
    if (this.#unsignedBytes < limits.signBytes) return
    const signed = this.#unsignedBytes
    this.#unsignedBytes = 0
    askForSign(() => {
      this.underwayBytes -= signed
      this.#goOn()
    })
  }

  #goOn(): void {
    while (this.#hasRoom) {
      let [next] = this.#waiting
      for (const queue of this.#waiting)
        if (next !== undefined && queue.turn < next.turn) next = queue
      const message = next?.waiting.shift()
      if (next === undefined || message === undefined) return
      this.#take(next, message)
      if (next.waiting.length > 0) continue
      this.#waiting.delete(next)
      next.onWaiting(false)
    }
  }

  /** The client is gone: its waiting messages are not sent. */
  leave(queue: FairQueue): void {
    queue.waiting.length = 0
    this.#waiting.delete(queue)
  }

  close(): void {
    for (const queue of this.#waiting) this.leave(queue)
  }
}

function bytesOf(parts: MessageParts): number {
  let bytes = 0
  for (const part of parts) {
    bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.length
  }
  return bytes
}
