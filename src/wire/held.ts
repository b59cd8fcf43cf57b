/**
 * What crosses the socket at `/cdp/NAME/held`: messages of the Chrome DevTools Protocol as they
 * are, and between them frames of our own, which begin with `#`.
 *
 * Each side counts the messages it has taken and tells the other now and then; each keeps what it
 * has sent until the other has it. A connection that was lost is taken up by saying how many
 * messages came, and goes on with the next one.
 */
export const HELD_VERSION = 1

export type HeldResume = {
  readonly session: string
  readonly attachment: string
  readonly token: string
  /** How many messages of the server have come. */
  readonly received: number
}

export type HeldFrame =
  /** The client's first word. */
  | { readonly type: 'hello'; readonly v: number; readonly resume?: HeldResume }
  | {
      readonly type: 'welcome'
      readonly v: number
      readonly session: string
      readonly attachment: string
      /** To come back with; null: the session's policy lets nobody come back. */
      readonly token: string | null
      /** How many messages of the client have come. */
      readonly received: number
      /** How long a lost client is waited for. */
      readonly graceMs: number
    }
  /** The welcome has come: the token before it is no longer needed. */
  | { readonly type: 'ready' }
  | { readonly type: 'ack'; readonly received: number }
  | { readonly type: 'ping' }
  | { readonly type: 'pong' }
  /** The client goes for good. */
  | { readonly type: 'bye' }
  /** It is over, or the client is not let in. */
  | {
      readonly type: 'end'
      readonly code: string
      readonly reason: string
      readonly retry: boolean
    }

/** How often what has come is confirmed, at the latest: in messages, and in time. */
export const HELD_ACK = { messages: 64, bytes: 262_144, ms: 100 } as const

const MARK = 0x23

export function isHeldFrame(message: string | Uint8Array): boolean {
  return typeof message === 'string' ? message.charCodeAt(0) === MARK : message[0] === MARK
}

export function writeHeldFrame(frame: HeldFrame): string {
  return `#${JSON.stringify(frame)}`
}

/** Null: it is none that we know. */
export function readHeldFrame(text: string): HeldFrame | null {
  let value: unknown
  try {
    value = JSON.parse(text.slice(1))
  } catch {
    return null
  }
  return isFrame(value) ? value : null
}

function isFrame(value: unknown): value is HeldFrame {
  if (typeof value !== 'object' || value === null) return false
  const frame = value as Readonly<Record<string, unknown>>
  switch (frame['type']) {
    case 'hello':
      return isCount(frame['v']) && isResume(frame['resume'])
    case 'welcome':
      return (
        isCount(frame['received']) &&
        isCount(frame['graceMs']) &&
        [frame['session'], frame['attachment']].every((text) => typeof text === 'string') &&
        (frame['token'] === null || typeof frame['token'] === 'string')
      )
    case 'ack':
      return isCount(frame['received'])
    case 'end':
      return typeof frame['code'] === 'string' && typeof frame['reason'] === 'string'
    case 'ready':
    case 'ping':
    case 'pong':
    case 'bye':
      return true
    default:
      return false
  }
}

function isResume(value: unknown): boolean {
  if (value === undefined) return true
  if (typeof value !== 'object' || value === null) return false
  const { session, attachment, token, received } = value as Partial<HeldResume>
  const texts = [session, attachment, token]
  return texts.every((text) => typeof text === 'string') && isCount(received)
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0
}

/** What one side has sent and the other has not confirmed, in order. */
export class Unconfirmed<Message extends string | Uint8Array> {
  /** The number of the first message in the queue. */
  #first = 1
  #queue: Message[] = []
  #bytes = 0

  get bytes(): number {
    return this.#bytes
  }

  /** How many were sent so far. */
  get sent(): number {
    return this.#first + this.#queue.length - 1
  }

  push(message: Message): void {
    this.#queue.push(message)
    this.#bytes += message.length
  }

  /** The other side has so many; false if there were never so many. */
  confirm(received: number): boolean {
    if (received > this.sent) return false
    const gone = this.#queue.splice(0, Math.max(0, received - this.#first + 1))
    this.#first += gone.length
    for (const { length } of gone) this.#bytes -= length
    return true
  }

  all(): readonly Message[] {
    return [...this.#queue]
  }
}
