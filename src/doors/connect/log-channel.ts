/**
 * What a client of a session gets and sends over its connection: the log one way, requests for
 * turns, cancels and answers the other. Each request gets one reply, by its id.
 *
 * Events leave as fast as the socket reads them, and no faster. Those that became ready together
 * leave together, and are encoded once for all clients that follow.
 */
import {
  HoldfastError,
  asHoldfastError,
  isRequestId,
  type FeedItem,
  type SessionHandle,
} from '../../core/index.ts'
import type { ClientFrame, Seen } from '../../wire/frames.ts'
import { refusalOf } from '../../wire/problem.ts'
import { decodeInput } from '../parts.ts'
import { assertMayDo, type Operation } from '../../core/access.ts'
import type { AdmittedClient, Channel, Connection } from './connection.ts'
import { sendSlowly } from './slow-send.ts'

type RequestFrame = Extract<ClientFrame, { readonly id: string }>

/** What each request of a socket does. */
export const FRAME_OPERATIONS: Readonly<Record<RequestFrame['type'], Operation>> = {
  turn: 'turn.run',
  configure: 'session.configure',
  cancel: 'turn.cancel',
  answer: 'ask.answer',
  close: 'session.close',
}

export type LogReader = Pick<AdmittedClient, 'session' | 'attachment' | 'role' | 'scopes'> & {
  /** Where in the log it stands. */
  readonly after: Seen
  /** It sees events about attachments and links too. */
  readonly presence: boolean
}

export class LogChannel implements Channel {
  readonly #connection: Connection
  readonly #reader: LogReader
  /** Made with the first request: most of many clients only watch. */
  #pending: Set<Promise<void>> | null = null
  #feed: Awaited<ReturnType<SessionHandle['openFeed']>> | null = null

  constructor(connection: Connection, reader: LogReader) {
    this.#connection = connection
    this.#reader = reader
  }

  begin(): void {
    this.#follow().catch((thrown: unknown) => this.#connection.refuse(asHoldfastError(thrown)))
  }

  /** Requests outlive the connection. */
  end(): void {
    void this.#feed?.return(undefined)
  }

  async #follow(): Promise<void> {
    this.#feed = await this.#openFeed()
    if (this.#connection.isOver) return
    for await (const items of this.#feed) {
      for (const part of partsOf(items)) {
        // It may have ended after the batch was ready.
        if (this.#connection.isOver) return
        const sent = this.#send(encoded(part))
        if (sent !== null) await sent
      }
    }
    if (this.#connection.isOver) return
    // I9: a closed session settles all requests; the replies are sent before the end.
    if (this.#pending !== null) await Promise.all(this.#pending)
    throw new HoldfastError('session_closed', 'the session is closed')
  }

  #openFeed(): ReturnType<SessionHandle['openFeed']> {
    const { session, attachment, role, after, presence } = this.#reader
    const { seq, delta } = after
    const watcher = role === 'watcher' ? attachment.id : undefined
    const position = { after: seq, afterDelta: delta }
    return session.openFeed({ ...position, presence, watcher, attachment: attachment.id })
  }

  /** Null if it leaves at once; else when it has left. */
  #send(bytes: Uint8Array): Promise<void> | null {
    const { socket, hub } = this.#connection
    const aheadBytesMax = Math.min(AHEAD_BYTES, hub.limits.bufferedBytesMax)
    if (socket.bufferedBytes + bytes.length > aheadBytesMax) {
      return sendSlowly(this.#connection, bytes)
    }
    socket.send(bytes)
    return null
  }

  take(frame: ClientFrame): void {
    if (!('id' in frame)) throw new HoldfastError('bad_request', 'a frame does not belong here')
    this.#pending ??= new Set()
    const pending = this.#pending
    if (pending.size >= this.#connection.hub.limits.requestsMax) {
      return this.#fail(frame.id, new HoldfastError('too_many', 'too many requests wait'))
    }
    const { id } = frame
    const replied = this.#carryOut(frame)
      .then(
        (reply) => this.#connection.say({ type: 'reply', id, ...reply }),
        (thrown: unknown) => this.#fail(id, asHoldfastError(thrown)),
      )
      .finally(() => pending.delete(replied))
    pending.add(replied)
  }

  /** Returns what its reply says: the turn that it is about, if any. */
  async #carryOut(frame: RequestFrame): Promise<{ turn?: string; steered?: boolean }> {
    const { session, attachment } = this.#reader
    this.#assertMay(FRAME_OPERATIONS[frame.type])
    switch (frame.type) {
      case 'turn': {
        // The request's id is its idempotency key: sent again after a loss, it finds its turn.
        const { id, input, type: _, ...options } = frame
        const idempotencyKey = `${attachment.id}/${id}`
        const signal = this.#connection.hub.presenceOf(attachment.id)
        const turn = session.turn(decodeInput(input), { ...options, idempotencyKey, signal })
        const { turn: admitted, isSteered } = await turn.admission
        return { turn: admitted, ...(frame.busy === 'steer' ? { steered: isSteered } : {}) }
      }
      case 'configure':
        await session.configure(frame.settings)
        return {}
      case 'cancel':
        if (!isRequestId(frame.turn)) return { turn: (await session.cancelTurn(frame.turn)).id }
        await session.cancelRequest(frame.turn)
        return {}
      case 'answer':
        await attachment.answer(frame.ask, frame.answer)
        return {}
      case 'close':
        await session.close('closed_by_client')
        return {}
    }
  }

  #assertMay(operation: Operation): void {
    const { role, scopes } = this.#reader
    assertMayDo(scopes, operation)
    // It came to look on, and to answer what it is asked; its token may be good for more.
    if (role !== 'watcher' || operation === 'ask.answer') return
    throw new HoldfastError('forbidden', 'a watcher may not do this: attach as a driver')
  }

  #fail(id: string, error: HoldfastError): void {
    const { code, retry, details } = error
    const message = refusalOf(error).reason
    const facts = code === 'quota_exceeded' || code === 'budget_exceeded' ? { details } : {}
    this.#connection.say({ type: 'reply', id, error: { code, message, retry, ...facts } })
  }
}

/** Events that became ready together share a message up to this; a larger one has its own. */
const MESSAGE_CHARS_MAX = 262_144
/** Events on their way that are not counted: a message beyond it waits until it has left. */
const AHEAD_BYTES = 65_536

const encoder = new TextEncoder()
/** Batches that several follow are the same array for all of them. */
const messages = new WeakMap<readonly FeedItem[], Uint8Array>()
const parts = new WeakMap<readonly FeedItem[], readonly (readonly FeedItem[])[]>()

function encoded(items: readonly FeedItem[]): Uint8Array {
  const known = messages.get(items)
  if (known !== undefined) return known
  const text = items.length === 1 ? items[0]?.json : `[${items.map(({ json }) => json).join(',')}]`
  const bytes = encoder.encode(text)
  messages.set(items, bytes)
  return bytes
}

/** The batch as messages of a size that a client can take, and that is bounded while it waits. */
function partsOf(items: readonly FeedItem[]): readonly (readonly FeedItem[])[] {
  const known = parts.get(items)
  if (known !== undefined) return known
  const all: FeedItem[][] = []
  let chars = MESSAGE_CHARS_MAX
  for (const item of items) {
    const { length } = item.json
    if (chars + length > MESSAGE_CHARS_MAX) {
      all.push([])
      chars = 0
    }
    all.at(-1)?.push(item)
    chars += length
  }
  parts.set(items, all)
  return all
}
