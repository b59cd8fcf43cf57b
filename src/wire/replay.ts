/**
 * Messages that survive the loss of a connection. Both ends use this class: each keeps what it has
 * sent until the other has confirmed it, counts what has come, and confirms that soon. On the next
 * connection each says how many messages came (`received`), and is sent the others again.
 *
 * Such a connection carries messages of another protocol as they are. Between them come the frames
 * of `frames.ts`, each behind a mark that no message begins with.
 */
export const REPLAY_VERSION = 2

export const FRAME_MARK = '#'

/** When messages are confirmed: after so many, so many bytes or so long, whichever comes first. */
const CONFIRM = { messages: 64, bytes: 262_144, ms: 100 } as const

/** The present connection, as a replay sees it. */
export interface ReplayConnection<Message> {
  sendMessage(message: Message): void
  sendAck(received: number): void
}

export class MessageReplay<Message extends string | Uint8Array> {
  readonly #after: (ms: number, run: () => void) => () => void
  #connection: ReplayConnection<Message> | null = null
  /** Sent and not confirmed, in order; the first of them is this one. */
  #first = 1
  #unconfirmed: Message[] = []
  #bytes = 0
  /** Messages that came, how many of them the other end knows of, and the bytes since then. */
  #received = 0
  #acknowledged = 0
  #unacknowledgedBytes = 0
  #cancelAck: (() => void) | null = null

  constructor(clock: { after(ms: number, run: () => void): () => void }) {
    this.#after = (ms, run) => clock.after(ms, run)
  }

  get bytes(): number {
    return this.#bytes
  }

  get received(): number {
    return this.#received
  }

  send(message: Message): void {
    this.#unconfirmed.push(message)
    this.#bytes += message.length
    this.#connection?.sendMessage(message)
  }

  count({ length }: Message): void {
    this.#received += 1
    this.#unacknowledgedBytes += length
    const isDue = this.#received - this.#acknowledged >= CONFIRM.messages
    if (isDue || this.#unacknowledgedBytes >= CONFIRM.bytes) return this.#acknowledge()
    this.#cancelAck ??= this.#after(CONFIRM.ms, () => this.#acknowledge())
  }

  /** The other end has so many messages; false if there were never so many. */
  confirm(received: number): boolean {
    const sent = this.#first + this.#unconfirmed.length - 1
    if (received > sent) return false
    const gone = this.#unconfirmed.splice(0, Math.max(0, received - this.#first + 1))
    this.#first += gone.length
    for (const { length } of gone) this.#bytes -= length
    return true
  }

  /** Hello and welcome say what each end has received: what is missing is sent again. */
  connect(connection: ReplayConnection<Message>): void {
    this.disconnect()
    this.#connection = connection
    for (const message of this.#unconfirmed) connection.sendMessage(message)
  }

  disconnect(): void {
    this.#connection = null
    this.#acknowledge()
  }

  /** Nothing is to be confirmed any more: the other end learns all now, or with the next hello. */
  #acknowledge(): void {
    this.#cancelAck?.()
    this.#cancelAck = null
    this.#acknowledged = this.#received
    this.#unacknowledgedBytes = 0
    this.#connection?.sendAck(this.#received)
  }
}
