/**
 * What was asked of the server and has no reply yet. Whatever connection it was sent on, it is sent
 * again under the same id after the next welcome, so that it is done once; and it always settles:
 * by its reply, or with the session's end.
 */
import type { ClientFrame, ServerFrame } from '../wire/frames.ts'
import { CLIENT_LIMITS, HoldfastClientError, errorOf, type Ending } from './endings.ts'

type ClientRequest = Extract<ClientFrame, { readonly id: string }>
type WithoutId<Frame> = Frame extends unknown ? Omit<Frame, 'id'> : never
export type RequestBody = WithoutId<ClientRequest>

/** Called at once, in the order of what arrives: an event that follows a reply finds it done. */
export type Settle = {
  /** `turn` is empty where the request was not about a turn. */
  readonly taken: (turn: string, isSteered: boolean) => void
  /** `again`: it had been sent before, so this may be the answer to what was done already. */
  readonly refused: (error: HoldfastClientError, again: boolean) => void
}

type PendingRequest = {
  readonly type: ClientRequest['type']
  readonly json: string
  readonly settle: Settle
  /** The attachment that it was sent for, and how often. */
  attachment: string | null
  sent: number
}

export class PendingRequests {
  readonly #send: (json: string) => void
  readonly #prefix: string
  readonly #pending = new Map<string, PendingRequest>()
  #count = 0
  #attachment: string | null = null

  /** `prefix` must be new: after a reload the same attachment goes on with other ids. */
  constructor(send: (json: string) => void, prefix: string) {
    this.#send = send
    this.#prefix = prefix
  }

  get isTurnDue(): boolean {
    return [...this.#pending.values()].some(({ type }) => type === 'turn')
  }

  add(body: RequestBody, settle: Settle): void {
    this.#count += 1
    const id = `${this.#prefix}-${this.#count}`
    const json = JSON.stringify({ ...body, id })
    const { messageBytesMax } = CLIENT_LIMITS
    // A character has at most three bytes here: most messages need no counting.
    const mayBeTooLarge = json.length * 3 > messageBytesMax
    if (mayBeTooLarge && new TextEncoder().encode(json).length > messageBytesMax) {
      const words = `a message has at most ${messageBytesMax} bytes`
      return settle.refused(new HoldfastClientError('body_too_large', words), false)
    }
    const pending = { type: body.type, json, settle, attachment: null, sent: 0 }
    this.#pending.set(id, pending)
    if (this.#attachment !== null) this.#sendOne(pending, this.#attachment)
  }

  /** What another attachment sent cannot be sent again: it might be done twice. */
  connected(attachment: string): void {
    this.#attachment = attachment
    for (const [id, pending] of this.#pending) {
      if (pending.attachment === null || pending.attachment === attachment) {
        this.#sendOne(pending, attachment)
      } else {
        this.#pending.delete(id)
        const words = 'the connection was lost for good before the reply: it may have been done'
        pending.settle.refused(new HoldfastClientError('attachment_ended', words), true)
      }
    }
  }

  disconnected(): void {
    this.#attachment = null
  }

  reply(frame: Extract<ServerFrame, { readonly type: 'reply' }>): void {
    const pending = this.#pending.get(frame.id)
    if (pending === undefined) return
    // The server stops and closes the socket: the request is sent again to the next one.
    if ('error' in frame && frame.error.code === 'draining') return
    this.#pending.delete(frame.id)
    if (!('error' in frame)) {
      return pending.settle.taken(frame.turn ?? '', frame.steered === true)
    }
    const { code, message, retry } = frame.error
    pending.settle.refused(new HoldfastClientError(code, message, { retry }), pending.sent > 1)
  }

  /** A session that is closed has nothing to close, and nothing to cancel, any more. */
  end(ending: Ending): void {
    const all = [...this.#pending.values()]
    this.#pending.clear()
    this.#attachment = null
    for (const { type, settle, sent } of all) {
      const reached = type === 'close' || type === 'cancel'
      if (reached && ending.code === 'session_closed') settle.taken('', false)
      else settle.refused(errorOf(ending), sent > 1)
    }
  }

  #sendOne(pending: PendingRequest, attachment: string): void {
    pending.attachment = attachment
    pending.sent += 1
    this.#send(pending.json)
  }
}

/** A promise and how to settle it. */
export type Deferred<Value> = ReturnType<typeof deferred<Value>>

export function deferred<Value>() {
  let resolve!: (value: Value) => void
  let reject!: (error: Error) => void
  const promise = new Promise<Value>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  // It may fail before it is awaited; callers that await it get the error.
  promise.catch(() => undefined)
  return { promise, resolve, reject }
}
