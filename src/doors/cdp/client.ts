/**
 * One client of a browser, and the tree of its CDP sessions. A session is with a target, or with
 * the browser; it belongs to the session that attached it, and ends with it. The client knows it by
 * an id that is made here, new and unguessable (I6); the browser's own id never leaves the process.
 */
import { HoldfastError, type AttachmentHandle, type Principal } from '../../core/index.ts'
import { AttachedClient, type Carrier } from './attached-client.ts'
import { readCommand, type CdpCommand } from './command.ts'
import type { TargetInfo } from './targets.ts'
import type { BrowserHost } from './host.ts'
import { dropOldest } from './limits.ts'
import type { SessionListener } from './link.ts'
import {
  CDP_ERRORS,
  messageText,
  newSessionId,
  RUN,
  type CdpEvent,
  type CdpReply,
  type Params,
  type ReadReply,
} from './protocol.ts'
import type { Recording } from './recording.ts'
import type { BrowserTenant } from './tenant.ts'
import { FairQueue } from './uplink.ts'

const IGNORE_CERTIFICATES = 'Security.setIgnoreCertificateErrors'

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
  readonly carrier: Carrier
  readonly attachment: AttachmentHandle
  readonly by: Principal
  readonly recording: Recording | null
  readonly rules: SessionRules
}

export class CdpClient extends AttachedClient {
  readonly tenant: BrowserTenant
  readonly host: BrowserHost
  readonly target: string | null
  readonly root: CdpSession
  readonly options: CdpClientOptions
  readonly queue: FairQueue
  readonly #sessions = new Map<string, CdpSession>()
  #ignoresCertificateErrors = false

  constructor(options: CdpClientOptions) {
    const { tenant, upstream, target, carrier, attachment } = options
    super(tenant.session, carrier, attachment)
    this.options = options
    this.tenant = tenant
    this.host = tenant.host
    this.target = target
    this.queue = new FairQueue((isWaiting) => carrier.setPaused(isWaiting))
    this.root = new CdpSession(this, '', { upstream, parent: null, target })
    tenant.clients.add(this)
  }

  /** Whether it may know of a target: one of its tenant, or the browser. */
  knows(info: TargetInfo): boolean {
    return this.tenant.owns(info) || this.isBrowser(info.targetId)
  }

  isBrowser(target: unknown): boolean {
    return target !== undefined && target === this.host.targets.browsers.get(this.root.upstream)
  }

  /** It has as many sessions as it may have. */
  get isFull(): boolean {
    return this.#sessions.size >= this.tenant.limits.sessionsMax
  }

  deliver(message: Buffer): void {
    this.options.recording?.note('browser', message)
    this.carrier.deliver(message)
  }

  receive(data: Buffer): void {
    if (this.root.isOver) return
    this.options.recording?.note('client', data)
    const command = readCommand(data, this.tenant.limits)
    const { id, sessionId } = command
    const session = sessionId === undefined ? this.root : this.#sessions.get(sessionId)
    if (session === undefined) {
      return this.deliver(messageText({ id, error: CDP_ERRORS.session }, ''))
    }
    if ('error' in command) return session.answer(id, { error: command.error })
    const excess = this.#excess(command)
    if (excess !== null) {
      const message = `${excess} wait for their replies`
      return session.answer(id, { error: { code: -32000, message } })
    }
    try {
      this.options.rules.command(session, command)
    } catch (thrown) {
      if (!(thrown instanceof RangeError)) throw thrown
      const message = 'Message nests too deeply or is too large'
      session.answer(id, { error: { code: -32600, message } })
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

  /** Opens a session; a hidden one is Chromium's work, and its client may not know of it. */
  openSession(place: SessionPlace, isHidden = false): CdpSession {
    if (isHidden) return new CdpSession(this, null, place)
    const id = newSessionId()
    const session = new CdpSession(this, id, place)
    this.#sessions.set(id, session)
    if (this.#ignoresCertificateErrors) session.ignoreCertificateErrors(true)
    return session
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

  actForAbsent(): void {
    for (const session of this.sessions()) session.blocked.release()
  }

  endSessions(): void {
    const { link } = this.host
    if (this.root.isOver) return
    this.options.recording?.close()
    link.uplink.leave(this.queue)
    this.root.end()
    link.detach('', this.root.upstream)
  }

  protected remove(): void {
    this.tenant.removeClient(this)
  }

  /** The client has sent `Browser.close`. The session may be closed already. */
  closeSession(): void {
    const session = this.session.as(this.options.by)
    void session.close('browser_closed').catch(() => undefined)
  }
}

type SessionPlace = Pick<CdpSession, 'upstream' | 'parent' | 'target'>

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
  readonly discovered = new Set<unknown>()
  /** What waits for a command of the client. */
  readonly blocked = new Blocked(this)
  isOver = false

  constructor(client: CdpClient, id: string | null, { upstream, parent, target }: SessionPlace) {
    this.client = client
    this.id = id
    this.upstream = upstream
    this.parent = parent
    this.target = target
    parent?.children.set(upstream, this)
    client.host.link.open(this)
  }

  get isBrowser(): boolean {
    return this.target === null
  }

  pass(message: Buffer, method = ''): void {
    if (this.isOver) return
    const { host, tenant, carrier } = this.client
    if (carrier.mayReturn) this.blocked.note(method, message)
    if (!method.startsWith('Browser.download') || host.isOwn) return this.client.deliver(message)
    const isOwn = (context: string | null): boolean => tenant.hasContext(context)
    host.targets.downloads.route(message, isOwn, () => this.pass(message))
  }

  /** An event that is too large to be delivered ends the session that it is for, and no other. */
  lose(): void {
    const { id: sessionId, target: targetId, parent, upstream } = this
    if (parent === null) {
      const reason = 'the browser sent a message that is too large to be delivered'
      return this.client.leave(new HoldfastError('message_too_large', reason))
    }
    this.emit('Inspector.detached', { reason: 'message_too_large' })
    if (sessionId !== null) parent.emit('Target.detachedFromTarget', { sessionId, targetId })
    this.client.host.link.detach(parent.upstream, upstream)
    this.end()
  }

  /** The page that the connection is for is closed: as in Chrome, the connection ends. */
  detached(): void {
    this.emit('Inspector.detached', { reason: 'target_closed' })
    this.client.leave(new HoldfastError('target_unknown', 'the page is closed'))
  }

  targetEvent(event: CdpEvent): void {
    this.client.options.rules.targetEvent(this, event)
  }

  emit(method: string, params: object): void {
    if (this.id !== null) this.pass(messageText({ method, params }, this.id))
  }

  answer(id: number | undefined, reply: CdpReply): void {
    if (this.id !== null) this.pass(messageText({ id, ...reply }, this.id))
  }

  /** Forwards a command; the reply goes to the client, or to `read`. */
  forward(command: CdpCommand, read: ReadReply | null = null): void {
    const { host, queue } = this.client
    host.link.forward(command, { from: this, id: command.id, read, queue, bytes: 0 })
    this.blocked.settle(command)
    if (command.method === RUN) this.#ran()
  }

  /** Sends a command of the door itself; it is forgotten when the session ends. */
  tell(method: string, params: Params, read?: () => void): void {
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
    if (!host.targets.waiting.isWaiting(this)) return
    // A client sends `RUN` for a tab after it has asked to be attached to the page in it: the reply
    // to this comes when the browser has processed everything that the client has sent so far.
    const sending = { from: this, session: '', queue }
    host.link.ask('Browser.getVersion', {}, () => host.targets.waiting.ran(this), sending)
  }

  ignoreCertificateErrors(ignore: boolean): void {
    const { targets } = this.client.host
    const isPage = this.target !== null && targets.get(this.target)?.type === 'page'
    if (isPage) this.tell(IGNORE_CERTIFICATES, { ignore })
  }

  /** Over, with all below it. Its commands are never answered, as in Chrome. */
  end(): void {
    if (this.isOver) return
    this.isOver = true
    for (const child of [...this.children.values()]) child.end()
    this.client.host.link.end(this)
    this.parent?.children.delete(this.upstream)
    this.client.sessionEnded(this)
    this.client.host.targets.waiting.ended(this)
  }
}

/** By event: the command that lets go on what the event reports as waiting. */
const RELEASES: Readonly<Record<string, readonly [string, (params: Params) => Params]>> = {
  'Fetch.requestPaused': ['Fetch.continueRequest', ({ requestId }) => ({ requestId })],
  'Fetch.authRequired': [
    'Fetch.continueWithAuth',
    ({ requestId }) => ({ requestId, authChallengeResponse: { response: 'Default' } }),
  ],
  'Page.javascriptDialogOpening': ['Page.handleJavaScriptDialog', () => ({ accept: false })],
  'Page.screencastFrame': ['Page.screencastFrameAck', ({ sessionId }) => ({ sessionId })],
  'Debugger.paused': ['Debugger.resume', () => ({})],
}

/** The beginnings of commands by which a client lets it go on itself. */
const RELEASING: readonly string[] = [
  ...['Fetch.continue', 'Fetch.fulfill', 'Fetch.fail', 'Debugger.resume', 'Debugger.step'],
  ...['Page.handleJavaScriptDialog', 'Page.screencastFrameAck', RUN],
]

const BLOCKED_MAX = 4_096

/**
 * What waits for a command of the client in one session: a page, a request, a dialog, a script at a
 * breakpoint. While the client is away the door sends that command, so that pages and other clients
 * go on.
 */
class Blocked {
  readonly #session: CdpSession
  readonly #releases = new Map<string, { readonly method: string; readonly params: Params }>()

  constructor(session: CdpSession) {
    this.#session = session
  }

  note(event: string, message: Buffer): void {
    const [method, paramsOf] = (Object.hasOwn(RELEASES, event) && RELEASES[event]) || []
    if (method === undefined || paramsOf === undefined) return
    const { params } = JSON.parse(message.toString()) as { readonly params: Params }
    this.add(method, paramsOf(params))
  }

  /** This command is needed to let something go on. */
  add(method: string, params: Params): void {
    if (this.#session.client.carrier.isAway) return this.#session.tell(method, params)
    this.#releases.set(keyOf(method, params), { method, params })
    dropOldest(this.#releases, BLOCKED_MAX)
  }

  settle(command: CdpCommand): void {
    if (this.#releases.size === 0 || command.isVast) return
    if (!RELEASING.some((start) => command.method.startsWith(start))) return
    this.#releases.delete(keyOf(command.method, command.params ?? {}))
  }

  release(): void {
    for (const { method, params } of this.#releases.values()) this.#session.tell(method, params)
    this.#releases.clear()
  }
}

/** There are many paused requests, each with an id, and one of everything else. */
function keyOf(method: string, { requestId }: Params): string {
  if (method === 'Page.screencastFrameAck') return method
  const [domain = ''] = method.split('.')
  return typeof requestId === 'string' ? `${domain} ${requestId}` : domain
}
