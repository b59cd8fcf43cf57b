/**
 * One socket's life: hello, welcome, and then what its service sends and takes. The same for every
 * kind of service: which client may connect, which client is pinged, and what a loss means.
 *
 * I6: what comes from a connection that is no longer its attachment's own is dropped. I7: replies
 * go to the connection that asked. I10: the session gets a lost connection reported, and its policy
 * decides.
 */
import {
  HoldfastError,
  asHoldfastError,
  attachmentIn,
  type AttachmentHandle,
  type ErrorCode,
  type SessionHandle,
} from '../../core/index.ts'
import { reportRefusal, type RefusedClient } from '../refusals.ts'
import { readClientMessage } from '../../wire/client-frames.ts'
import { closeCode } from '../../wire/error-table.ts'
import type {
  ClientFrame,
  Hello,
  ReplayWelcome,
  Refuse,
  Role,
  ServerFrame,
  Welcome,
} from '../../wire/frames.ts'
import { refusalOf } from '../../wire/problem.ts'
import type { Caller, Scope } from '../../core/access.ts'
import type { Hub, HubMember } from './hub.ts'
import type { ForwardedSocket, ForwardedSocketOptions, Socket } from './socket.ts'

/** What clients connect to: the log of a session, or a browser. */
export interface Service {
  readonly door: RefusedClient['door']
  /** What frames begin with; a message that does not is the channel's own. */
  readonly mark: string
  readonly readHello: (text: string) => Hello
  /** How clients reach the same service on the node that owns their session. */
  readonly forwarding?: Partial<ForwardedSocketOptions>
  /** Lets a client in, as a new one or in the attachment that it has; throws the refusal. */
  admit(connection: Connection, hello: Hello): Promise<WelcomedClient>
}

export type AdmittedClient = {
  readonly session: SessionHandle
  readonly attachment: AttachmentHandle
  readonly role: Role
  readonly scopes: readonly Scope[]
  /** The token that it came in by; null for a link, whose end the session tells. */
  readonly token: string | undefined | null
  readonly channel: Channel
}

/** The welcome is not kept: it shows the whole session, and there may be many clients. */
export type WelcomedClient = {
  readonly client: AdmittedClient
  readonly welcome: Welcome | ReplayWelcome
}

/** What a service does with one connection. */
export interface Channel {
  /** The welcome is sent. */
  begin(): void
  /** A frame that is not about the connection itself. */
  take(frame: ClientFrame): void
  /** A message that is no frame. */
  message?(data: Buffer): void
  /** The connection is over, begun or not. `left`: its client said goodbye. */
  end(left: boolean): void
}

/** What a small message costs until it has left, besides its text. */
const MESSAGE_BYTES = 256
/** No refusal is longer. */
const REFUSAL_BYTES_MAX = 4_096
/** How long a refused client has to read the reason before its socket is cut. */
const FAREWELL_MS = 100
/** Refusals of a hello whose token, link or resume token is not valid. */
const BAD_SECRET = new Set<string>(['unauthorized', 'attachment_unknown', 'token_reused'])

export class Connection implements HubMember {
  readonly socket: Socket
  readonly hub: Hub
  readonly #service: Service
  #admitted: AdmittedClient | null = null
  /** To the node that owns the session, if it is not this one. */
  #forwarded: ForwardedSocket | null = null
  /** Ends the watch over its token. */
  #release: (() => void) | null = null
  /** It is counted as a socket of its principal until this is called. */
  #uncount: (() => void) | null = null
  #greeted = false
  isOver = false
  #saidBye = false
  #heardAt: number
  #bytesRead = 0
  #saidAt: number
  /** What was said, besides the stream, and has not left this process. */
  #unsentBytes = 0
  /** Made with the first probe: most of many clients are never probed. */
  #probes: ((alive: boolean) => void)[] | null = null

  constructor(hub: Hub, socket: Socket, service: Service) {
    this.hub = hub
    this.#service = service
    this.socket = socket
    this.#heardAt = this.#saidAt = hub.clock.monotonic()
    hub.add(this)
  }

  get attachment(): AttachmentHandle | null {
    return this.#admitted?.attachment ?? null
  }

  /** As a signal: a client that has left is not attached. */
  get aborted(): boolean {
    return this.isOver
  }

  /** Counts it as a socket of the caller's principal, once; throws if that has too many. */
  countFor({ access }: Pick<Caller, 'access'>, { auth }: Hello): void {
    const allowance = this.hub.holdfast.authority.usage.ofCaller(access)
    if (allowance === null || this.#uncount !== null || this.isOver) return
    // The connection before it, which may not be known to be lost, ends when this one is let in.
    const isSuccessor = this.hub.connectionOf(auth?.resume?.attachment ?? '') !== null
    this.#uncount = allowance.take('sockets', isSuccessor)
  }

  drives(session: string): boolean {
    return this.#admitted?.session.id === session && this.#admitted.role === 'driver'
  }

  receive(data: string | Buffer, isBinary = false): void {
    if (this.isOver) return
    this.#heardAt = this.hub.clock.monotonic()
    // No frame is binary.
    const message = isBinary ? '' : data
    if (this.#forwarded !== null) return this.#forwarded.send(message)
    try {
      const { mark } = this.#service
      const isFrame = mark === '' || message[0] === mark || message[0] === mark.charCodeAt(0)
      if (!isFrame) return this.#takeMessage(message as Buffer)
      const text = message.toString().slice(mark.length)
      if (this.#greeted) this.#frames(readClientMessage(text))
      else this.#hello(text)
    } catch (thrown) {
      this.refuse(asHoldfastError(thrown))
    }
  }

  #takeMessage(data: Buffer): void {
    const { channel } = this.#admitted ?? {}
    if (channel?.message === undefined) throw new HoldfastError('bad_request', 'say hello first')
    channel.message(data)
  }

  /** The socket is closed, with this code. */
  closed(code = 1006): void {
    if (this.isOver) return
    this.#end(code)
    const admitted = this.#admitted
    if (admitted === null || this.hub.connectionOf(admitted.attachment.id) !== this) {
      return this.hub.drop(this, null, false)
    }
    void this.#lost(admitted)
  }

  async #lost({ attachment, session }: AdmittedClient): Promise<void> {
    const { id } = attachment
    let mayComeBack = false
    try {
      await attachment.lose()
      // Most of many clients only watch: nothing of theirs is kept until they come back.
      const state = this.hub.hasPresence(id) ? await session.state() : null
      mayComeBack = state !== null && attachmentIn(state, id) !== undefined
    } catch {
      // A session that is gone meanwhile has ended its attachments already.
    }
    this.hub.drop(this, id, mayComeBack)
  }

  say(frame: ServerFrame): void {
    if (this.isOver) return
    this.#saidAt = this.hub.clock.monotonic()
    const text = this.#service.mark + JSON.stringify(frame)
    const bytes = text.length + MESSAGE_BYTES
    this.#unsentBytes += bytes
    this.socket.send(text, () => {
      this.#unsentBytes -= bytes
    })
  }

  /** Says why, and closes. */
  refuse(error: HoldfastError): void {
    if (this.isOver) return
    const client = { door: this.#service.door, address: this.socket.address }
    reportRefusal(this.hub.holdfast.authority.diagnose, error, client)
    const refusal = refusalOf(error)
    if (this.#admitted === null && this.#forwarded === null) this.say(refusal)
    else this.say({ type: 'ending', code: error.code, reason: refusal.reason })
    this.socket.close(closeCode(error.code), error.code)
    this.closed()
  }

  turnOut(error: HoldfastError): void {
    this.refuse(error)
    this.hub.clock.after(FAREWELL_MS, () => this.socket.cut())
  }

  supersede(): void {
    this.say({ type: 'superseded' })
    this.refuse(new HoldfastError('superseded', 'continued in another connection'))
  }

  /** The attachment ended; if its session closed, the client learns that from the log. */
  attachmentEnded(reason: string): void {
    if (reason === 'session_closed') return
    if (reason === 'superseded') return this.supersede()
    this.refuse(new HoldfastError('attachment_ended', `the attachment is over: ${reason}`))
  }

  /** Its token has lost a scope that it needs: its attachment ends. */
  #revoke({ attachment }: AdmittedClient): void {
    if (this.isOver) return
    // One that ended meanwhile has nothing left to leave.
    void attachment.leave('access_revoked').catch(() => undefined)
    this.refuse(new HoldfastError('unauthorized', 'the token is no longer good for this'))
  }

  /** Throws if the socket is gone: a client that is gone supersedes no other one. */
  assertHere(): void {
    if (this.isOver) throw new HoldfastError('superseded', 'the connection is gone')
  }

  /**
   * Throws unless the client answers on this connection now. A hello that was long on its way may
   * be of a client that is gone, or that has opened another connection since.
   */
  async assertAlive(): Promise<void> {
    const isAlive = await this.isAlive()
    // It may have answered and closed at once.
    this.assertHere()
    if (!isAlive)
      throw new HoldfastError('too_slow', 'the connection did not answer a ping in time')
  }

  async isAlive(): Promise<boolean> {
    this.say({ type: 'ping' })
    return this.waitForSign()
  }

  /** Waits for the time to probe, or less if a message or the end comes before. */
  waitForSign(): Promise<boolean> {
    if (this.isOver) return Promise.resolve(false)
    return new Promise((resolve) => {
      const { clock, limits } = this.hub
      // In a process that was busy the timer is due before what has come meanwhile is read.
      let cancel = clock.after(limits.probeMs, () => {
        cancel = clock.after(0, () => resolve(false))
      })
      this.#probes ??= []
      this.#probes.push((alive) => {
        cancel()
        resolve(alive)
      })
    })
  }

  watch(now: number): void {
    const { helloMs, pingMs, deadMs } = this.hub.limits
    const { isPaused = false, bytesRead = 0 } = this.socket
    // It is silent because it is not read, or in the middle of a large message.
    if (isPaused || (this.#greeted && bytesRead !== this.#bytesRead)) this.#heardAt = now
    this.#bytesRead = bytesRead
    const silence = now - this.#heardAt
    if (this.#admitted === null && !this.#greeted && silence > helloMs) {
      // It may only have been on its way for too long: the next one may be quicker.
      return this.refuse(new HoldfastError('too_slow', 'hello did not come in time'))
    }
    if (silence > deadMs) {
      this.socket.cut()
      return this.closed()
    }
    if (this.#admitted !== null && now - this.#saidAt >= pingMs) this.say({ type: 'ping' })
  }

  #hello(text: string): void {
    if (text.length > this.hub.limits.helloBytesMax) {
      throw new HoldfastError('bad_request', 'hello is too large')
    }
    const hello = this.#service.readHello(text)
    this.#greeted = true
    this.hub.greeted(this)
    const { resume } = hello.auth ?? {}
    if (resume === undefined) void this.#enter(hello, text)
    else {
      const heardAt = this.#heardAt
      void this.hub.inTurn(resume.attachment, () => this.#enter(hello, text, heardAt))
    }
  }

  async #enter(hello: Hello, text: string, heardAt = this.#heardAt): Promise<void> {
    let admitted: WelcomedClient
    try {
      if (this.hub.holdfast.authority.draining) {
        throw new HoldfastError('draining', 'the server is about to stop')
      }
      admitted = await this.#service.admit(this, hello)
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      const { code, details } = error
      const isForwarded = code === 'not_owner' && this.#forward(details['node'], hello, text)
      if (!isForwarded) this.refuse(this.#counted(hello, error))
      return
    }
    this.#welcome(admitted)
    if (hello.auth?.resume === undefined) return
    const { clock, holdfast } = this.hub
    holdfast.authority.figures.resume.observeMs(clock.monotonic() - heardAt)
  }

  /** The refusal, or `too_many` if this address has shown too many bad secrets. */
  #counted({ auth = {} }: Hello, error: HoldfastError): HoldfastError {
    const hasSecret = (auth.token ?? auth.link ?? auth.resume) !== undefined
    try {
      if (hasSecret && BAD_SECRET.has(error.code)) this.hub.gate.failed(this.socket.address)
      return error
    } catch (tooMany) {
      return asHoldfastError(tooMany)
    }
  }

  /** False if there is no way to the node that owns the session. */
  #forward(node: unknown, hello: Hello, text: string): boolean {
    const { forwarder, gate } = this.hub
    const { address, isForwarded = false } = this.socket
    if (forwarder === null || isForwarded || typeof node !== 'string' || this.isOver) return false
    const bufferedBytesMax = this.#bufferedBytesMax
    let isFirst = true
    this.#forwarded = forwarder.open(node, {
      ...{ hello: this.#service.mark + text, address },
      ...{ bufferedBytesMax, ...this.#service.forwarding },
      onMessage: (message) => {
        const tooMany = isFirst ? this.#countPassed(hello, message) : null
        isFirst = false
        if (tooMany === null) return this.#handOver(message)
        this.#forwarded?.close()
        this.#forwarded = null
        this.refuse(tooMany)
      },
      onClose: (code, reason) => {
        this.socket.close(code, reason)
        this.closed()
      },
    })
    // The owner counts it.
    this.#uncount?.()
    const { token } = hello.auth ?? {}
    if (token === undefined) return true
    // The owner ends it too, but its tokens may be a copy that is older.
    const revoked = new HoldfastError('unauthorized', 'the token is not good any more')
    this.#release = gate.hold(token, [], () => this.refuse(revoked))
    if (this.isOver) this.#release()
    return true
  }

  /**
   * A bad secret that the owner refuses counts here too, or the number of tries would tell which
   * sessions there are. Returns `too_many`, if it comes to that.
   */
  #countPassed(hello: Hello, message: Uint8Array): HoldfastError | null {
    const { mark } = this.#service
    const text = message.length > REFUSAL_BYTES_MAX ? '' : Buffer.from(message).toString()
    if (!text.startsWith(`${mark}{"type":"refuse"`)) return null
    const { code, reason } = JSON.parse(text.slice(mark.length)) as Refuse
    const counted = this.#counted(hello, new HoldfastError(code as ErrorCode, reason))
    return counted.code === code ? null : counted
  }

  get #bufferedBytesMax(): number {
    return this.#service.forwarding?.bufferedBytesMax ?? this.hub.limits.bufferedBytesMax
  }

  #handOver(message: Uint8Array): void {
    if (this.isOver) return
    if (this.socket.bufferedBytes > this.#bufferedBytesMax) {
      return this.refuse(new HoldfastError('too_slow', 'the client does not read its answers'))
    }
    this.socket.send(message)
  }

  #welcome({ client, welcome }: WelcomedClient): void {
    this.#admitted = client
    const { attachment, token, scopes, channel } = client
    this.hub.take(attachment.id, this)?.supersede()
    // The socket was lost, or its client left, while it was let in.
    if (this.isOver) {
      channel.end(this.#saidBye)
      return this.#saidBye ? this.#leave(attachment) : void this.#lost(client)
    }
    // The session ends the attachments of a link that is revoked.
    if (token !== null) {
      this.#release = this.hub.gate.hold(token, scopes, () => this.#revoke(client))
      // It was revoked meanwhile.
      if (this.isOver) return this.#release()
    }
    this.say(welcome)
    channel.begin()
  }

  #frames(frames: readonly ClientFrame[]): void {
    for (const frame of frames) {
      // A bye may precede it.
      if (this.isOver) return
      if (this.#unsentBytes > this.hub.limits.bufferedBytesMax) {
        throw new HoldfastError('too_slow', 'the client does not read its answers')
      }
      this.#frame(frame)
    }
  }

  #frame(frame: ClientFrame): void {
    switch (frame.type) {
      case 'hello':
        throw new HoldfastError('bad_request', 'hello was said already')
      case 'ping':
        return this.say({ type: 'pong' })
      case 'pong':
        // Only this tells: anything else may have been on its way when the client was lost.
        return this.#answerProbes(true)
      case 'bye':
        return this.#bye()
      default:
        if (this.#admitted === null) throw new HoldfastError('bad_request', 'wait for the welcome')
        if (frame.type !== 'ready') return this.#admitted.channel.take(frame)
        if (frame.epoch === this.#admitted.attachment.epoch) this.#confirm(this.#admitted)
    }
  }

  /** It only allows forgetting older tokens: if it fails, the last one stays good for longer. */
  #confirm({ attachment }: AdmittedClient): void {
    void attachment.confirm().catch(() => undefined)
  }

  #bye(): void {
    this.#saidBye = true
    this.socket.close(1000, 'bye')
    this.#end(1000)
    if (this.attachment === null) this.hub.drop(this, null, false)
    else this.#leave(this.attachment)
  }

  #leave(attachment: AttachmentHandle): void {
    this.hub.drop(this, attachment.id, false)
    // One that ended meanwhile has nothing left to leave.
    void attachment.leave().catch(() => undefined)
  }

  #end(code: number): void {
    this.isOver = true
    this.#release?.()
    this.#uncount?.()
    this.#forwarded?.close(code)
    this.#answerProbes(false)
    this.#admitted?.channel.end(this.#saidBye)
  }

  #answerProbes(alive: boolean): void {
    for (const answered of this.#probes?.splice(0) ?? []) answered(alive)
  }
}
