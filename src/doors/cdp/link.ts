/**
 * One line to a browser, shared by all of its clients. Every message that goes up gets an id of our
 * own; its reply finds its way back by that id alone, and an event by the session it happened in
 * (I7).
 */
import { HoldfastError } from '../../core/index.ts'
import type { CdpLimits } from './limits.ts'
import { rewritten, written, type Command, type Fault, type Params } from './command.ts'
import {
  eventMethod,
  FIRST_ID,
  inSession,
  LAST_ID,
  replyId,
  sessionOf,
  underId,
} from './message.ts'
import { Uplink, type Parts, type Sender, type Share } from './uplink.ts'

/** What a browser answered: a result or an error. */
export type Reply = {
  readonly result?: Params
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
}

export type BrowserEvent = { readonly method: string; readonly params: Params }

/** Who speaks to the browser in one of its sessions. */
export interface Correspondent {
  /** The browser's own name for the session; '' is the connection itself. */
  readonly upstream: string
  /** The name that takes its place in what is passed on; null: it takes only what is parsed. */
  readonly id: string | null
  /** Whole messages that need no reading, already under their new names; events by their method. */
  pass(message: Buffer, method?: string): void
  /** An event of the Target domain, which is about other sessions. */
  targetEvent(event: BrowserEvent): void
  /** An event of it is lost. */
  lose(): void
  /** The browser has ended the session, which the door itself had attached. */
  detached(): void
  /** The command that went up under this id has its reply. */
  settled(id: number): void
}

const TOO_LARGE: Fault = { code: -32000, message: 'the reply is too large to be passed on' }

type Pending = {
  readonly from: Correspondent | null
  readonly id: number
  /** Takes the reply, instead of passing it on. */
  readonly read: ((reply: Reply) => void) | null
  /** Whose share of the way up it took, and how much of it. */
  readonly share: Share | null
  bytes: number
}

/** How a command goes: by whose share, and who reads the reply instead of its being passed on. */
export type Way = Pick<Pending, 'share' | 'read'>

type Parsed = Reply & {
  readonly id?: number
  readonly method?: string
  readonly params?: Params
  readonly sessionId?: string
}

export class Link {
  readonly #uplink: Uplink
  #lastId = FIRST_ID - 1
  readonly #pending = new Map<number, Pending>()
  readonly #sessions = new Map<string, Correspondent>()
  #closed: string | null = null

  constructor(sender: Sender, limits: CdpLimits) {
    // Whatever the browser itself is asked, it answers in the order in which it was asked.
    const askForSign = (onSign: () => void): void => void this.ask('Browser.getVersion', {}, onSign)
    this.#uplink = new Uplink({ sender, limits, askForSign })
  }

  /** Why it is closed; null while it is open. */
  get closed(): string | null {
    return this.#closed
  }

  /** Clients whose messages wait for their turn to go up. */
  get heldBack(): number {
    return this.#uplink.waiting
  }

  /** What the browser may not have read yet. */
  get underwayBytes(): number {
    return this.#uplink.underwayBytes
  }

  /** Replies that have not come. */
  get waiting(): number {
    return this.#pending.size
  }

  /** Sessions of the browser that somebody here speaks in. */
  get sessions(): number {
    return this.#sessions.size
  }

  open(correspondent: Correspondent): void {
    this.#sessions.set(correspondent.upstream, correspondent)
  }

  /** The session is over: nothing of it is delivered any more, not even what was asked (I9). */
  end({ upstream }: Correspondent): void {
    this.#sessions.delete(upstream)
  }

  correspondent(upstream: string): Correspondent | undefined {
    return this.#sessions.get(upstream)
  }

  /** Passes a client's command on; its reply goes back as it comes, or to `read`. */
  forward(from: Correspondent, command: Command, { share, read }: Way): number {
    return this.#send({ from, id: command.id, read, share, bytes: 0 }, (id) =>
      rewritten(command, id, from.upstream),
    )
  }

  #send(pending: Pending, write: (id: number) => Parts): number {
    const id = this.#expect(pending)
    try {
      pending.bytes = this.#uplink.send(write(id), pending.share)
    } catch (error) {
      this.#pending.delete(id)
      throw error
    }
    if (pending.share !== null) pending.share.unansweredBytes += pending.bytes
    return id
  }

  /** Whoever asked is gone, or waits no longer. */
  forget(id: number): void {
    this.#settle(id)
  }

  #settle(id: number): void {
    const pending = this.#pending.get(id)
    if (pending === undefined) return
    this.#pending.delete(id)
    if (pending.share !== null) pending.share.unansweredBytes -= pending.bytes
  }

  /** A client is gone: what it still wanted to send is not sent. */
  leave(share: Share): void {
    this.#uplink.leave(share)
  }

  /** A command of the door itself; its reply comes in order with all else. Returns its id. */
  ask(
    method: string,
    params: Params,
    read: (reply: Reply) => void,
    session = '',
    share: Share | null = null,
  ): number {
    if (this.#closed !== null) {
      read({ error: this.#fault() })
      return 0
    }
    return this.#send({ from: null, id: 0, read, share, bytes: 0 }, (id) => [
      written(id, method, params, session),
    ])
  }

  /** Like `ask`, for when the order does not matter. */
  command(method: string, params: Params = {}, session = ''): Promise<Params> {
    return new Promise((resolve, reject) => {
      const read = ({ result, error }: Reply): void => {
        if (error === undefined) resolve(result ?? {})
        else reject(new HoldfastError('browser_gone', `the browser refused: ${error.message}`))
      }
      this.ask(method, params, read, session)
    })
  }

  /** Like `ask`, when nobody waits for the outcome. */
  tell(method: string, params: Params = {}, session = ''): void {
    this.ask(method, params, () => undefined, session)
  }

  #expect(pending: Pending): number {
    do {
      this.#lastId = this.#lastId === LAST_ID ? FIRST_ID : this.#lastId + 1
    } while (this.#pending.has(this.#lastId))
    this.#pending.set(this.#lastId, pending)
    return this.#lastId
  }

  /** The browser is gone: whoever waits for a reply of it learns that. */
  close(reason: string): void {
    if (this.#closed !== null) return
    this.#closed = reason
    const pending = [...this.#pending.values()]
    this.#pending.clear()
    this.#sessions.clear()
    this.#uplink.close()
    for (const { read } of pending) read?.({ error: this.#fault() })
  }

  #fault(): Fault {
    return { code: -32000, message: this.#closed ?? 'the browser is gone' }
  }

  /**
   * A message of the browser. The bytes are ours to change. One that is too large to be handled is
   * lost to whom it was for, and harms nobody else.
   */
  receive(message: Buffer): void {
    try {
      this.#receive(message)
    } catch (thrown) {
      if (!(thrown instanceof RangeError)) throw thrown
    }
  }

  /**
   * A message was too large or too deep, and only how it begins and ends is known. Who waits for
   * it as a reply learns that; who would have been told an event cannot go on as if it had been.
   */
  lost(head: Buffer, tail: Buffer): void {
    const id = replyId(head)
    if (id !== null) return this.#replyParsed(id, { error: TOO_LARGE })
    const session = sessionOf(tail)
    if (session !== null) this.#sessions.get(session)?.lose()
  }

  #receive(message: Buffer): void {
    const id = replyId(message)
    if (id !== null) return this.#reply(id, message)
    const session = sessionOf(message)
    const method = session === null ? null : eventMethod(message)
    if (session === null || method === null || method.startsWith('Target.')) {
      return this.#read(message)
    }
    const to = this.#sessions.get(session)
    if (to !== undefined && to.id !== null) to.pass(inSession(message, to.id), method)
  }

  #reply(id: number, message: Buffer): void {
    const pending = this.#pending.get(id)
    if (pending === undefined) return
    const { from, read } = pending
    const session = sessionOf(message)
    if (read !== null || from === null || session !== from.upstream || from.id === null) {
      return this.#read(message)
    }
    this.#settle(id)
    from.settled(id)
    if (this.#sessions.get(session) !== from) return
    from.pass(underId(inSession(message, from.id), pending.id))
  }

  #read(message: Buffer): void {
    const parsed = parse(message)
    if (parsed === null) this.lost(message, message)
    else this.#receiveParsed(parsed)
  }

  #receiveParsed(message: Parsed): void {
    if (message.id !== undefined) return this.#replyParsed(message.id, message)
    const { method, params = {}, sessionId = '' } = message
    const to = this.#sessions.get(sessionId)
    if (to === undefined || method === undefined) return
    if (method.startsWith('Target.')) return to.targetEvent({ method, params })
    if (to.id !== null) to.pass(textOf({ method, params }, to.id), method)
  }

  #replyParsed(id: number, { result, error }: Parsed): void {
    const pending = this.#pending.get(id)
    if (pending === undefined) return
    this.#settle(id)
    const { from, read } = pending
    from?.settled(id)
    const reply = error === undefined ? { result: result ?? {} } : { error }
    if (read !== null) return read(reply)
    if (from === null || from.id === null || this.#sessions.get(from.upstream) !== from) return
    from.pass(textOf({ id: pending.id, ...reply }, from.id))
  }
}

/** A message as text, in a session; '' is the connection itself. */
export function textOf(message: object, session: string): Buffer {
  return Buffer.from(JSON.stringify(session === '' ? message : { ...message, sessionId: session }))
}

function parse(message: Buffer): Parsed | null {
  try {
    const value: unknown = JSON.parse(message.toString())
    return typeof value === 'object' && value !== null ? value : null
  } catch {
    // It nests too deeply for us; that it is not JSON is nothing that a browser we know does.
    return null
  }
}
