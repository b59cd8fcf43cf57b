/**
 * All connections of this server. It knows which connection an attachment has now, looks for silent
 * ones, and waits for clients that may come back.
 */
import { setMaxListeners } from 'node:events'
import {
  HoldfastError,
  limitsFrom,
  type AttachmentHandle,
  type AttachmentListener,
  type Clock,
  type Unbound,
} from '../../core/index.ts'
import { Unread } from '../unread.ts'
import { openGate, type SocketForwarder, type Gatekeeper } from './socket.ts'

/** Every bound of the connect door, named with its unit. */
export const CONNECT_LIMITS = {
  /** Between the connection and its hello, and the hello's size: a token in it may be large. */
  helloMs: 5_000,
  helloBytesMax: 16_384,
  /** Connections that have not said hello; a server has room for four times as many at least. */
  newcomersMax: 2_500,
  /** One message of a client. */
  messageBytesMax: 1_048_576,
  /** Silence after which a ping is sent, and after which the connection is given up. */
  pingMs: 10_000,
  deadMs: 25_000,
  /** How long an old connection has to show that it is alive when a new one claims its place. */
  probeMs: 1_500,
  /** What may be on its way to a client: replies, and events before the next of them wait. */
  bufferedBytesMax: 1_048_576,
  /** How long a client may take to read that. */
  slowMs: 25_000,
  /** Requests of one client that wait for their reply. */
  requestsMax: 256,
  /** How often silence is looked for. */
  watchMs: 1_000,
} as const

export type ConnectLimits = { readonly [Name in keyof typeof CONNECT_LIMITS]: number }

/** A connection as the hub and other connections see it. */
export interface HubMember {
  /** Null until it is let in. */
  readonly attachment: AttachmentHandle | null
  /** Its socket is gone, which its session may not know yet. */
  readonly isOver: boolean
  drives(session: string): boolean
  /** Whether it answers a ping within the time to probe. */
  isAlive(): Promise<boolean>
  /** Another connection has this attachment now. */
  supersede(): void
  attachmentEnded(reason: string): void
  refuse(error: HoldfastError): void
  /** Refuses, and does not wait until the client has closed its side. */
  turnOut(error: HoldfastError): void
  /** Called now and then: a silent connection is pinged, then given up. */
  watch(now: number): void
}

export type HubOptions = {
  readonly holdfast: Unbound
  readonly gate?: Gatekeeper
  readonly limits?: Partial<ConnectLimits>
  /** Where there are other nodes. */
  readonly forwarder?: SocketForwarder | null
  /** What waits for readers, of all doors together. */
  readonly unread?: Unread
}

export class Hub {
  readonly holdfast: Unbound
  readonly gate: Gatekeeper
  readonly limits: ConnectLimits
  readonly forwarder: SocketForwarder | null
  readonly unread: Unread
  readonly #connections = new Set<HubMember>()
  /** Those that have not said hello, the oldest first. */
  readonly #newcomers = new Set<HubMember>()
  readonly #byAttachment = new Map<string, HubMember>()
  /** Of attachments that made requests, which outlive their connections and end with them. */
  readonly #presences = new Map<string, AbortController>()
  /** Claims of attachments that are being judged. */
  readonly #claims = new Map<string, Promise<void>>()
  readonly #listener: AttachmentListener = {
    ended: (attachment, reason) => this.#living(attachment)?.attachmentEnded(reason),
    lost: (attachment, why) => this.#living(attachment)?.refuse(why),
  }
  #cancelWatch: () => void = () => undefined

  constructor({ holdfast, gate = openGate, limits = {}, forwarder = null, unread }: HubOptions) {
    this.holdfast = holdfast
    this.gate = gate
    this.limits = limitsFrom(CONNECT_LIMITS, limits, 'connectLimits')
    this.forwarder = forwarder
    this.unread = unread ?? new Unread(Number.POSITIVE_INFINITY)
    holdfast.authority.attachmentListeners.add(this.#listener)
    this.#watchLater()
  }

  /** The time of the sessions that it serves. */
  get clock(): Clock {
    return this.holdfast.authority.clock
  }

  get count(): number {
    return this.#connections.size
  }

  /** Attachments that are here, or may come back. */
  get presences(): number {
    return this.#presences.size
  }

  /** If too many have not said hello, the one goes that has had most time for it. */
  add(connection: HubMember): void {
    this.#connections.add(connection)
    this.#newcomers.add(connection)
    if (this.#newcomers.size <= this.limits.newcomersMax) return
    const [oldest] = this.#newcomers
    oldest?.turnOut(new HoldfastError('too_many', 'too many connections have not said hello'))
  }

  greeted(connection: HubMember): void {
    this.#newcomers.delete(connection)
  }

  /** The attachment's connection now, if there is one. */
  connectionOf(attachment: string): HubMember | null {
    return this.#byAttachment.get(attachment) ?? null
  }

  driversOf(session: string): readonly HubMember[] {
    return [...this.#byAttachment.values()].filter((connection) => connection.drives(session))
  }

  /**
   * Claims of one attachment are decided one after the other: each has to find the connection that
   * the one before got, and ping it.
   */
  async inTurn(attachment: string, judge: () => Promise<void>): Promise<void> {
    const own = (this.#claims.get(attachment) ?? Promise.resolve()).then(judge, judge)
    this.#claims.set(attachment, own)
    await own
    if (this.#claims.get(attachment) === own) this.#claims.delete(attachment)
  }

  /** From now on this is the attachment's connection. Returns the one before it. */
  take(attachment: string, connection: HubMember): HubMember | null {
    const before = this.connectionOf(attachment)
    this.#byAttachment.set(attachment, connection)
    return before
  }

  /** Whether it has made requests, which end with it. */
  hasPresence(attachment: string): boolean {
    return this.#presences.has(attachment)
  }

  /** Aborted when the attachment is gone for good, as far as this server knows. */
  presenceOf(attachment: string): AbortSignal {
    const known = this.#presences.get(attachment)
    if (known !== undefined) return known.signal
    const presence = new AbortController()
    // As many as there are requests listen to it, which are bounded.
    setMaxListeners(0, presence.signal)
    this.#presences.set(attachment, presence)
    return presence.signal
  }

  /**
   * The connection is over. If the attachment may come back, its requests go on until the log says
   * that it is over: a clock of our own would be ahead of a resume that is being recorded (I10).
   */
  drop(connection: HubMember, attachment: string | null, mayComeBack: boolean): void {
    this.#connections.delete(connection)
    this.#newcomers.delete(connection)
    if (attachment === null || this.#byAttachment.get(attachment) !== connection) return
    this.#byAttachment.delete(attachment)
    if (!mayComeBack) this.#forget(attachment)
  }

  /** Tells everybody that the server is about to stop. */
  close(): void {
    this.#cancelWatch()
    this.holdfast.authority.attachmentListeners.delete(this.#listener)
    const error = new HoldfastError('draining', 'the server is about to stop')
    for (const connection of [...this.#connections]) connection.refuse(error)
    for (const attachment of [...this.#presences.keys()]) this.#forget(attachment)
  }

  /** The connection of an attachment that is over; without one, its requests are over too. */
  #living(attachment: string): HubMember | null {
    const connection = this.connectionOf(attachment)
    if (connection !== null && !connection.isOver) return connection
    this.#forget(attachment)
    return null
  }

  #forget(attachment: string): void {
    const presence = this.#presences.get(attachment)
    this.#presences.delete(attachment)
    presence?.abort()
  }

  #watchLater(): void {
    this.#cancelWatch = this.clock.after(this.limits.watchMs, () => {
      this.#watchLater()
      const now = this.clock.monotonic()
      for (const connection of [...this.#connections]) connection.watch(now)
    })
  }
}
