/**
 * One connection of an ACP client: JSON-RPC messages in frames, several sessions at a time. A
 * request that fails is answered with an error; only a client that does not read, or whose access
 * ends, is closed.
 */
import {
  asHoldfastError,
  HoldfastError,
  invalid,
  NO_CAPABILITIES,
  type Caller,
  type Capabilities,
  type Holdfast,
  type TurnClients,
} from '../../core/index.ts'
import { closeCode } from '../../wire/error-table.ts'
import type { Hub } from '../connect/hub.ts'
import { sendSlowly } from '../connect/slow-send.ts'
import type { Socket } from '../connect/socket.ts'
import type { HiddenPositions } from '../exchange.ts'
import { reportRefusal } from '../refusals.ts'
import type { AcpAttachment } from './attachment.ts'
import type { ClientFacts, ConnectionDefaults } from './client-end.ts'
import { errorBody } from './errors.ts'
import {
  rpcErrorText,
  methodUnknown,
  notificationText,
  readRpcMessage,
  resultText,
  RpcError,
  type RpcId,
  type RpcMessage,
  type RpcNotification,
  type RpcResponse,
} from '../json-rpc.ts'
import { ACP_METHODS, type ServedMethod } from './methods.ts'
import { AcpPeer, type PassedRequest, type PeerAnswer, type WatchedRequest } from './peer.ts'
import { HANDLERS, type Context, type RpcReply } from './requests.ts'
import { isAcpMethod, readParams } from './schemas.ts'

export type AcpSocket = Socket & {
  readonly heardAt: number | null
  ping(): void
}

/** The largest message of a client: the largest image as base64, and some more. */
export const MESSAGE_BYTES_MAX = 8_388_608
/** What may wait for a client besides what its sessions say: answers, which it asked for. */
const ANSWERS_BYTES_MAX = 8_388_608

export type AcpConnectionOptions = {
  readonly hub: Hub
  readonly socket: AcpSocket
  readonly holdfast: Holdfast
  readonly caller: Caller
  readonly defaults: ConnectionDefaults
  readonly positions: HiddenPositions | null
  readonly isDraining: () => boolean
  /** How the same client reaches this door on another node. */
  readonly forwarding: { readonly path: string; readonly headers: Readonly<Record<string, string>> }
  readonly onEnd: () => void
}

export class AcpConnection {
  readonly hub: Hub
  readonly holdfast: Holdfast
  readonly defaults: ConnectionDefaults
  readonly positions: HiddenPositions | null
  readonly isDraining: () => boolean
  readonly attachments = new Map<string, AcpAttachment>()
  isOver = false
  readonly #options: AcpConnectionOptions
  readonly #socket: AcpSocket
  #facts: ClientFacts | null = null
  #initialize: unknown = null
  readonly #ownId: string
  /** Prompts that have no name of their client, and requests of agents. */
  #unnamed = 0
  /** Requests that have no answer yet. */
  #open = 0
  /** Sessions that are being opened. */
  opening = 0
  /** By node, and by session as far as it is known. */
  readonly #peers = new Map<string, AcpPeer>()
  readonly #elsewhere = new Map<string, AcpPeer>()

  constructor(options: AcpConnectionOptions) {
    const { hub, socket, holdfast, defaults, positions, isDraining } = options
    this.#options = options
    this.hub = hub
    this.#socket = socket
    this.holdfast = holdfast
    this.defaults = defaults
    this.positions = positions
    this.isDraining = isDraining
    this.#ownId = holdfast.authority.entropy.id()
  }

  get clientId(): string {
    return this.#facts?.clientId ?? this.#ownId
  }

  get isReturning(): boolean {
    return (this.#facts?.clientId ?? null) !== null
  }

  get offers(): ReadonlySet<string> {
    return this.#facts?.offers ?? NO_OFFERS
  }

  get turnClients(): TurnClients {
    return this.holdfast.authority.turnClients
  }

  get takesForms(): boolean {
    return this.#facts?.takesForms ?? false
  }

  get signal(): { readonly aborted: boolean } {
    return this
  }

  get aborted(): boolean {
    return this.isOver
  }

  readonly capabilitiesOf = (agent: string): Capabilities =>
    this.holdfast.authority.runner(agent)?.capabilities ?? NO_CAPABILITIES

  newName(): string {
    this.#unnamed += 1
    return `${this.#ownId}.${this.#unnamed}`
  }

  introduce(facts: ClientFacts, params: unknown): void {
    if (this.#facts === null) {
      this.#facts = facts
      this.#initialize = params
    } else if (this.#facts.clientId !== facts.clientId) {
      throw invalid('_meta.holdfast.client', 'must be that of the first initialize')
    }
  }

  forget(attachment: { readonly session: { readonly id: string } }): void {
    const { id } = attachment.session
    if (this.attachments.get(id) === attachment) this.attachments.delete(id)
  }

  /** A frame of the client. */
  receive(data: Buffer, isBinary: boolean): void {
    const text = isBinary ? '' : data.toString()
    try {
      this.accept(readRpcMessage(text), text)
    } catch (thrown) {
      const id = thrown instanceof RpcError ? thrown.id : null
      void this.send(rpcErrorText(id, errorBody(thrown)))
    }
  }

  /** A message of the client. */
  accept(message: RpcMessage, text: string): void {
    if (this.isOver) return
    const { bufferedBytesMax } = this.hub.limits
    if (this.#socket.bufferedBytes > bufferedBytesMax + ANSWERS_BYTES_MAX) {
      return this.refuse(new HoldfastError('too_slow', 'the client does not read its answers'))
    }
    switch (message.type) {
      case 'response':
        return this.#answered(message, text)
      case 'notification':
        return this.#takeNotification(message, text)
      case 'request':
        void this.#serve(message, text)
    }
  }

  async #serve(request: PassedRequest, text: string): Promise<void> {
    const { id } = request
    const { requestsMax } = this.hub.limits
    this.#open += 1
    try {
      if (this.#open > requestsMax) throw new HoldfastError('too_many', 'too many requests wait')
      const reply = await this.#answer(request, text)
      if (reply === null) return
      void this.send(resultText(id, reply.result))
      reply.after?.()
    } catch (thrown) {
      this.#reportFailure(thrown)
      void this.send(rpcErrorText(id, errorBody(thrown)))
    } finally {
      this.#open -= 1
    }
  }

  /** Null: another node answers. */
  async #answer(request: PassedRequest, text: string): Promise<RpcReply | null> {
    const { id, method, params } = request
    if (!isServed(method)) throw methodUnknown(method)
    const read = readParams(method, params)
    if (method !== 'initialize' && this.#facts === null) {
      throw new HoldfastError('bad_request', 'initialize first')
    }
    const session = 'sessionId' in read ? read.sessionId : null
    const peer = session === null ? undefined : this.#elsewhere.get(session)
    if (peer !== undefined) return this.#pass(peer, request, text)
    try {
      return replyOf(await this.#handle(method, read, id))
    } catch (thrown) {
      const owner = this.#ownerOf(thrown)
      if (owner === null) throw thrown
      if (session !== null && OPENING.has(method)) this.#place(session, owner)
      return this.#pass(owner, request, text)
    }
  }

  #handle(method: ServedMethod, params: unknown, id: RpcId): Promise<RpcReply | object> {
    const handle = HANDLERS[method] as (
      context: Context,
      params: unknown,
      id: RpcId,
    ) => Promise<RpcReply | object>
    return handle(this, params, id)
  }

  #pass(peer: AcpPeer, request: PassedRequest, text: string): null {
    const { method } = request
    if (OPENING.has(method) || LEAVING.has(method)) peer.watch({ ...request, text })
    else peer.send(text)
    return null
  }

  /** Another node has answered a request that opens a session or leaves it. */
  #passedBack(peer: AcpPeer, request: WatchedRequest, answer: PeerAnswer): void {
    const { text, isRepeated, ...asked } = request
    const { sessionId } = (asked.params ?? {}) as { readonly sessionId?: unknown }
    const session = answer.result?.sessionId ?? sessionId
    const isMoved = answer.refusal === 'not_owner' && isRepeated !== true
    if (typeof session === 'string') {
      if (isMoved || (answer.refusal === null && LEAVING.has(asked.method))) {
        this.#elsewhere.delete(session)
      } else if (answer.refusal === null) this.#place(session, peer)
    }
    // The session has another owner since; a refusal has had no effect.
    if (isMoved) void this.#serve({ ...asked, isRepeated: true }, text)
    else void this.send(answer.text)
  }

  #place(session: string, peer: AcpPeer): void {
    this.#elsewhere.set(session, peer)
    const [oldest] = this.#elsewhere.keys()
    if (this.#elsewhere.size > PLACES_MAX && oldest !== undefined) this.#elsewhere.delete(oldest)
  }

  /** To the node of a session, or to all nodes that it may be on. */
  #tellPeers(session: string, text: string): void {
    const peer = this.#elsewhere.get(session)
    for (const one of peer === undefined ? this.#peers.values() : [peer]) one.send(text)
  }

  /** The node that a refusal names as the owner of the session; null: there is no way to it. */
  #ownerOf(thrown: unknown): AcpPeer | null {
    const { code, details } = asHoldfastError(thrown)
    const { node } = details
    const { forwarder, limits } = this.hub
    const isForwarded = this.#socket.isForwarded ?? false
    if (code !== 'not_owner' || typeof node !== 'string' || forwarder === null || isForwarded) {
      return null
    }
    const known = this.#peers.get(node)
    if (known !== undefined) return known
    const peer: AcpPeer = new AcpPeer(forwarder, node, {
      ...this.#options.forwarding,
      address: this.#socket.address,
      initialize: this.#initialize,
      bufferedBytesMax: limits.bufferedBytesMax + MESSAGE_BYTES_MAX,
      messageBytesMax: PEER_MESSAGE_BYTES_MAX,
      onMessage: (text) => void this.send(text),
      onAnswer: (request, answer) => this.#passedBack(peer, request, answer),
      onClose: (closed, reason) => {
        this.#socket.close(closed, reason)
        this.closed(closed)
      },
    })
    this.#peers.set(node, peer)
    return peer
  }

  /** One that is wrong has no answer. */
  #takeNotification(notification: RpcNotification, text: string): void {
    try {
      this.#notified(notification, text)
    } catch (thrown) {
      this.#reportFailure(thrown)
    }
  }

  #notified({ method, params }: RpcNotification, text: string): void {
    if (method === '$/cancel_request') return this.#cancelRequest(params, text)
    const isLost = method === SESSION_LOST && this.#socket.isForwarded === true
    if (method !== 'session/cancel' && !isLost) return
    const { sessionId } = readParams('session/cancel', params)
    if (isLost) return this.loseSession(sessionId)
    const attachment = this.attachments.get(sessionId)
    if (attachment === undefined) return this.#tellPeers(sessionId, text)
    attachment.cancel().catch((thrown: unknown) => this.#reportFailure(thrown))
  }

  /** What the client was told of this session may not have arrived; the connection goes on. */
  loseSession(sessionId: string): void {
    this.#elsewhere.get(sessionId)?.send(notificationText(SESSION_LOST, { sessionId }))
    this.#elsewhere.delete(sessionId)
    this.attachments.get(sessionId)?.end('lose')
  }

  #cancelRequest(params: unknown, text: string): void {
    const { requestId } = (params ?? {}) as { readonly requestId?: RpcId }
    if (requestId === undefined) return
    const isOwn = [...this.attachments.values()].some((one) => one.cancelRequest(requestId))
    if (!isOwn) for (const peer of this.#peers.values()) peer.send(text)
  }

  /** The answer to a request, which has the session and the ask, or a name, in its id. */
  #answered(response: RpcResponse, text: string): void {
    const [session, ask] = String(response.id).split('/')
    if (session === undefined || ask === undefined) return
    const attachment = this.attachments.get(session)
    if (attachment === undefined) return this.#tellPeers(session, text)
    void attachment.answered(ask, response)
  }

  send(text: string): Promise<void> | null {
    if (this.isOver) return null
    const { bufferedBytes } = this.#socket
    const data = Buffer.from(text)
    if (bufferedBytes + data.length <= AHEAD_BYTES) {
      this.#socket.send(data)
      return null
    }
    const sent = sendSlowly({ socket: this.#socket, hub: this.hub }, data)
    return sent.catch(this.fail)
  }

  async isAlive(): Promise<boolean> {
    if (this.isOver) return false
    const { heardAt } = this.#socket
    this.#socket.ping()
    await new Promise<void>(
      (resolve) => void this.hub.clock.after(this.hub.limits.probeMs, resolve),
    )
    return !this.isOver && this.#socket.heardAt !== heardAt
  }

  report(error: HoldfastError): void {
    const { by } = this.#options.caller
    const client = { door: 'acp', address: this.#socket.address, principal: by.id } as const
    reportRefusal(this.holdfast.authority.diagnose, error, client)
  }

  #reportFailure(thrown: unknown): void {
    if (!(thrown instanceof RpcError)) this.report(asHoldfastError(thrown))
  }

  /** Closes with the reason's own code: the client may come back, if it is one of a moment. */
  refuse(error: HoldfastError): void {
    if (this.isOver) return
    this.report(error)
    this.#socket.close(closeCode(error.code), error.code)
    this.closed(ABNORMAL)
  }

  readonly fail = (thrown: unknown): void => this.refuse(asHoldfastError(thrown))

  /** The socket is closed. A client that has closed it in good order has left. */
  closed(code: number): void {
    if (this.isOver) return
    this.isOver = true
    const how = code === NORMAL ? 'leave' : 'lose'
    for (const attachment of [...this.attachments.values()]) attachment.end(how)
    for (const peer of this.#peers.values()) peer.close(code)
    this.#options.onEnd()
  }
}

/** Events on their way that are not waited for. */
const AHEAD_BYTES = 65_536
const NO_OFFERS: ReadonlySet<string> = new Set()
/** Another node sends images of the log, and pages of lists. */
const PEER_MESSAGE_BYTES_MAX = 33_554_432
/** Sessions of other nodes whose node is remembered. */
const PLACES_MAX = 1_024
const OPENING: ReadonlySet<string> = new Set(['session/new', 'session/load', 'session/resume'])
const LEAVING: ReadonlySet<string> = new Set(['session/close', 'session/delete'])
/** From one node to another. */
const SESSION_LOST = '_holdfast/session_lost'
const NORMAL = 1000
const ABNORMAL = 1006

function isServed(method: string): method is ServedMethod {
  return isAcpMethod(method) && ACP_METHODS[method].isSupported
}

function replyOf(answer: RpcReply | object): RpcReply {
  return 'result' in answer ? answer : { result: answer }
}
