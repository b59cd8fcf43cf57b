/**
 * One client of the Copilot door. It shows its token with `connect`, and then calls methods; what
 * belongs to a session of another node is passed on to that node's door.
 *
 * I7: replies go to the connection that asked. I10: the sessions that it was attached to get a lost
 * connection reported, and their policies decide.
 */
import {
  asHoldfastError,
  HoldfastError,
  mayDo,
  SCOPES,
  scopesOn,
  type AttachmentHandle,
  type ClientTools,
  type Holdfast,
  type Scope,
  type Session,
} from '../../core/index.ts'
import type { Socket } from '../connect/socket.ts'
import { reportRefusal } from '../refusals.ts'
import { AttachedSession, ENDED, type SessionClient } from './attached-session.ts'
import { answersOf, toolsOf, type CreationParams } from './creation.ts'
import type { DoorContext } from './door-context.ts'
import type { CopilotLimits } from './limits.ts'
import {
  methodUnknown,
  readRpcMessage,
  RpcError,
  type RpcId,
  type RpcRequest,
} from '../json-rpc.ts'
import { PROTOCOL_VERSION, rpcErrorOf } from './messages.ts'
import {
  ANSWERED_LATER,
  ATTACHING,
  CONNECT,
  LEAVING,
  METHODS,
  readConnect,
  STARTING,
  type Method,
  type MethodCaller,
  type Respond,
} from './methods.ts'
import { ClientEnd } from './client-end.ts'
import type { NamedSession } from './sessions.ts'
import { Upstream, type UpstreamClient } from './upstream.ts'

/** A client that was let in. */
type Admitted = {
  readonly holdfast: Holdfast
  readonly token: string | undefined
}

export class CopilotConnection implements MethodCaller, SessionClient, UpstreamClient {
  readonly socket: Socket
  isOver = false
  readonly #door: DoorContext
  readonly #end: ClientEnd
  #admitted: Admitted | null = null
  #isConnecting = false
  #release: () => void = () => undefined
  #uncount: () => void = () => undefined
  /** Requests of the client that have no answer yet. */
  readonly #pending = new Set<RpcId>()
  /** By the names that the client has for them. */
  readonly #sessions = new Map<string, AttachedSession>()
  /** Sessions that it is being attached to: they count like the others. */
  #arriving = 0
  /** By node; and which of them a name leads to. */
  readonly #upstreams = new Map<string, Upstream>()
  readonly #routes = new Map<string, Upstream>()
  /** Requests that other nodes have sent to the client. */
  readonly #askedBy = new Map<RpcId, Upstream>()
  /** Requests that would attach to a session of another node, by their ids. */
  readonly #attaching = new Map<RpcId, string>()
  readonly #openedAt: number
  #heardAt: number
  #bytesRead = 0
  #isPinged = false

  constructor(door: DoorContext, socket: Socket) {
    this.#door = door
    this.socket = socket
    this.#openedAt = this.#heardAt = door.clock.monotonic()
    this.#end = new ClientEnd({
      socket,
      clock: door.clock,
      limits: door.limits,
      unread: door.unread,
      onSlow: (error) => this.cut(error),
    })
  }

  get limits(): CopilotLimits {
    return this.#door.limits
  }

  get address(): string {
    return this.socket.address
  }

  get clientTools(): ClientTools {
    return this.holdfast.authority.clientTools
  }

  get isAdmitted(): boolean {
    return this.#admitted !== null
  }

  get holdfast(): Holdfast {
    if (this.#admitted !== null) return this.#admitted.holdfast
    throw new HoldfastError('unauthorized', 'say connect first, with a token')
  }

  get token(): string | undefined {
    return this.#admitted?.token
  }

  /** As a signal: a client that has left is not attached. */
  get aborted(): boolean {
    return this.isOver
  }

  now(): number {
    return this.#door.clock.now()
  }

  /** What its next message may have: only the holder of a token gets room. */
  get messageBytesMax(): number {
    return this.#admitted === null ? this.limits.connectBytesMax : this.limits.messageBytesMax
  }

  /** A whole message of the client. */
  receive(text: string): void {
    if (this.isOver) return
    this.#heardAt = this.#door.clock.monotonic()
    this.#isPinged = false
    try {
      const message = readRpcMessage(text)
      if (message.type === 'request') this.#request(message, text)
      else if (message.type === 'response' && message.id !== null) {
        const { id, result } = message
        if (!this.#end.answered(id, result)) this.#passBack(id, text)
      }
    } catch (thrown) {
      if (!(thrown instanceof RpcError)) return this.cut(asHoldfastError(thrown))
      this.cut(new HoldfastError('bad_request', thrown.message))
    }
  }

  #request(request: RpcRequest, text: string): void {
    const { id, method } = request
    if (id === null) throw new HoldfastError('bad_request', 'a request has no id')
    if (this.#pending.has(id)) throw new HoldfastError('bad_request', 'two requests have one id')
    if (this.#pending.size >= this.limits.requestsMax) {
      const error = rpcErrorOf(new HoldfastError('too_many', 'too many requests wait'))
      return this.#end.respond(id, { error })
    }
    this.#pending.add(id)
    const done =
      this.#admitted === null ? this.#connect(request) : this.#call(request, method, text)
    done.catch((thrown: unknown) => this.failed(id, asHoldfastError(thrown)))
  }

  readonly #respond = (id: RpcId): Respond => {
    return (outcome) => {
      if (this.#pending.delete(id)) this.#end.respond(id, outcome)
    }
  }

  failed(id: RpcId, error: HoldfastError): void {
    const { diagnose } = this.#door.holdfast.authority
    if (error.code === 'internal') reportRefusal(diagnose, error, this.#asClient())
    this.#attaching.delete(id)
    this.#respond(id)({ error: rpcErrorOf(error) })
  }

  #asClient() {
    const principal = this.#admitted?.holdfast.by.id
    return { door: 'copilot', address: this.address, principal } as const
  }

  async #connect({ id, method, params }: RpcRequest): Promise<void> {
    try {
      if (method !== CONNECT || this.#isConnecting) {
        throw new HoldfastError('unauthorized', 'say connect first, with a token')
      }
      this.#isConnecting = true
      const { token } = readConnect(params ?? {})
      await this.#letIn(token)
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      this.failed(id, error)
      return this.end(error)
    }
    const about = { ok: true, protocolVersion: PROTOCOL_VERSION, version: this.#door.version }
    this.#respond(id)({ result: about })
  }

  async #letIn(token: string | undefined): Promise<void> {
    const { gate, holdfast } = this.#door
    const preparing = gate.prepare(token)
    if (preparing !== null) await preparing
    if (this.isOver) return
    if (this.#door.isDraining()) throw new HoldfastError('draining', 'the server is about to stop')
    const caller = gate.callerOf(token)
    const scopes = gate.grant(token)
    if (caller === null || scopes === null) {
      if (token !== undefined) gate.failed(this.address)
      throw new HoldfastError('unauthorized', 'a good token is needed, as connectionToken')
    }
    // The node that the client is connected to counts it.
    const allowance = holdfast.authority.usage.ofCaller(caller.access)
    if (this.socket.isForwarded !== true && allowance !== null) {
      this.#uncount = allowance.take('sockets')
    }
    this.#admitted = { holdfast: holdfast.as(caller.by, caller.access), token }
    this.#door.admitted(this)
    const revoked = new HoldfastError('unauthorized', 'the token is not good any more')
    this.#release = gate.hold(token, scopes, () => this.cut(revoked))
    // It was revoked meanwhile.
    if (this.isOver) this.#release()
  }

  async #call(request: RpcRequest, name: string, text: string): Promise<void> {
    const { id } = request
    const method = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined
    if (method === undefined) return this.#respond(id)({ error: methodUnknown(name).body })
    if (STARTING.has(name) && this.#door.isDraining()) {
      throw new HoldfastError('draining', 'the server is about to stop')
    }
    const params = method.read(request.params ?? {})
    const way = this.#wayTo(method, params)
    const upstream = way instanceof Promise ? await way : way
    if (upstream !== null) return this.#passOn(request, upstream, text)
    try {
      const result = await method.run(this, params, this.#respond(id))
      if (result !== ANSWERED_LATER) this.#respond(id)({ result })
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      const { node } = error.details
      const isElsewhere = error.code === 'not_owner' && typeof node === 'string'
      if (!isElsewhere || this.#forwarder === null) throw error
      const owner = this.#upstreamAt(node)
      await owner.opened
      this.#passOn(request, owner, text)
    }
  }

  /** Null where there are no other nodes, or another node asks. */
  get #forwarder() {
    return this.socket.isForwarded === true ? null : this.#door.forwarder
  }

  /** The node that answers, if it is not this one. What it is attached to is known at once. */
  #wayTo(method: Method, params: object): Upstream | null | Promise<Upstream | null> {
    const { sessionId: name } = params as { readonly sessionId?: string }
    const forwarder = this.#forwarder
    if (!method.isOfSession || name === undefined || forwarder === null) return null
    if (this.#sessions.has(name)) return null
    return this.#routes.get(name) ?? this.#findOwner(name)
  }

  /** Nothing was said yet: a node that is gone, or about to go, may have a successor. */
  async #findOwner(name: string): Promise<Upstream | null> {
    const { clock, limits } = this.#door
    const until = clock.monotonic() + limits.ownerMs
    for (let isNew = false; ; isNew = true) {
      const node = await this.#door.ownerOf(this.holdfast, name, isNew)
      if (node === null) return null
      const upstream = this.#upstreamAt(node)
      try {
        await upstream.opened
        return upstream
      } catch (thrown) {
        if (this.isOver || clock.monotonic() > until) throw thrown
      }
      await new Promise<void>((resolve) => clock.after(limits.ownerAgainMs, resolve))
    }
  }

  #upstreamAt(node: string): Upstream {
    const forwarder = this.#forwarder
    if (forwarder === null || this.isOver) throw new HoldfastError('cancelled', 'it is over')
    const known = this.#upstreams.get(node)
    if (known !== undefined) return known
    const upstream = new Upstream(forwarder, node, this)
    this.#upstreams.set(node, upstream)
    return upstream
  }

  #passOn({ id, method, params }: RpcRequest, upstream: Upstream, text: string): void {
    const { sessionId: name } = (params ?? {}) as { readonly sessionId?: string }
    if (name !== undefined && ATTACHING.has(method)) {
      this.#assertRoom()
      this.#attaching.set(id, name)
      this.#routes.set(name, upstream)
    }
    if (name !== undefined && LEAVING.has(method)) this.#routes.delete(name)
    upstream.request(id, text)
  }

  handOver(text: string): void {
    const { bufferedBytesMax, messageBytesMax } = this.limits
    if (this.socket.bufferedBytes > bufferedBytesMax + messageBytesMax) {
      return this.cut(new HoldfastError('too_slow', 'the client does not read its answers'))
    }
    this.#end.send(text)
  }

  asked(id: RpcId, upstream: Upstream): void {
    this.#askedBy.set(id, upstream)
  }

  answered(id: RpcId, isRefused: boolean): void {
    this.#pending.delete(id)
    const name = this.#attaching.get(id)
    this.#attaching.delete(id)
    if (isRefused && name !== undefined) this.#routes.delete(name)
  }

  /** The client answers a request of another node. */
  #passBack(id: RpcId, text: string): void {
    const upstream = this.#askedBy.get(id)
    this.#askedBy.delete(id)
    upstream?.send(text)
  }

  /** A client that was attached through it has lost events: it has to come back. */
  upstreamClosed(upstream: Upstream, error: HoldfastError): void {
    this.#upstreams.delete(upstream.node)
    for (const [id, asker] of this.#askedBy) if (asker === upstream) this.#askedBy.delete(id)
    const wasAttached = [...this.#routes.values()].includes(upstream)
    if (wasAttached) this.cut(error)
  }

  attached(name: string): AttachedSession {
    const attached = this.#sessions.get(name)
    if (attached !== undefined) return attached
    throw new HoldfastError('attachment_unknown', `create or resume session ${name} first`)
  }

  attachedOrNull(name: string): AttachedSession | null {
    return this.#sessions.get(name) ?? null
  }

  #assertRoom(): void {
    const { size } = this.#sessions
    if (size + this.#arriving + this.#routes.size < this.limits.sessionsMax) return
    throw new HoldfastError('too_many', 'the connection is attached to too many sessions')
  }

  async attach(
    { name, session }: NamedSession,
    params: CreationParams,
    state: Session | null,
  ): Promise<void> {
    if (!this.#sessions.has(name)) this.#assertRoom()
    const scopes = state === null ? this.#ownScopes : scopesOn(this.holdfast, state)
    // It may look on only; and who may not answer does not count as a client to ask.
    const role = mayDo(scopes, 'turn.run') ? 'driver' : 'watcher'
    const answers = mayDo(scopes, 'ask.answer') ? answersOf(params) : []
    this.#arriving += 1
    let attachment: AttachmentHandle
    try {
      attachment = await session.attach({ role, answers, signal: this })
    } finally {
      this.#arriving -= 1
    }
    const { streaming = false } = params
    const tools = answers.length === 0 ? [] : toolsOf(params)
    const options = { name, session, attachment, answers, tools, streaming }
    const attached = new AttachedSession(this, options, state)
    const before = this.#sessions.get(name)
    this.#sessions.set(name, attached)
    this.#door.attached(attachment.id, attached)
    try {
      if (before !== undefined) await this.#leave(before, false)
      if (this.isOver) throw new HoldfastError('cancelled', 'the connection is gone')
      await attached.begin()
    } catch (thrown) {
      if (this.#sessions.get(name) === attached) this.#sessions.delete(name)
      await this.#leave(attached, this.isOver)
      throw thrown
    }
  }

  get #ownScopes(): readonly Scope[] {
    return this.holdfast.access?.scopes ?? SCOPES
  }

  async detach(name: string): Promise<void> {
    const attached = this.#sessions.get(name)
    this.#sessions.delete(name)
    if (attached !== undefined) await this.#leave(attached, false)
  }

  /** One that has ended meanwhile has nothing left to leave. */
  async #leave(attached: AttachedSession, isLost: boolean): Promise<void> {
    this.#door.detached(attached.attachment.id)
    await attached.leave(isLost).catch((thrown: unknown) => {
      const error = asHoldfastError(thrown)
      if (!ENDED.has(error.code)) throw error
    })
  }

  sessionOver(attached: AttachedSession, why: HoldfastError | null): void {
    const { name, attachment } = attached
    this.#door.detached(attachment.id)
    if (this.#sessions.get(name) === attached) this.#sessions.delete(name)
    if (why === null) {
      this.#end.notify('session.lifecycle', { type: 'session.deleted', sessionId: name })
    } else if (ENDED.has(why.code)) {
      const warning = { warningType: why.code, message: why.message }
      attached.warn(warning)
    } else this.cut(why)
  }

  notify(method: string, params: object): void {
    this.#end.notify(method, params)
  }

  get room(): Promise<void> | null {
    return this.#end.room
  }

  ask(method: string, params: object, signal?: AbortSignal): Promise<unknown> {
    return this.#end.ask(method, params, signal)
  }

  probe(answered: () => void): void {
    this.#end.probe(answered)
  }

  /** A silent connection is pinged, then given up; one that says no `connect` is closed. */
  watch(now: number): void {
    const { bytesRead = 0 } = this.socket
    if (bytesRead !== this.#bytesRead && this.isAdmitted) this.#heardAt = now
    this.#bytesRead = bytesRead
    const { connectMs, pingMs, deadMs } = this.limits
    if (!this.isAdmitted && now - this.#openedAt > connectMs) {
      return this.cut(new HoldfastError('too_slow', 'connect did not come in time'))
    }
    const silence = now - this.#heardAt
    if (silence > deadMs) return this.cut(null)
    if (!this.isAdmitted || silence <= pingMs || this.#isPinged) return
    this.#isPinged = true
    // Its answer shows that it is there; without one it is given up.
    this.#end.probe(() => undefined)
  }

  /** The socket is closed. */
  closed(): void {
    if (this.isOver) return
    this.isOver = true
    this.#release()
    this.#uncount()
    this.#pending.clear()
    this.#end.end()
    for (const upstream of this.#upstreams.values()) upstream.close()
    this.#door.closed(this)
    for (const attached of this.#sessions.values()) void this.#lose(attached)
    this.#sessions.clear()
  }

  async #lose(attached: AttachedSession): Promise<void> {
    // A session that is gone meanwhile has ended its attachments already.
    await this.#leave(attached, true).catch(() => undefined)
  }

  /** Says nothing more, and closes when what was said has left. */
  end(error: HoldfastError): void {
    this.#report(error)
    this.socket.close(1008, error.code)
    this.closed()
  }

  /** Null: its client is gone, which is nothing to report. */
  cut(error: HoldfastError | null): void {
    if (this.isOver) return
    if (error !== null) this.#report(error)
    this.socket.cut()
    this.closed()
  }

  #report(error: HoldfastError): void {
    reportRefusal(this.#door.holdfast.authority.diagnose, error, this.#asClient())
  }

  report({ code }: HoldfastError): void {
    // The client has gone, or somebody else has answered.
    if (code === 'cancelled') return
    const { diagnose } = this.#door.holdfast.authority
    diagnose('ask_unanswered', 'a client of the Copilot door has not answered', { reason: code })
  }
}
