/**
 * One socket's life: hello, welcome, and then requests one way and the log the other.
 *
 * I6: what comes from a connection that is no longer its attachment's own is dropped. I7: replies
 * go to the connection that asked. I10: a lost connection is told to the session, whose policy
 * decides.
 */
import {
  HoldfastError,
  asHoldfastError,
  attachmentIn,
  type AttachmentHandle,
  type SessionHandle,
} from '../../core/index.ts'
import { reportRefusal } from '../refusals.ts'
import { closeCode } from '../../wire/error-table.ts'
import { readClientMessage, readHello } from '../../wire/client-frames.ts'
import type { ClientFrame, Hello, Role, ServerFrame } from '../../wire/frames.ts'
import { enter, type Admitted, type Entry } from './entry.ts'
import type { Hub } from './hub.ts'
import { refusalOf } from './refusal.ts'
import { Requests } from './requests.ts'
import type { ForwardedSocket, Socket } from './socket.ts'
import { Stop, streamTo } from './stream.ts'

/** What a small message costs until it has left, besides its text. */
const MESSAGE_BYTES = 256
/** How long a client that is turned out has to read why. */
const FAREWELL_MS = 100
/** How a hello is refused whose token, link or resume token is not good. */
const BAD_SECRET: ReadonlySet<string> = new Set([
  'unauthorized',
  'attachment_unknown',
  'token_reused',
])

export class Connection {
  readonly socket: Socket
  readonly #hub: Hub
  #entry: Entry | null = null
  #requests: Requests | null = null
  /** To the node that owns the session, if it is not this one. */
  #forwarded: ForwardedSocket | null = null
  /** Ends the watch over its token. */
  #release: () => void = () => undefined
  #greeted = false
  #over = false
  #saidBye = false
  /** Aborted when the socket is gone: ends the stream, and keeps a client that left out. */
  readonly gone = new Stop()
  #heardAt: number
  #saidAt: number
  /** What was said, besides the stream, and has not left this process. */
  #unsentBytes = 0
  #probes: ((alive: boolean) => void)[] = []

  constructor(hub: Hub, socket: Socket) {
    this.#hub = hub
    this.socket = socket
    this.#heardAt = this.#saidAt = hub.clock.monotonic()
    hub.add(this)
  }

  get attachment(): AttachmentHandle | null {
    return this.#entry?.attachment ?? null
  }

  get session(): SessionHandle | null {
    return this.#entry?.session ?? null
  }

  get role(): Role | null {
    return this.#entry?.role ?? null
  }

  /** Its socket is gone, which its session may not know yet. */
  get isOver(): boolean {
    return this.#over
  }

  drives(session: string): boolean {
    return this.session?.id === session && this.role === 'driver'
  }

  /** A message arrived. */
  receive(message: string): void {
    if (this.#over) return
    this.#heardAt = this.#hub.clock.monotonic()
    if (this.#forwarded !== null) return this.#forwarded.send(message)
    try {
      if (this.#greeted) this.#frames(readClientMessage(message))
      else this.#hello(message)
    } catch (thrown) {
      this.refuse(asHoldfastError(thrown))
    }
  }

  /** The socket is closed. `goodbye`: by the client, on purpose. */
  closed(): void {
    if (this.#over) return
    this.#end()
    const { attachment } = this
    if (attachment === null || this.#hub.connectionOf(attachment.id) !== this) {
      return this.#hub.drop(this, null, false)
    }
    this.#lost(attachment)
  }

  #lost(attachment: AttachmentHandle): void {
    // A session that is gone meanwhile has ended its attachments already.
    void this.#lose(attachment).catch(() => this.#hub.drop(this, attachment.id, false))
  }

  async #lose(attachment: AttachmentHandle): Promise<void> {
    const { id } = attachment
    await attachment.lose()
    // Most of a crowd only look on: nothing of theirs waits for them to come back.
    const state = this.#hub.hasPresence(id) ? await this.session?.state() : undefined
    const mayComeBack = state !== undefined && attachmentIn(state, id) !== undefined
    this.#hub.drop(this, id, mayComeBack)
  }

  say(frame: ServerFrame): void {
    if (this.#over) return
    this.#saidAt = this.#hub.clock.monotonic()
    const text = JSON.stringify(frame)
    const bytes = text.length + MESSAGE_BYTES
    this.#unsentBytes += bytes
    this.socket.send(text, () => {
      this.#unsentBytes -= bytes
    })
  }

  /** Says why, and closes. */
  refuse(error: HoldfastError): void {
    if (this.#over) return
    const { address } = this.socket
    const { diagnose } = this.#hub.holdfast.authority
    reportRefusal(diagnose, error, { door: 'connect', address })
    if (this.#entry === null && this.#forwarded === null) this.say(refusalOf(error))
    else this.say({ type: 'ending', code: error.code, reason: refusalOf(error).reason })
    this.socket.close(closeCode(error.code), error.code)
    this.closed()
  }

  /** Refuses, and does not wait until the client has closed its side. */
  turnOut(error: HoldfastError): void {
    this.refuse(error)
    this.#hub.clock.after(FAREWELL_MS, () => this.socket.cut())
  }

  /** Another connection has this attachment now. */
  supersede(): void {
    this.say({ type: 'superseded' })
    this.refuse(new HoldfastError('superseded', 'continued in another connection'))
  }

  /** The attachment is over by somebody else's doing; with its session, the log tells. */
  attachmentEnded(reason: string): void {
    if (reason === 'session_closed') return
    if (reason === 'superseded') return this.supersede()
    this.refuse(new HoldfastError('attachment_ended', `the attachment is over: ${reason}`))
  }

  /** Its token is no longer good for what it does: it is out, for good. */
  #revoke({ attachment }: Entry): void {
    if (this.#over) return
    // One that ended meanwhile has nothing left to leave.
    void attachment.leave('access_revoked').catch(() => undefined)
    this.refuse(new HoldfastError('unauthorized', 'the token is no longer good for this'))
  }

  drain(): void {
    this.refuse(new HoldfastError('draining', 'the server is about to stop'))
  }

  /** Throws if the socket is gone: nobody is put out for somebody who is not there. */
  assertHere(): void {
    if (this.#over) throw new HoldfastError('superseded', 'the connection is gone')
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

  /** Whether it answers within the time to probe. */
  async isAlive(): Promise<boolean> {
    this.say({ type: 'ping' })
    return this.waitForSign()
  }

  /** Waits for the time to probe, or less if a sign of life or the end comes before. */
  waitForSign(): Promise<boolean> {
    if (this.#over) return Promise.resolve(false)
    return new Promise((resolve) => {
      const { clock, limits } = this.#hub
      // In a process that was busy the timer is due before what has come meanwhile is read.
      let cancel = clock.after(limits.probeMs, () => {
        cancel = clock.after(0, () => resolve(false))
      })
      this.#probes.push((alive) => {
        cancel()
        resolve(alive)
      })
    })
  }

  /** Called now and then: a silent connection is pinged, then given up. */
  watch(now: number): void {
    const { helloMs, pingMs, deadMs } = this.#hub.limits
    const silence = now - this.#heardAt
    if (this.#entry === null && !this.#greeted && silence > helloMs) {
      // It may only have been on its way for too long: the next one may be quicker.
      return this.refuse(new HoldfastError('too_slow', 'hello did not come in time'))
    }
    if (silence > deadMs) {
      this.socket.cut()
      return this.closed()
    }
    if (this.#entry !== null && now - this.#saidAt >= pingMs) this.say({ type: 'ping' })
  }

  #hello(message: string): void {
    if (message.length > this.#hub.limits.helloBytesMax) {
      throw new HoldfastError('bad_request', 'hello is too large')
    }
    const hello = readHello(message)
    this.#greeted = true
    this.#hub.greeted(this)
    const { resume } = hello.auth ?? {}
    if (resume === undefined) void this.#enter(hello, message)
    else void this.#hub.inTurn(resume.attachment, () => this.#enter(hello, message))
  }

  #enter(hello: Hello, message: string): Promise<void> {
    const { token, link, resume } = hello.auth ?? {}
    const hasSecret = (token ?? link ?? resume) !== undefined
    return enter(this.#hub, this, hello).then(
      (admitted) => this.#welcome(admitted),
      (thrown: unknown) => this.#turnAway(asHoldfastError(thrown), { message, hasSecret }),
    )
  }

  #turnAway(
    error: HoldfastError,
    { message, hasSecret }: { readonly message: string; readonly hasSecret: boolean },
  ): void {
    const { code } = error
    if (code === 'not_owner' && this.#passOn(error.details['node'], message)) return
    this.refuse(hasSecret && BAD_SECRET.has(code) ? this.#failed(error) : error)
  }

  /** What a client is told that showed a bad secret: after too many of them, to wait. */
  #failed(error: HoldfastError): HoldfastError {
    try {
      this.#hub.gate.failed(this.socket.address)
      return error
    } catch (tooMany) {
      return asHoldfastError(tooMany)
    }
  }

  /** False if there is no way to the node that owns the session. */
  #passOn(node: unknown, hello: string): boolean {
    const { forwarder, limits } = this.#hub
    const { address, isForwarded = false } = this.socket
    if (forwarder === null || isForwarded || typeof node !== 'string' || this.#over) return false
    const { bufferedBytesMax } = limits
    this.#forwarded = forwarder.open(node, {
      hello,
      address,
      bufferedBytesMax,
      onMessage: (message) => this.#handOver(message),
      onClose: (code, reason) => {
        this.socket.close(code, reason)
        this.closed()
      },
    })
    return true
  }

  #handOver(message: Uint8Array): void {
    if (this.#over) return
    if (this.socket.bufferedBytes > this.#hub.limits.bufferedBytesMax) {
      return this.refuse(new HoldfastError('too_slow', 'the client does not read its answers'))
    }
    this.socket.send(message)
  }

  #welcome({ entry, welcome, presence }: Admitted): void {
    this.#entry = entry
    const { attachment, session } = entry
    this.#hub.take(attachment.id, this)?.supersede()
    // The socket was lost, or its client left, while it was let in.
    if (this.#saidBye) return this.#leave(attachment)
    if (this.#over) return this.#lost(attachment)
    // By a link it is let in by the session, which tells when the link is over.
    if (entry.token !== null) {
      const { token, scopes } = entry
      this.#release = this.#hub.gate.hold(token, scopes, () => this.#revoke(entry))
      // Taken back while it was let in.
      if (this.#over) return this.#release()
    }
    this.#requests = new Requests(this.#hub, this, entry)
    this.say(welcome)
    const { seq, delta } = welcome.after
    const watcher = entry.role === 'watcher' ? { watcher: attachment.id } : {}
    const { gone } = this
    const { clock, limits, unread } = this.#hub
    session
      .openFeed({ after: seq, afterDelta: delta, signal: gone, presence, ...watcher })
      .then((feed) => streamTo(this.socket, feed, { gone, clock, limits, unread }))
      .then(() => this.#closeWithSession())
      .catch((thrown: unknown) => this.refuse(asHoldfastError(thrown)))
  }

  /** I9: with the session all that was asked of it is settled, and told before the end. */
  async #closeWithSession(): Promise<void> {
    await this.#requests?.settled()
    if (this.#over) return
    this.refuse(new HoldfastError('session_closed', 'the session is closed'))
  }

  #frames(frames: readonly ClientFrame[]): void {
    for (const frame of frames) {
      // A goodbye may stand before it.
      if (this.#over) return
      if (this.#unsentBytes > this.#hub.limits.bufferedBytesMax) {
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
        if (this.#requests === null) throw new HoldfastError('bad_request', 'wait for the welcome')
        this.#requests.take(frame)
    }
  }

  #bye(): void {
    const { attachment } = this
    this.#saidBye = true
    this.socket.close(1000, 'bye')
    this.#end()
    if (attachment === null) this.#hub.drop(this, null, false)
    else this.#leave(attachment)
  }

  #leave(attachment: AttachmentHandle): void {
    this.#hub.drop(this, attachment.id, false)
    // One that ended meanwhile has nothing left to leave.
    void attachment.leave().catch(() => undefined)
  }

  #end(): void {
    this.#over = true
    this.#release()
    this.#forwarded?.close()
    this.gone.abort()
    this.#answerProbes(false)
  }

  #answerProbes(alive: boolean): void {
    if (this.#probes.length === 0) return
    for (const answered of this.#probes.splice(0)) answered(alive)
  }
}
