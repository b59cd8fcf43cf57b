/**
 * One session of a client with a target, or with the browser. The client knows it by a name that
 * is ours, fresh and unguessable (I6); the browser's own name never leaves this process. Sessions
 * are a tree: each belongs to the one that attached it, and ends with it.
 */
import { randomBytes } from 'node:crypto'
import { Blocked } from './absence.ts'
import { Attaches } from './attaches.ts'
import { Downloads } from './downloads.ts'
import type { Client } from './client.ts'
import type { Command, Fault, Params } from './command.ts'
import { textOf, type BrowserEvent, type Correspondent, type Reply } from './link.ts'
import type { Share } from './uplink.ts'
import { takeTargetEvent } from './target-events.ts'
import { RUN } from './waiting-targets.ts'

/** As long as Chrome's own, and as unlikely to be guessed. */
export function newSessionName(): string {
  return randomBytes(16).toString('hex').toUpperCase()
}

export type SessionOptions = {
  readonly client: Client
  readonly upstream: string
  readonly parent: Session | null
  /** Null: the browser itself. */
  readonly target: string | null
  /** Its messages travel inside its parent's: the old way, without `flatten`. */
  readonly isNested?: boolean
}

type Asked = {
  readonly read: () => void
  readonly session: string
  /** Null: before what the client itself has sent and what still waits. */
  readonly share: Share | null
}

export class Session implements Correspondent {
  /** What the client calls it; '' is the connection itself. */
  readonly name: string
  /** What stands in its messages: nothing, if they travel inside others. */
  readonly id: string
  readonly upstream: string
  readonly client: Client
  readonly parent: Session | null
  readonly target: string | null
  readonly isNested: boolean
  /** By the browser's name. */
  readonly children = new Map<string, Session>()
  /** Targets that the client was told of, if it wanted to be. */
  readonly discovered = new Set<string>()
  /** What it has asked to be attached to. */
  readonly attaches = new Attaches()
  /** Set by `Target.setAutoAttach`; null: off. */
  autoAttach: { readonly wait: boolean; readonly isNested: boolean } | null = null
  /** What stands still until the client says go. */
  readonly blocked = new Blocked(this)
  #pending = new Set<number>()
  /** What the door itself has said in it. */
  readonly #told = new Set<number>()
  #isOver = false

  constructor({ client, upstream, parent, target, isNested = false }: SessionOptions) {
    this.name = parent === null ? '' : newSessionName()
    this.id = isNested ? '' : this.name
    this.client = client
    this.upstream = upstream
    this.parent = parent
    this.target = target
    this.isNested = isNested
    parent?.children.set(upstream, this)
    client.host.link.open(this)
  }

  /** It speaks with the browser itself. */
  get isBrowser(): boolean {
    return this.target === null
  }

  get isOver(): boolean {
    return this.#isOver
  }

  pass(message: Buffer, method = ''): void {
    if (this.#isOver) return
    if (this.client.mayReturn && Blocked.concerns(method)) this.blocked.note(method, message)
    const { host, tenant } = this.client
    if (Downloads.concerns(method) && !host.isOwn) {
      return host.downloads.route(tenant, message, () => this.pass(message))
    }
    if (!this.isNested) return this.client.deliver(message)
    if (message.length > this.client.tenant.limits.nestedBytesMax) return this.lose()
    const { name: sessionId, target: targetId } = this
    const params = { sessionId, message: message.toString(), targetId }
    this.parent?.emit('Target.receivedMessageFromTarget', params)
  }

  /** What is too large to be passed on ends the session that it is of, and no other. */
  lose(): void {
    const { name: sessionId, target: targetId, parent, upstream } = this
    if (parent === null) return this.client.onLoss()
    this.emit('Inspector.detached', { reason: 'message_too_large' })
    parent.emit('Target.detachedFromTarget', { sessionId, targetId })
    this.client.host.detach(parent.upstream, upstream)
    this.end()
  }

  /** The page that a whole connection is for is closed: as Chrome does, the connection ends. */
  detached(): void {
    this.emit('Inspector.detached', { reason: 'target_closed' })
    this.client.onTargetClosed()
  }

  emit(method: string, params: object): void {
    this.pass(textOf({ method, params }, this.id))
  }

  answer(id: number, reply: Reply): void {
    this.pass(textOf({ id, ...reply }, this.id))
  }

  refuse(id: number, error: Fault): void {
    this.answer(id, { error })
  }

  targetEvent(event: BrowserEvent): void {
    takeTargetEvent(this, event)
  }

  settled(id: number): void {
    if (this.#pending.delete(id)) this.client.pending -= 1
  }

  /** Passes a command on; the reply goes back as it comes, or to `read`. */
  forward(command: Command, read: ((reply: Reply) => void) | null = null): void {
    const { host, share } = this.client
    this.#pending.add(host.link.forward(this, command, { share, read }))
    this.client.pending += 1
    this.blocked.settle(command)
    if (command.method === RUN) host.waiting.ran(this)
  }

  /** Told when the browser has worked off what this client has sent so far. */
  askForSign(onSign: () => void): void {
    this.#ask('Browser.getVersion', {}, { read: onSign, session: '', share: this.client.share })
  }

  /** Says something for a client that is away. */
  tell(method: string, params: Params): void {
    this.#ask(method, params, { read: () => undefined, session: this.upstream, share: null })
    if (method === RUN) this.client.host.waiting.ran(this)
  }

  /** Asks the browser for the door's own sake; forgotten with the session. */
  #ask(method: string, params: Params, { read, session, share }: Asked): void {
    const { link } = this.client.host
    if (link.closed !== null) return
    const settled = (): void => {
      this.#told.delete(id)
      read()
    }
    const id: number = link.ask(method, params, settled, session, share)
    this.#told.add(id)
  }

  /** Over, with all below it. What it had asked is never answered: as Chrome does it. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    for (const child of [...this.children.values()]) child.end()
    const { link } = this.client.host
    link.end(this)
    for (const id of [...this.#pending, ...this.#told]) link.forget(id)
    this.client.pending -= this.#pending.size
    this.#pending = new Set()
    this.parent?.children.delete(this.upstream)
    this.client.sessionEnded(this)
    this.client.host.waiting.ended(this)
  }
}
