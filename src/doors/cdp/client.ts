/**
 * One client of a browser: the sessions it has, and the commands it sends in them. What it is sent
 * goes to its outlet, a socket or whatever stands for one.
 */
import { applyIgnored } from './certificates.ts'
import { FAULTS, isRefusal, readCommand, type Command } from './command.ts'
import type { Host } from './host.ts'
import { textOf } from './link.ts'
import type { Recording } from './recording.ts'
import { obey } from './rules.ts'
import { Session, type SessionOptions } from './session.ts'
import type { TargetInfo } from './targets.ts'
import type { Tenant } from './tenant.ts'
import { Share } from './uplink.ts'

/** Where a client's messages go. */
export interface Outlet {
  /** Whether a lost connection can be taken up again. */
  readonly mayReturn: boolean
  /** Nobody has been there for a while, but somebody may come back. */
  readonly isAway: boolean
  deliver(message: Buffer): void
  /** Whether it is to be left unread for now: what it sends would only pile up. */
  setPaused(isPaused: boolean): void
}

export type ClientOptions = {
  readonly tenant: Tenant
  /** The browser's name of the session that this connection is. */
  readonly upstream: string
  /** The page that it is connected to; null: the browser. */
  readonly target: string | null
  readonly outlet: Outlet
  /** The client wants the browser closed: its own one. */
  readonly onBrowserClose: () => void
  /** It was to be told what cannot be told: it is over. */
  readonly onLoss: () => void
  /** The page that it is connected to is closed: it is over. */
  readonly onTargetClosed: () => void
  readonly recording: Recording | null
}

export class Client {
  readonly tenant: Tenant
  readonly root: Session
  readonly onBrowserClose: () => void
  readonly onLoss: () => void
  readonly onTargetClosed: () => void
  /** It wants no certificate of its pages checked. */
  ignoresCertificateErrors = false
  /** Commands that wait for their reply. */
  pending = 0
  /** Of the way up to the browser. */
  readonly share: Share
  readonly #recording: Recording | null
  readonly #outlet: Outlet
  readonly #sessions = new Map<string, Session>()

  constructor({ tenant, upstream, target, outlet, recording, ...told }: ClientOptions) {
    this.#recording = recording
    this.onLoss = told.onLoss
    this.onTargetClosed = told.onTargetClosed
    this.tenant = tenant
    this.#outlet = outlet
    this.share = new Share((isWaiting) => outlet.setPaused(isWaiting))
    this.onBrowserClose = told.onBrowserClose
    this.root = new Session({ client: this, upstream, parent: null, target })
    tenant.clients.add(this)
  }

  get host(): Host {
    return this.tenant.host
  }

  get isAway(): boolean {
    return this.#outlet.isAway
  }

  get mayReturn(): boolean {
    return this.#outlet.mayReturn
  }

  /** Whether it may know of a target: of the browser itself, too, by its own way to it. */
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
    this.#recording?.note('browser', message)
    this.#outlet.deliver(message)
  }

  /** A message of the client. */
  receive(data: Buffer): void {
    if (this.root.isOver) return
    this.#recording?.note('client', data)
    const command = readCommand(data, this.tenant.limits)
    const { id, sessionId } = command
    const session = sessionId === undefined ? this.root : this.#flat(sessionId)
    if (session === null) return this.deliver(textOf({ id, error: FAULTS.session }, ''))
    if (!isRefusal(command)) return this.carryOut(session, command)
    session.pass(textOf({ id, error: command.error }, session.id))
  }

  /** A message that came inside another, for a session without `flatten`. */
  receiveNested(session: Session, message: string): void {
    const command = readCommand(Buffer.from(message), this.tenant.limits)
    if (command.id !== undefined && command.sessionId !== undefined) {
      return session.refuse(command.id, FAULTS.session)
    }
    if (!isRefusal(command)) return this.carryOut(session, command)
    session.pass(textOf({ id: command.id, error: command.error }, ''))
  }

  carryOut(session: Session, command: Command): void {
    const excess = this.#excess(command)
    if (excess !== null) {
      const message = `${excess} wait for their replies`
      return session.refuse(command.id, { code: -32000, message })
    }
    try {
      obey(session, command)
    } catch (thrown) {
      // It nests too deeply to be written anew, or is too large for that.
      if (!(thrown instanceof RangeError)) throw thrown
      session.refuse(command.id, {
        code: -32600,
        message: 'Message nests too deeply or is too large',
      })
    }
  }

  /**
   * What it has asked too much of, if it has. Whoever waits for too much can still end that: small
   * commands pass however many bytes wait, and those about targets have some room of their own.
   */
  #excess(command: Command): string | null {
    const { method, raw } = command
    const { pendingMax, pendingTargetMax, pendingBytesMax, smallBytes } = this.tenant.limits
    const room = method.startsWith('Target.') ? pendingMax + pendingTargetMax : pendingMax
    if (this.pending >= room) return `more than ${pendingMax} commands`
    const isSmall = raw === null ? command.params === undefined : raw.length <= smallBytes
    if (isSmall || this.share.unansweredBytes < pendingBytesMax) return null
    return `commands of more than ${pendingBytesMax} bytes`
  }

  #flat(name: string): Session | null {
    const session = this.#sessions.get(name)
    return session === undefined || session.isNested ? null : session
  }

  openSession(options: Omit<SessionOptions, 'client'>): Session {
    const session = new Session({ ...options, client: this })
    this.#sessions.set(session.name, session)
    applyIgnored(session)
    return session
  }

  /** All of its sessions, with that of its connection. */
  sessions(): readonly Session[] {
    return [this.root, ...this.#sessions.values()]
  }

  sessionEnded(session: Session): void {
    this.#sessions.delete(session.name)
  }

  /** An event for all of its sessions with a target. */
  emitFor(target: string, method: string, params: object): void {
    for (const session of this.sessions()) {
      if (session.target === target) session.emit(method, params)
    }
  }

  /** Told in each of its pages: clients show it as what the page says. */
  warn(text: string): void {
    const entry = { source: 'other', level: 'warning', text, timestamp: this.host.clock.now() }
    for (const session of this.sessions()) {
      if (session.target !== null) session.emit('Log.entryAdded', { entry })
    }
  }

  /** Nobody is there to say go. */
  actForAbsent(): void {
    for (const session of this.sessions()) session.blocked.release()
  }

  /** Its sessions are over, but what it has made stays for now. */
  endSessions(): void {
    const { upstream, isOver } = this.root
    if (isOver) return
    this.#recording?.close()
    this.host.link.leave(this.share)
    this.root.end()
    this.host.link.tell('Target.detachFromTarget', { sessionId: upstream })
  }

  /** The client is gone for good, and with it all that it had. */
  end(): void {
    this.endSessions()
    this.tenant.removeClient(this)
  }
}
