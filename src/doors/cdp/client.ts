/**
 * One client of a browser, and the tree of its CDP sessions. A session is with a target, or with
 * the browser; it belongs to the session that attached it, and ends with it. The client knows it by
 * an id that is made here, new and unguessable (I6); the browser's own id never leaves the process.
 */
import { randomBytes } from 'node:crypto'
import { HoldfastError } from '../../core/index.ts'
import { Blocked } from './absence.ts'
import { isMalformed, readCommand, type CdpCommand } from './command.ts'
import { Downloads } from './downloads.ts'
import type { BrowserHost } from './host.ts'
import type { SessionListener } from './link.ts'
import {
  CDP_ERRORS,
  messageText,
  RUN,
  type CdpError,
  type CdpEvent,
  type CdpReply,
  type Params,
  type ReadReply,
} from './protocol.ts'
import type { Recording } from './recording.ts'
import type { TargetInfo } from './targets.ts'
import type { BrowserTenant, TenantClient } from './tenant.ts'
import { FairQueue } from './uplink.ts'

const IGNORE_CERTIFICATES = 'Security.setIgnoreCertificateErrors'

/** Where a client's messages go. */
export interface Outlet {
  /** Whether a lost connection can be resumed. */
  readonly mayReturn: boolean
  /** The client has been disconnected for a while, but may come back. */
  readonly isAway: boolean
  deliver(message: Buffer): void
  /** Whether the server stops reading from the client. */
  setPaused(isPaused: boolean): void
}

/** Decides what happens to a client's commands, and which events of targets it gets. */
export type SessionRules = {
  readonly command: (session: CdpSession, command: CdpCommand) => void
  readonly targetEvent: (session: CdpSession, event: CdpEvent) => void
}

export type CdpClientOptions = {
  readonly tenant: BrowserTenant
  /** The browser's id of the session that this connection is. */
  readonly upstream: string
  /** The page that it is connected to; null: the browser. */
  readonly target: string | null
  readonly outlet: Outlet
  readonly recording: Recording | null
  readonly rules: SessionRules
  /** The client has sent `Browser.close`. */
  readonly onBrowserClose: () => void
  /** The connection cannot go on. */
  readonly onFailure: (error: HoldfastError) => void
}

export class CdpClient implements TenantClient {
  readonly tenant: BrowserTenant
  readonly root: CdpSession
  readonly options: CdpClientOptions
  readonly queue: FairQueue
  readonly #sessions = new Map<string, CdpSession>()
  #ignoresCertificateErrors = false

  constructor(options: CdpClientOptions) {
    const { tenant, upstream, target, outlet } = options
    this.options = options
    this.tenant = tenant
    this.queue = new FairQueue((isWaiting) => outlet.setPaused(isWaiting))
    this.root = new CdpSession({ client: this, id: '', upstream, parent: null, target })
    tenant.clients.add(this)
  }

  get host(): BrowserHost {
    return this.tenant.host
  }

  get target(): string | null {
    return this.options.target
  }

  /** Whether it may know of a target: one of its tenant, or the browser. */
  knows(info: TargetInfo): boolean {
    return this.tenant.owns(info) || this.isBrowser(info.targetId)
  }

  isBrowser(target: unknown): boolean {
    return target !== undefined && target === this.host.targets.browserOf(this.root.upstream)
  }

  /** It has as many sessions as it may have. */
  get isFull(): boolean {
    return this.#sessions.size >= this.tenant.limits.sessionsMax
  }

  deliver(message: Buffer): void {
    this.options.recording?.note('browser', message)
    this.options.outlet.deliver(message)
  }

  /** A message of the client. */
  receive(data: Buffer): void {
    if (this.root.isOver) return
    this.options.recording?.note('client', data)
    const command = readCommand(data, this.tenant.limits)
    const { id, sessionId } = command
    const session = sessionId === undefined ? this.root : this.#sessions.get(sessionId)
    const error = session === undefined ? CDP_ERRORS.session : this.#errorOf(command)
    if (session === undefined || error !== null) {
      return this.deliver(messageText({ id, error }, session?.id ?? ''))
    }
    this.#carryOut(session, command as CdpCommand)
  }

  #errorOf(command: ReturnType<typeof readCommand>): CdpError | null {
    if (isMalformed(command)) return command.error
    const excess = this.#excess(command)
    return excess === null ? null : { code: -32000, message: `${excess} wait for their replies` }
  }

  #carryOut(session: CdpSession, command: CdpCommand): void {
    try {
      this.options.rules.command(session, command)
    } catch (thrown) {
      if (!(thrown instanceof RangeError)) throw thrown
      const message = 'Message nests too deeply or is too large'
      session.answer(command.id, { error: { code: -32600, message } })
    }
  }

  /**
   * The limit that a command exceeds, if it does. A client at its limit can still end what it waits
   * for: small commands pass whatever the bytes, and commands of `Target` have room of their own.
   */
  #excess(command: CdpCommand): string | null {
    const { method, raw } = command
    const { pendingMax, pendingTargetMax, pendingBytesMax, smallBytes } = this.tenant.limits
    const room = method.startsWith('Target.') ? pendingMax + pendingTargetMax : pendingMax
    if (this.queue.unanswered >= room) return `more than ${pendingMax} commands`
    const isSmall = raw === null ? command.params === undefined : raw.length <= smallBytes
    if (isSmall || this.queue.unansweredBytes < pendingBytesMax) return null
    return `commands of more than ${pendingBytesMax} bytes`
  }

  openSession(parent: CdpSession, upstream: string, target: string | null): CdpSession {
    // As long as Chrome's own ids, and as hard to guess.
    const id = randomBytes(16).toString('hex').toUpperCase()
    const session = new CdpSession({ client: this, id, upstream, parent, target })
    this.#sessions.set(id, session)
    if (this.#ignoresCertificateErrors) session.ignoreCertificateErrors(true)
    return session
  }

  /** A session that Chromium made for this client, which may not know of it. */
  hideSession(parent: CdpSession, upstream: string, target: string): CdpSession {
    return new CdpSession({ client: this, id: null, upstream, parent, target })
  }

  /** All sessions that the client knows of, and that of its connection. */
  sessions(): readonly CdpSession[] {
    return [this.root, ...this.#sessions.values()]
  }

  sessionEnded({ id }: CdpSession): void {
    this.#sessions.delete(id ?? '')
  }

  warn(text: string, page: string | null): void {
    const entry = { source: 'other', level: 'warning', text, timestamp: this.host.clock.now() }
    for (const session of this.sessions()) {
      const isMeant = page === null ? session.target !== null : session.target === page
      if (isMeant) session.emit('Log.entryAdded', { entry })
    }
  }

  /** For the pages that it is attached to, now and later: Chromium knows only one or all. */
  ignoreCertificateErrors(ignore: boolean): void {
    this.#ignoresCertificateErrors = ignore
    for (const session of this.sessions()) session.ignoreCertificateErrors(ignore)
  }

  /** The client is away: whatever waits for it goes on. */
  actForAbsent(): void {
    for (const session of this.sessions()) session.blocked.release()
  }

  /** Its sessions are over, but its contexts and pages stay for now. */
  endSessions(): void {
    const { link } = this.host
    if (this.root.isOver) return
    this.options.recording?.close()
    link.uplink.leave(this.queue)
    this.root.end()
    link.detach('', this.root.upstream)
  }

  /** The client is gone for good, with everything that ends with it. */
  end(): void {
    this.endSessions()
    this.tenant.removeClient(this)
  }
}

type CdpSessionOptions = Pick<CdpSession, 'client' | 'id' | 'upstream' | 'parent' | 'target'>

export class CdpSession implements SessionListener {
  readonly client: CdpClient
  /** What the client calls it; '' is the connection itself; null: the client does not know it. */
  readonly id: string | null
  readonly upstream: string
  readonly parent: CdpSession | null
  /** Null: the browser itself. */
  readonly target: string | null
  readonly unanswered = new Set<number>()
  /** By the browser's id. */
  readonly children = new Map<string, CdpSession>()
  /** Targets that the client knows by discovery. */
  readonly discovered = new Set<string>()
  /** What waits for a command of the client. */
  readonly blocked: Blocked
  #isOver = false

  constructor({ client, id, upstream, parent, target }: CdpSessionOptions) {
    this.client = client
    this.id = id
    this.upstream = upstream
    this.parent = parent
    this.target = target
    this.blocked = new Blocked(this)
    parent?.children.set(upstream, this)
    client.host.link.open(this)
  }

  get isBrowser(): boolean {
    return this.target === null
  }

  get isOver(): boolean {
    return this.#isOver
  }

  get isAway(): boolean {
    return this.client.options.outlet.isAway
  }

  pass(message: Buffer, method = ''): void {
    if (this.#isOver) return
    const { host, tenant, options } = this.client
    if (options.outlet.mayReturn && Blocked.concerns(method)) this.blocked.note(method, message)
    if (!Downloads.concerns(method) || host.isOwn) return this.client.deliver(message)
    const isOwn = (context: string | null): boolean => tenant.hasContext(context)
    host.downloads.route(message, isOwn, () => this.pass(message))
  }

  /** An event that is too large to be delivered ends the session that it is for, and no other. */
  lose(): void {
    const { id: sessionId, target: targetId, parent, upstream } = this
    if (parent === null) {
      const reason = 'the browser sent a message that is too large to be delivered'
      return this.client.options.onFailure(new HoldfastError('message_too_large', reason))
    }
    this.emit('Inspector.detached', { reason: 'message_too_large' })
    if (sessionId !== null) parent.emit('Target.detachedFromTarget', { sessionId, targetId })
    this.client.host.link.detach(parent.upstream, upstream)
    this.end()
  }

  /** The page that the connection is for is closed: as in Chrome, the connection ends. */
  detached(): void {
    this.emit('Inspector.detached', { reason: 'target_closed' })
    this.client.options.onFailure(new HoldfastError('target_unknown', 'the page is closed'))
  }

  targetEvent(event: CdpEvent): void {
    this.client.options.rules.targetEvent(this, event)
  }

  emit(method: string, params: object): void {
    if (this.id !== null) this.pass(messageText({ method, params }, this.id))
  }

  answer(id: number, reply: CdpReply): void {
    if (this.id !== null) this.pass(messageText({ id, ...reply }, this.id))
  }

  /** Forwards a command; the reply goes to the client, or to `read`. */
  forward(command: CdpCommand, read: ReadReply | null = null): void {
    this.client.host.link.forward(this, command, this.client.queue, read)
    this.blocked.settle(command)
    if (command.method === RUN) this.#ran()
  }

  /** Sends a command of the door itself; it is forgotten when the session ends. */
  tell(method: string, params: Params, read: () => void = () => undefined): void {
    this.client.host.link.ask(method, params, read, { from: this })
    if (method === RUN && this.id !== null) this.#ran()
  }

  runAndDetach(): void {
    this.tell(RUN, {}, () => {
      this.client.host.link.detach(this.parent?.upstream ?? '', this.upstream)
    })
  }

  #ran(): void {
    const { host, queue } = this.client
    if (!host.waiting.isWaiting(this)) return
    // A client sends `RUN` for a tab after it has asked to be attached to the page in it: the reply
    // to this comes when the browser has processed everything that the client has sent so far.
    const sending = { from: this, session: '', queue }
    host.link.ask('Browser.getVersion', {}, () => host.waiting.ran(this), sending)
  }

  ignoreCertificateErrors(ignore: boolean): void {
    const { targets } = this.client.host
    const isPage = this.target !== null && targets.get(this.target)?.type === 'page'
    if (isPage) this.tell(IGNORE_CERTIFICATES, { ignore })
  }

  /** Over, with all below it. Its commands are never answered, as in Chrome. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    for (const child of [...this.children.values()]) child.end()
    this.client.host.link.end(this)
    this.parent?.children.delete(this.upstream)
    this.client.sessionEnded(this)
    this.client.host.waiting.ended(this)
  }
}
