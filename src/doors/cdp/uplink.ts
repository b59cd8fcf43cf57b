/**
 * The way up to a browser, which all of its clients share. Chromium takes in whatever it is sent
 * and works it off later, so what it has read says little: after so many bytes it is asked for a
 * sign, and while too much is on its way the rest waits here.
 *
 * 1. Of one client everything keeps its order.
 * 2. Who has sent the least comes first, counted in bytes: nobody's flood makes others wait longer
 *    than for what is on its way already.
 * 3. A client whose messages wait is not listened to meanwhile, so that what waits stays small.
 */
import type { CdpLimits } from './limits.ts'

export type Parts = readonly (string | Uint8Array)[]

/** Where the messages go. */
export interface Sender {
  send(...parts: Parts): void
}

/** By so much a message may grow when its ids are replaced. */
export const NAMES_BYTES = 128

type Waiting = { readonly parts: Parts; readonly bytes: number }

/** One client's share of the way. */
export class Share {
  /** What it has sent and has no reply to. */
  unansweredBytes = 0
  readonly waiting: Waiting[] = []
  /** Its place in the order of turns: whoever has the lowest comes first. */
  turn = 0
  /** Told that its messages wait, and that they have all gone up. */
  readonly onWaiting: (isWaiting: boolean) => void

  constructor(onWaiting: (isWaiting: boolean) => void) {
    this.onWaiting = onWaiting
  }
}

export type UplinkOptions = {
  readonly sender: Sender
  readonly limits: Pick<CdpLimits, 'underwayBytesMax' | 'signBytes' | 'messageBytesMax'>
  /** Asks the browser for a sign; it comes when all that was sent before is worked off. */
  readonly askForSign: (onSign: () => void) => void
}

export class Uplink {
  readonly #sender: Sender
  readonly #limits: UplinkOptions['limits']
  readonly #askForSign: UplinkOptions['askForSign']
  readonly #waiting = new Set<Share>()
  /** Sent, and no sign has come since. */
  #underwayBytes = 0
  /** Of these, sent since a sign was last asked for. */
  #unsignedBytes = 0
  /** The turn that was taken last: who was silent for long does not save that up. */
  #turn = 0

  constructor({ sender, limits, askForSign }: UplinkOptions) {
    this.#sender = sender
    this.#limits = limits
    this.#askForSign = askForSign
  }

  /** What the browser has been sent and may not have read yet. */
  get underwayBytes(): number {
    return this.#underwayBytes
  }

  /** Clients whose messages wait. */
  get waiting(): number {
    return this.#waiting.size
  }

  /** One message. Of the door itself, without a share: at once. Throws if it is too large. */
  send(parts: Parts, share: Share | null): number {
    const bytes = bytesOf(parts)
    // Chromium would never read again.
    if (bytes > this.#limits.messageBytesMax + NAMES_BYTES) {
      throw new RangeError('the message is too large')
    }
    if (share === null) this.#pass(parts, bytes)
    else this.#sendOf(share, { parts, bytes })
    return bytes
  }

  #sendOf(share: Share, message: Waiting): void {
    share.turn = Math.max(share.turn, this.#turn)
    if (this.#waiting.size === 0 && this.#hasRoom) return this.#take(share, message)
    share.waiting.push(message)
    if (this.#waiting.has(share)) return
    this.#waiting.add(share)
    share.onWaiting(true)
  }

  get #hasRoom(): boolean {
    return this.#underwayBytes < this.#limits.underwayBytesMax
  }

  #take(share: Share, { parts, bytes }: Waiting): void {
    this.#turn = share.turn
    share.turn += bytes
    this.#pass(parts, bytes)
  }

  #pass(parts: Parts, bytes: number): void {
    this.#sender.send(...parts)
    this.#underwayBytes += bytes
    this.#unsignedBytes += bytes
    if (this.#unsignedBytes < this.#limits.signBytes) return
    const signed = this.#unsignedBytes
    this.#unsignedBytes = 0
    this.#askForSign(() => {
      this.#underwayBytes -= signed
      this.#goOn()
    })
  }

  #goOn(): void {
    while (this.#hasRoom) {
      const share = this.#next()
      const message = share?.waiting.shift()
      if (share === null || message === undefined) return
      this.#take(share, message)
      if (share.waiting.length > 0) continue
      this.#waiting.delete(share)
      share.onWaiting(false)
    }
  }

  #next(): Share | null {
    let next: Share | null = null
    for (const share of this.#waiting) {
      if (next === null || share.turn < next.turn) next = share
    }
    return next
  }

  /** A client is gone: what it still wanted to send is not sent. */
  leave(share: Share): void {
    share.waiting.length = 0
    this.#waiting.delete(share)
  }

  close(): void {
    for (const share of this.#waiting) share.waiting.length = 0
    this.#waiting.clear()
  }
}

function bytesOf(parts: Parts): number {
  let bytes = 0
  for (const part of parts) {
    bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.length
  }
  return bytes
}
