/**
 * What a client asks for over its socket: turns, cancels, answers. Each gets one reply, by its id.
 */
import { HoldfastError, asHoldfastError, isRequestId } from '../../core/index.ts'
import type { ClientFrame } from '../../wire/frames.ts'
import type { Connection } from './connection.ts'
import type { Entry } from './entry.ts'
import type { Hub } from './hub.ts'
import { refusalOf } from './refusal.ts'
import { assertMayDo, type Operation } from '../scopes.ts'

type Request = Extract<ClientFrame, { readonly id: string }>
type RequestFrame = Request | (ClientFrame & { type: 'ready' })

/** What each request of a socket does. */
export const FRAME_OPERATIONS: Readonly<Record<Request['type'], Operation>> = {
  turn: 'turn.run',
  cancel: 'turn.cancel',
  answer: 'ask.answer',
  close: 'session.close',
}

export class Requests {
  readonly #hub: Hub
  readonly #connection: Connection
  readonly #entry: Entry
  /** Made with the first request: most clients of a crowd only look on. */
  #pending: Set<Promise<void>> | null = null

  constructor(hub: Hub, connection: Connection, entry: Entry) {
    this.#hub = hub
    this.#connection = connection
    this.#entry = entry
  }

  take(frame: RequestFrame): void {
    if (frame.type === 'ready') {
      // If it is lost, the token before it stays good a little longer.
      if (frame.epoch === this.#entry.attachment.epoch) void this.#confirm()
      return
    }
    this.#pending ??= new Set()
    const pending = this.#pending
    if (pending.size >= this.#hub.limits.requestsMax) {
      return this.#fail(frame.id, new HoldfastError('too_many', 'too many requests wait'))
    }
    const { id } = frame
    const replied = this.#carryOut(frame)
      .then(
        (turn) => this.#connection.say({ type: 'reply', id, ...(turn === null ? {} : { turn }) }),
        (thrown: unknown) => this.#fail(id, asHoldfastError(thrown)),
      )
      .finally(() => pending.delete(replied))
    pending.add(replied)
  }

  /** When all requests so far have their replies. */
  async settled(): Promise<void> {
    if (this.#pending !== null) await Promise.all(this.#pending)
  }

  /** It only allows forgetting older tokens: the next request confirms again. */
  async #confirm(): Promise<void> {
    await this.#entry.attachment.confirm().catch(() => undefined)
  }

  async #carryOut(frame: Request): Promise<string | null> {
    const { session, attachment } = this.#entry
    this.#assertMay(FRAME_OPERATIONS[frame.type])
    switch (frame.type) {
      case 'turn': {
        return this.#turn(frame)
      }
      case 'cancel': {
        if (!isRequestId(frame.turn)) return (await session.cancelTurn(frame.turn)).id
        await session.cancelRequest(frame.turn)
        return null
      }
      case 'answer': {
        await attachment.answer(frame.ask, frame.answer)
        return null
      }
      case 'close': {
        await session.close('closed_by_client')
        return null
      }
    }
  }

  /** The request's id is its idempotency key: sent again after a loss, it finds its turn. */
  async #turn(frame: ClientFrame & { type: 'turn' }): Promise<string> {
    const { session, attachment } = this.#entry
    const { id, input, busy, waitMs, onDisconnect } = frame
    const turn = session.turn(input, {
      idempotencyKey: `${attachment.id}/${id}`,
      signal: this.#hub.presenceOf(attachment.id),
      ...(busy === undefined ? {} : { busy }),
      ...(waitMs === undefined ? {} : { waitMs }),
      ...(onDisconnect === undefined ? {} : { onDisconnect }),
    })
    return (await turn.admission).turn
  }

  #assertMay(operation: Operation): void {
    const { role, scopes } = this.#entry
    assertMayDo(scopes, operation)
    // It came to look on, and to answer what it is asked; its token may be good for more.
    if (role !== 'watcher' || operation === 'ask.answer') return
    throw new HoldfastError('forbidden', 'a watcher may not do this: attach as a driver')
  }

  #fail(id: string, error: HoldfastError): void {
    const { code, retry } = error
    const message = refusalOf(error).reason
    this.#connection.say({ type: 'reply', id, error: { code, message, retry } })
  }
}
