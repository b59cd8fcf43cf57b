/** All connections of the Copilot door of a server, and what they share. */
import {
  HoldfastError,
  limitsFrom,
  type AttachmentListener,
  type Clock,
  type Holdfast,
  type Unbound,
} from '../../core/index.ts'
import { VERSION } from '../../wire/version.ts'
import { Unread } from '../unread.ts'
import type { Gatekeeper, Socket } from '../connect/socket.ts'
import type { AttachedSession } from './attached-session.ts'
import { CopilotConnection } from './connection.ts'
import type { DoorContext } from './door-context.ts'
import { COPILOT_LIMITS, type CopilotLimits } from './limits.ts'
import type { CopilotForwarder } from './upstream.ts'

export type CopilotDoorOptions = {
  readonly holdfast: Unbound
  readonly gate: Gatekeeper
  readonly limits?: Partial<CopilotLimits>
  /** Where there are other nodes. */
  readonly forwarder?: CopilotForwarder | null
  /** What waits for readers, of all doors together. */
  readonly unread?: Unread
  /** The server takes no new clients. */
  readonly isDraining?: () => boolean
}

export class CopilotDoor implements DoorContext {
  readonly holdfast: Unbound
  readonly gate: Gatekeeper
  readonly limits: CopilotLimits
  readonly forwarder: CopilotForwarder | null
  readonly unread: Unread
  readonly version = VERSION
  readonly isDraining: () => boolean
  readonly #connections = new Set<CopilotConnection>()
  /** Those that have shown no token, the oldest first. */
  readonly #newcomers = new Set<CopilotConnection>()
  readonly #attached = new Map<string, AttachedSession>()
  readonly #listener: AttachmentListener = {
    ended: (attachment, reason) => {
      const why = reason === 'superseded' ? 'superseded' : 'attachment_ended'
      // A session that is closed tells its followers itself.
      if (reason === 'session_closed') return
      const error = new HoldfastError(why, `the attachment is over: ${reason}`)
      this.#attached.get(attachment)?.over(error)
    },
    lost: (attachment, why) => this.#attached.get(attachment)?.over(why),
  }
  #cancelWatch: () => void = () => undefined

  constructor({ holdfast, gate, limits = {}, forwarder = null, ...more }: CopilotDoorOptions) {
    this.holdfast = holdfast
    this.gate = gate
    this.limits = limitsFrom(COPILOT_LIMITS, limits, 'copilotLimits')
    this.forwarder = forwarder
    this.unread = more.unread ?? new Unread(Number.POSITIVE_INFINITY)
    this.isDraining = more.isDraining ?? (() => false)
    holdfast.authority.attachmentListeners.add(this.#listener)
    this.#watchLater()
  }

  get clock(): Clock {
    return this.holdfast.authority.clock
  }

  /** Connections, and the sessions that they are attached to. */
  get counts() {
    return { connections: this.#connections.size, attached: this.#attached.size }
  }

  /** If too many have shown no token, the one goes that has had most time for it. */
  connect(socket: Socket): CopilotConnection {
    const connection = new CopilotConnection(this, socket)
    this.#connections.add(connection)
    this.#newcomers.add(connection)
    if (this.#newcomers.size > this.limits.newcomersMax) {
      const [oldest] = this.#newcomers
      oldest?.cut(new HoldfastError('too_many', 'too many connections have shown no token'))
    }
    return connection
  }

  admitted(connection: CopilotConnection): void {
    this.#newcomers.delete(connection)
  }

  closed(connection: CopilotConnection): void {
    this.#newcomers.delete(connection)
    this.#connections.delete(connection)
  }

  attached(attachment: string, session: AttachedSession): void {
    this.#attached.set(attachment, session)
  }

  detached(attachment: string): void {
    this.#attached.delete(attachment)
  }

  /** The other node that owns the session of this name; null if this one does, or none. */
  async ownerOf(holdfast: Holdfast, name: string, isNew: boolean): Promise<string | null> {
    const { forwarder } = this
    if (forwarder === null) return null
    const byKey = await forwarder.ownerElsewhere(holdfast.refOf(name), isNew)
    if (byKey !== null) return byKey
    try {
      // One that the caller may not see is not looked for.
      await holdfast.session(name).assertMay('session.read')
    } catch {
      // The method says why.
      return null
    }
    return forwarder.ownerElsewhere({ id: name }, isNew)
  }

  /** Cuts all connections: their clients come back, to another node if there is one. */
  close(): void {
    this.#cancelWatch()
    this.holdfast.authority.attachmentListeners.delete(this.#listener)
    for (const connection of [...this.#connections]) connection.cut(null)
  }

  #watchLater(): void {
    this.#cancelWatch = this.clock.after(this.limits.watchMs, () => {
      this.#watchLater()
      const now = this.clock.monotonic()
      for (const connection of [...this.#connections]) connection.watch(now)
    })
  }
}
