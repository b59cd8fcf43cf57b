/** The client's end of a connection: what it is sent and asked, within bounds. */
import { randomBytes } from 'node:crypto'
import { HoldfastError, type Clock } from '../../core/index.ts'
import type { Socket } from '../connect/socket.ts'
import type { Unread } from '../unread.ts'
import type { CopilotLimits } from './limits.ts'
import type { RpcErrorBody, RpcId } from '../json-rpc.ts'

type Asked = {
  readonly resolve: (result: unknown) => void
  readonly reject: (error: HoldfastError) => void
}

export type ClientEndOptions = {
  readonly socket: Socket
  readonly clock: Pick<Clock, 'after'>
  readonly limits: CopilotLimits
  readonly unread: Unread
  /** The client does not read what it is sent. */
  readonly onSlow: (error: HoldfastError) => void
}

export class ClientEnd {
  readonly #options: ClientEndOptions
  /** What this side calls its requests: no other node that asks the same client has such ids. */
  readonly #prefix = randomBytes(6).toString('base64url')
  readonly #asked = new Map<RpcId, Asked>()
  #count = 0
  #isOver = false

  constructor(options: ClientEndOptions) {
    this.#options = options
  }

  /** When more may be sent; null: now. What is sent before waits in memory. */
  room: Promise<void> | null = null

  respond(
    id: RpcId,
    outcome: { readonly result: unknown } | { readonly error: RpcErrorBody },
  ): void {
    this.send(JSON.stringify({ jsonrpc: '2.0', id, ...outcome }))
  }

  notify(method: string, params: object): void {
    this.send(JSON.stringify({ jsonrpc: '2.0', method, params }))
  }

  send(text: string): void {
    if (this.#isOver) return
    const { socket, limits } = this.#options
    const bytes = Buffer.from(text)
    const isMuch = socket.bufferedBytes + bytes.length > limits.bufferedBytesMax
    if (isMuch) this.#sendSlowly(bytes)
    else socket.send(bytes)
  }

  /** Until it has left there is no room; a reader that takes too long is given up. */
  #sendSlowly(bytes: Uint8Array): void {
    const { socket, clock, limits, unread, onSlow } = this.#options
    const slow = (message: string): void => onSlow(new HoldfastError('too_slow', message))
    const room = new Promise<void>((resolve) => {
      const late = 'the client does not read what it is sent'
      const cancel = clock.after(limits.slowMs, () => slow(late))
      const release = unread.add(bytes, () => {
        slow('the client does not read, and too much waits for all together')
      })
      socket.send(bytes, () => {
        cancel()
        release()
        if (this.room === room) this.room = null
        resolve()
      })
    })
    this.room = room
  }

  /** Asks the client. After `signal` its answer is not waited for. */
  ask(method: string, params: object, signal?: AbortSignal): Promise<unknown> {
    const { requestsMax } = this.#options.limits
    if (this.#isOver || signal?.aborted === true) return Promise.reject(gone())
    if (this.#asked.size >= requestsMax) {
      return Promise.reject(new HoldfastError('too_many', 'the client has too many requests'))
    }
    return new Promise((resolve, reject) => {
      const id = this.#ask(method, params, { resolve, reject })
      signal?.addEventListener('abort', () => {
        if (!this.#asked.delete(id)) return
        this.notify('$/cancelRequest', { id })
        reject(gone())
      })
    })
  }

  /**
   * Calls `answered` when the client has come so far in what it is sent, at once when its answer
   * is read; and at the end.
   */
  probe(answered: () => void): void {
    if (this.#isOver || this.#asked.size >= this.#options.limits.requestsMax) return answered()
    this.#ask('ping', {}, { resolve: answered, reject: answered })
  }

  #ask(method: string, params: object, asked: Asked): RpcId {
    this.#count += 1
    const id = `${this.#prefix}.${this.#count}`
    this.#asked.set(id, asked)
    this.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }))
    return id
  }

  /** The client answers; false if this side has not asked so. An error has no result. */
  answered(id: RpcId, result: unknown): boolean {
    const asked = this.#asked.get(id)
    this.#asked.delete(id)
    if (asked === undefined) return false
    if (result === undefined) asked.reject(new HoldfastError('cancelled', 'the client has refused'))
    else asked.resolve(result)
    return true
  }

  /** Nothing is sent any more, and nothing is waited for. */
  end(): void {
    this.#isOver = true
    const asked = [...this.#asked.values()]
    this.#asked.clear()
    for (const { reject } of asked) reject(gone())
  }
}

function gone(): HoldfastError {
  return new HoldfastError('cancelled', 'the client does not answer any more')
}
