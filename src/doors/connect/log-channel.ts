/**
 * What a client asks for over its socket: turns, cancels, answers. Each gets one reply, by its id.
 */
import { HoldfastError, asHoldfastError, isRequestId } from '../../core/index.ts'
import type { ClientFrame } from '../../wire/frames.ts'
import type { AdmittedClient, Connection } from './connection.ts'
import type { Hub } from './hub.ts'
import { refusalOf } from './refusal.ts'
import { assertMayDo, type Operation } from '../scopes.ts'

type RequestFrame = Extract<ClientFrame, { readonly id: string }>
type Requester = Pick<AdmittedClient, 'session' | 'attachment' | 'role' | 'scopes'>

/** What each request of a socket does. */
export const FRAME_OPERATIONS: Readonly<Record<RequestFrame['type'], Operation>> = {
  turn: 'turn.run',
  cancel: 'turn.cancel',
  answer: 'ask.answer',
  close: 'session.close',
}

export class Requests {
  readonly #hub: Hub
  readonly #connection: Connection
  readonly #requester: Requester
  /** Made with the first request: most clients of a crowd only look on. */
  #pending: Set<Promise<void>> | null = null

  constructor(hub: Hub, connection: Connection, requester: Requester) {
    this.#hub = hub
    this.#connection = connection
    this.#requester = requester
  }

  take(frame: ClientFrame): void {
    if (!('id' in frame)) throw new HoldfastError('bad_request', 'a frame does not belong here')
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

  async #carryOut(frame: RequestFrame): Promise<string | null> {
    const { session, attachment } = this.#requester
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
    const { session, attachment } = this.#requester
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
    const { role, scopes } = this.#requester
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
