/**
 * The connection to one browser, shared by all of its clients. Every command gets an id that is
 * unique on this connection; its reply is delivered by that id alone, and an event by the session
 * in which it occurred (I7).
 */
import { HoldfastError } from '../../core/index.ts'
import { rewritten, written, type CdpCommand } from './command.ts'
import type { CdpLimits } from './limits.ts'
import {
  eventMethod,
  FIRST_ID,
  inSession,
  LAST_ID,
  messageText,
  replyId,
  sessionOf,
  underId,
  type CdpError,
  type CdpEvent,
  type CdpMessage,
  type CdpReply,
  type MessageParts,
  type Params,
  type ReadReply,
} from './protocol.ts'
import { Uplink, type FairQueue } from './uplink.ts'

/** Receives what the browser sends in one of its sessions. */
export interface SessionListener {
  /** The browser's own id of the session; '' is the connection itself. */
  readonly upstream: string
  /** The id that replaces it in forwarded messages; null: no client knows of the session. */
  readonly id: string | null
  /** Ids of its commands that have no reply; `BrowserLink` maintains it. */
  readonly unanswered: Set<number>
  /** A whole message, unparsed, with the ids replaced already; `method` if it is an event. */
  pass?(message: Buffer, method?: string): void
  /** An event of the Target domain, which is about other sessions. */
  targetEvent?(event: CdpEvent): void
  /** An event for it was too large to be delivered. */
  lose?(): void
  /** The browser has ended the session, which the door itself had attached. */
  detached?(): void
}

/** For commands whose reply does not matter. */
const ignore: ReadReply = () => undefined

const TOO_LARGE: CdpError = { code: -32000, message: 'the reply is too large to be passed on' }

type PendingCommand = {
  readonly from: SessionListener | null
  readonly id: number
  /** Takes the reply; null: it is forwarded to `from`. */
  readonly read: ReadReply | null
  readonly queue: FairQueue | null
  bytes: number
}

type Sending = {
  /** The session whose command it is: when that ends, the command is forgotten. */
  readonly from?: SessionListener
  /** The browser's id of the session that it is sent in, if that is not `from`'s. */
  readonly session?: string
  /** The client's queue; without one the command is sent at once. */
  readonly queue?: FairQueue
}

export class BrowserLink {
  readonly uplink: Uplink
  #lastId = FIRST_ID - 1
  readonly #pending = new Map<number, PendingCommand>()
  readonly #listeners = new Map<string, SessionListener>()
  /** Why it is closed; null while it is open. */
  closed: string | null = null

  constructor(send: (...parts: MessageParts) => void, limits: CdpLimits) {
    // The browser answers commands to itself in the order in which they were sent.
    const askForSign = (onSign: () => void): void => this.ask('Browser.getVersion', {}, onSign)
    this.uplink = new Uplink({ send, limits, askForSign })
  }

  get unanswered(): number {
    return this.#pending.size
  }

  /** Sessions that clients know of. */
  get sessions(): number {
    return [...this.#listeners.values()].filter(({ id }) => id !== null).length
  }

  open(listener: SessionListener): void {
    this.#listeners.set(listener.upstream, listener)
  }

  /** The session is over: nothing of it is delivered any more, not even replies (I9). */
  end({ upstream, unanswered }: SessionListener): void {
    this.#listeners.delete(upstream)
    for (const id of [...unanswered]) this.#settle(id)
  }

  listener(upstream: string): SessionListener | undefined {
    return this.#listeners.get(upstream)
  }

  forward(command: CdpCommand, pending: PendingCommand): void {
    this.#send(pending, (id) => rewritten(command, id, pending.from?.upstream ?? ''))
  }

  #send(pending: PendingCommand, write: (id: number) => MessageParts): void {
    const { from, queue } = pending
    const id = this.#nextId()
    this.#pending.set(id, pending)
    from?.unanswered.add(id)
    if (queue !== null) queue.unanswered += 1
    try {
      const bytes = this.uplink.send(write(id), queue)
      // A repaired browser may have answered already.
      if (!this.#pending.has(id)) return
      pending.bytes = bytes
      if (queue !== null) queue.unansweredBytes += bytes
    } catch (error) {
      this.#settle(id)
      throw error
    }
  }

  #nextId(): number {
    do {
      this.#lastId = this.#lastId === LAST_ID ? FIRST_ID : this.#lastId + 1
    } while (this.#pending.has(this.#lastId))
    return this.#lastId
  }

  #settle(id: number): PendingCommand | undefined {
    const pending = this.#pending.get(id)
    if (pending === undefined) return undefined
    this.#pending.delete(id)
    const { from, queue, bytes } = pending
    from?.unanswered.delete(id)
    if (queue !== null) {
      queue.unanswered -= 1
      queue.unansweredBytes -= bytes
    }
    return pending
  }

  /** A command of the door itself; its reply is read in order with all other messages. */
  ask(method: string, params: Params, read: ReadReply = ignore, sending: Sending = {}): void {
    const { from = null, session = from?.upstream ?? '', queue = null } = sending
    if (this.closed !== null) return read({ error: { code: -32000, message: this.closed } })
    const write = (id: number): MessageParts => [written(id, method, params, session)]
    this.#send({ from, id: 0, read, queue, bytes: 0 }, write)
  }

  /** Like `ask`, for when the order does not matter. */
  command(method: string, params: Params = {}, from?: SessionListener): Promise<Params> {
    return new Promise((resolve, reject) => {
      const read: ReadReply = ({ result, error }) => {
        if (error === undefined) resolve(result ?? {})
        else reject(new HoldfastError('browser_gone', `the browser refused: ${error.message}`))
      }
      this.ask(method, params, read, { from })
    })
  }

  /** Resolves with the browser's id of a new session with a target; null: with the browser. */
  async attachTo(targetId: string | null): Promise<string> {
    const { sessionId } =
      targetId === null
        ? await this.command('Target.attachToBrowserTarget')
        : await this.command('Target.attachToTarget', { targetId, flatten: true })
    return String(sessionId)
  }

  /** Attaches a session of the door's own; null: the target is gone. */
  attach(targetId: string, read: (session: DoorSession | null) => void): void {
    this.ask('Target.attachToTarget', { targetId, flatten: true }, ({ result }) => {
      read(result === undefined ? null : new DoorSession(this, String(result['sessionId'])))
    })
  }

  /** Ends a session of the browser. Other sessions with its target stay. */
  detach(parent: string, sessionId: string): void {
    this.ask('Target.detachFromTarget', { sessionId }, ignore, { session: parent })
  }

  /** The browser is gone: the door's own commands get an error. */
  close(reason: string): void {
    if (this.closed !== null) return
    this.closed = reason
    const pending = [...this.#pending.values()]
    this.#pending.clear()
    this.#listeners.clear()
    this.uplink.close()
    for (const { read } of pending) read?.({ error: { code: -32000, message: reason } })
  }

  /**
   * A message of the browser, whose bytes may be changed in place. One that is too large to be
   * handled is lost for its receiver only.
   */
  receive(message: Buffer): void {
    try {
      const id = replyId(message)
      if (id !== null) return this.#reply(id, message)
      const session = sessionOf(message)
      const method = session === null ? null : eventMethod(message)
      const isPlain = method !== null && !method.startsWith('Target.')
      if (session === null || !isPlain) return this.#parse(message)
      const to = this.#listeners.get(session)
      if (to !== undefined && to.id !== null) to.pass?.(inSession(message, to.id), method)
    } catch (thrown) {
      if (!(thrown instanceof RangeError)) throw thrown
    }
  }

  /**
   * A message was too large or nested too deeply; only its beginning and end are known. A command
   * whose reply it is gets an error; a session whose event it is ends.
   */
  lost(head: Buffer, tail: Buffer): void {
    const id = replyId(head)
    if (id !== null) return this.#replyParsed(id, { error: TOO_LARGE })
    const session = sessionOf(tail)
    if (session !== null) this.#listeners.get(session)?.lose?.()
  }

  #reply(id: number, message: Buffer): void {
    const pending = this.#pending.get(id)
    if (pending === undefined) return
    const { from, read } = pending
    const isPlain = read === null && sessionOf(message) === from?.upstream
    if (!isPlain || from.id === null) return this.#parse(message)
    this.#settle(id)
    from.pass?.(underId(inSession(message, from.id), pending.id))
  }

  #parse(message: Buffer): void {
    const parsed = parse(message)
    if (parsed === null) return this.lost(message, message)
    if (parsed.id !== undefined) return this.#replyParsed(parsed.id, parsed)
    const { method, params = {}, sessionId = '' } = parsed
    const to = this.#listeners.get(sessionId)
    if (to === undefined || method === undefined) return
    if (method.startsWith('Target.')) return to.targetEvent?.({ method, params })
    if (to.id !== null) to.pass?.(messageText({ method, params }, to.id), method)
  }

  #replyParsed(id: number, { result, error }: CdpReply): void {
    const pending = this.#settle(id)
    if (pending === undefined) return
    const { from, read } = pending
    const reply = error === undefined ? { result: result ?? {} } : { error }
    if (read !== null) read(reply)
    else if (from !== null && from.id !== null) {
      from.pass?.(messageText({ id: pending.id, ...reply }, from.id))
    }
  }
}

/** A session of the door's own with a target. Its commands are forgotten when it ends. */
export class DoorSession implements SessionListener {
  readonly upstream: string
  readonly id = null
  readonly unanswered = new Set<number>()
  readonly #link: BrowserLink

  constructor(link: BrowserLink, upstream: string) {
    this.#link = link
    this.upstream = upstream
    link.open(this)
  }

  ask(method: string, params: Params, read?: ReadReply): void {
    this.#link.ask(method, params, read, { from: this })
  }

  detach(): void {
    if (this.#link.listener(this.upstream) === this) this.#link.detach('', this.upstream)
    this.detached()
  }

  detached(): void {
    this.#link.end(this)
  }
}

function parse(message: Buffer): CdpMessage | null {
  try {
    const value: unknown = JSON.parse(message.toString())
    return typeof value === 'object' && value !== null ? value : null
  } catch {
    // It nests too deeply for `JSON.parse`; browsers send no malformed JSON.
    return null
  }
}
