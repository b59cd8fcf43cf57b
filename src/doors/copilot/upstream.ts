/**
 * The door of the node that owns a session, for a client that is connected to another node: its
 * requests go there as they are, and what that door says comes back, over one socket for each
 * node. The seal on it says that this node has let the client in; its token is checked there again.
 */
import { HoldfastError, type SessionRef } from '../../core/index.ts'
import type { ForwardedSocket, SocketForwarder } from '../connect/socket.ts'
import { isRecord } from '../../schema/contract.ts'
import type { CopilotLimits } from './limits.ts'
import { CONNECT } from './methods.ts'
import type { RpcErrorBody, RpcId } from '../json-rpc.ts'

/** Where a node has this door for other nodes. */
export const COPILOT_PATH = '/v1/copilot'

export interface CopilotForwarder extends SocketForwarder {
  /** The other node that owns the session; null if this one does, or none. `isNew`: as of now. */
  ownerElsewhere(session: SessionRef, isNew?: boolean): Promise<string | null>
}

/** The connection whose requests are passed on. */
export interface UpstreamClient {
  readonly address: string
  readonly token: string | undefined
  readonly limits: CopilotLimits
  /** A message of the owner for the client. */
  handOver(text: string): void
  /** The owner asks the client: its answer is for this upstream. */
  asked(id: RpcId, upstream: Upstream): void
  /** A request that was passed on has its answer: whether it was refused. */
  answered(id: RpcId, isRefused: boolean): void
  /** A request that was passed on gets none. */
  failed(id: RpcId, error: HoldfastError): void
  /** The way to the owner is gone. */
  upstreamClosed(upstream: Upstream, error: HoldfastError): void
}

/** Of the first request; those of the client, which may have the same, are passed on after it. */
const HELLO_ID = 'holdfast-connect'

export class Upstream {
  readonly node: string
  readonly #client: UpstreamClient
  readonly #socket: ForwardedSocket
  readonly #pending = new Set<RpcId>()
  /** Resolves when the owner has let this node in; rejects if it does not. */
  readonly opened: Promise<void>
  #settle: { readonly opened: () => void; readonly failed: (error: HoldfastError) => void } | null =
    null
  #isOver = false

  constructor(forwarder: CopilotForwarder, node: string, client: UpstreamClient) {
    const { address, token, limits } = client
    this.node = node
    this.#client = client
    this.opened = new Promise((opened, failed) => {
      this.#settle = { opened, failed }
    })
    // Each request that waits for it is told.
    this.opened.catch(() => undefined)
    const params = { token }
    const hello = { jsonrpc: '2.0', id: HELLO_ID, method: CONNECT, params }
    this.#socket = forwarder.open(node, {
      hello: JSON.stringify(hello),
      address,
      path: COPILOT_PATH,
      bufferedBytesMax: limits.messageBytesMax + limits.bufferedBytesMax,
      messageBytesMax: UPSTREAM_MESSAGE_BYTES_MAX,
      onMessage: (message) => this.#receive(message.toString()),
      onClose: () => this.#closed(new HoldfastError('owner_unreachable', LOST)),
    })
  }

  /** Passes a request on, once it is open. */
  request(id: RpcId, text: string): void {
    if (this.#isOver) return this.#client.failed(id, new HoldfastError('owner_unreachable', LOST))
    this.#pending.add(id)
    this.#socket.send(text)
  }

  /** Passes on what has no answer. */
  send(text: string): void {
    this.#socket.send(text)
  }

  close(): void {
    this.#isOver = true
    this.#settle?.failed(new HoldfastError('cancelled', 'the client is gone'))
    this.#socket.close()
  }

  #receive(text: string): void {
    if (this.#isOver) return
    const message = JSON.parse(text) as Readonly<Record<string, unknown>>
    const { id, method, error } = message
    if (this.#settle !== null && id === HELLO_ID) return this.#welcomed(error)
    if (method !== undefined) {
      if (isId(id)) this.#client.asked(id, this)
    } else if (isId(id) && this.#pending.delete(id)) this.#client.answered(id, error !== undefined)
    this.#client.handOver(text)
  }

  #welcomed(error: unknown): void {
    if (error !== undefined) {
      this.#socket.close()
      return this.#closed(refusedBy(error))
    }
    this.#settle?.opened()
    this.#settle = null
  }

  #closed(error: HoldfastError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#settle?.failed(error)
    for (const id of this.#pending) this.#client.failed(id, error)
    this.#pending.clear()
    this.#client.upstreamClosed(this, error)
  }
}

const LOST = 'the node that owns the session did not answer: it is not known what was carried out'
/** What an owner says in one message: a history is the largest. */
const UPSTREAM_MESSAGE_BYTES_MAX = 67_108_864

function isId(id: unknown): id is RpcId {
  return typeof id === 'string' || typeof id === 'number'
}

function refusedBy(error: unknown): HoldfastError {
  const { message, data } = error as Partial<RpcErrorBody>
  const code = isRecord(data) && data['code'] === 'draining' ? 'draining' : 'owner_unreachable'
  return new HoldfastError(code, message ?? LOST)
}
