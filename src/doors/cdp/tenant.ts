/**
 * What one browser session has of a browser: a browser context of its own that its clients take for
 * the browser's default, the contexts they make, and the pages in them. Nothing else of the browser
 * exists for its clients.
 */
import { HoldfastError, type SessionHandle } from '../../core/index.ts'
import type { Client } from './client.ts'
import { FAULTS, type Params } from './command.ts'
import type { Host } from './host.ts'
import type { CdpLimits } from './limits.ts'
import type { Reply } from './link.ts'
import { Pace } from './pace.ts'
import { isInternalUrl } from './request.ts'
import type { Seat } from './seat.ts'
import type { TargetInfo } from './targets.ts'
import { Windows } from './windows.ts'

/** Pages of the browser's own, which could do what no page may. */
const HIDDEN_TYPES: ReadonlySet<string> = new Set(['browser', 'browser_ui'])

/** Targets that are no pages, nor in one. */
const UNLISTED_TYPES: ReadonlySet<string> = new Set([...HIDDEN_TYPES, 'tab'])

export const FULL = {
  pages: { code: -32000, message: 'there are too many pages' },
  contexts: { code: -32000, message: 'there are too many browser contexts' },
} as const

/** What the page that opened one too many is told. */
const CLOSED_AT_ONCE = 'Holdfast closed a window at once: there are too many pages'

const OVER = { code: -32000, message: 'the session is over' } as const

const TOO_LARGE = { code: -32600, message: 'Message is too large for what it asks for' } as const

export class Tenant {
  readonly host: Host
  readonly session: SessionHandle
  readonly limits: CdpLimits
  /** What stands for the default context. */
  readonly home: string
  readonly clients = new Set<Client>()
  readonly seats = new Set<Seat>()
  readonly windows = new Windows()
  /** Every context, and the client with which it goes, if there is one. */
  readonly #contexts = new Map<string, Client | null>()
  /** Clients that are about to be. */
  expected = 0
  /** Pages and contexts that the browser was asked for: they count as if they were there. */
  #pagesExpected = 0
  #contextsExpected = 0
  readonly #opening: Pace
  /** Not behind what is being opened, which may never be answered and has to go all the same. */
  readonly #clearing: Pace
  /** Contexts that the browser is asked to dispose of, because a client wants that. */
  readonly #closing = new Set<string>()
  #firstPage: Promise<void> | null = null

  constructor(parts: Pick<Tenant, 'host' | 'session' | 'home' | 'limits'>) {
    const { host, session, home, limits } = parts
    this.host = host
    this.session = session
    this.home = home
    this.limits = limits
    this.#opening = new Pace(host.link, limits)
    this.#clearing = new Pace(host.link, limits)
    this.#contexts.set(home, null)
  }

  get contexts(): readonly string[] {
    return [...this.#contexts.keys()]
  }

  hasContext(context: unknown): boolean {
    return typeof context === 'string' && this.#contexts.has(context)
  }

  owns({ targetId, browserContextId, type, url }: TargetInfo): boolean {
    if (this.host.targets.isUnwanted(targetId)) return false
    if (this.host.isOwn) return type !== 'browser'
    // A tab of the browser's own, whose page is hidden: who waits for that would wait for ever.
    if (type === 'tab' && isInternalUrl(url)) return false
    return this.hasContext(browserContextId) && !HIDDEN_TYPES.has(type)
  }

  /** A target of its own, by its id. */
  target(id: unknown): TargetInfo | null {
    const info = typeof id === 'string' ? this.host.targets.get(id) : undefined
    return info !== undefined && this.owns(info) ? info : null
  }

  /** Those that a person would call pages, the newest first. */
  pages(): readonly TargetInfo[] {
    return this.host.targets
      .all()
      .filter((info) => this.owns(info) && !UNLISTED_TYPES.has(info.type))
      .reverse()
  }

  /**
   * Opens a page in one of its contexts, if there is room. The door asks for it itself, and so gets
   * the reply for certain: a client may be gone before it comes, and what is under way must be
   * counted all the same.
   */
  openPage(params: Params, read: (reply: Reply) => void): void {
    if (this.pages().length + this.#pagesExpected >= this.limits.targetsMax) {
      return read({ error: FULL.pages })
    }
    if (this.#isLarge(params)) return read({ error: TOO_LARGE })
    this.#pagesExpected += 1
    this.#opening.ask('Target.createTarget', params, (reply) => {
      this.#pagesExpected -= 1
      read(reply)
    })
  }

  /**
   * A page may open others by itself, which nobody has asked the door for. Beyond the bound they
   * are closed before any client sees them.
   */
  targetCreated({ targetId, type, browserContextId, openerId }: TargetInfo): void {
    if (type !== 'page' || !this.hasContext(browserContextId)) return
    // What a client has been promised comes first, whatever frames and workers have come since.
    if (openerId === undefined && this.#pagesExpected > 0) return
    if (this.pages().length + this.#pagesExpected <= this.limits.targetsMax) return
    this.host.closeUnseen(targetId)
    if (openerId === undefined) return
    const timestamp = this.host.clock.now()
    const entry = { source: 'other', level: 'warning', text: CLOSED_AT_ONCE, timestamp }
    for (const client of this.clients) client.emitFor(openerId, 'Log.entryAdded', { entry })
  }

  /** Makes a context that goes with a client, if there is one, and if there is room. */
  openContext(params: Params, owner: Client | null, read: (reply: Reply) => void): void {
    if (this.#contexts.size + this.#contextsExpected >= this.limits.contextsMax) {
      return read({ error: FULL.contexts })
    }
    if (this.#isLarge(params)) return read({ error: TOO_LARGE })
    this.#contextsExpected += 1
    this.#opening.ask('Target.createBrowserContext', params, (reply) => {
      this.#contextsExpected -= 1
      const { browserContextId } = reply.result ?? {}
      if (typeof browserContextId === 'string') this.#contexts.set(browserContextId, owner)
      read(reply)
    })
  }

  /** Throws a RangeError if it nests too deeply to be written at all. */
  #isLarge(params: Params): boolean {
    return JSON.stringify(params).length > this.limits.makingCharsMax
  }

  /** As Chrome has it: a fresh session has a page, and so has one whose pages are asked for. */
  async haveFirstPage(): Promise<void> {
    if (this.pages().length > 0) return
    this.#firstPage ??= this.newPage('about:blank').then(() => undefined)
    try {
      await this.#firstPage
    } finally {
      this.#firstPage = null
    }
  }

  /** Opens a page for the door itself. Resolves with its id. */
  newPage(url: string): Promise<string> {
    return new Promise((resolve, reject) => {
      this.openPage({ url, browserContextId: this.home }, ({ result, error }) => {
        if (error === undefined) return resolve(String(result?.['targetId']))
        reject(new HoldfastError(error === FULL.pages ? 'too_many' : 'browser_gone', error.message))
      })
    })
  }

  /** Places that are taken, for one who comes: a vacant one is free for who cannot return. */
  placesFor(mayReturn: boolean): number {
    const seats = [...this.seats].filter((seat) => mayReturn || !seat.isVacant)
    return seats.length + this.expected
  }

  /** The place of an attachment. */
  seat(attachment: string): Seat | undefined {
    return [...this.seats].find((seat) => seat.attachment.id === attachment)
  }

  /** Disposes of a context because a client wants that: once, however often it says so. */
  closeContext(browserContextId: string, read: (reply: Reply) => void): void {
    if (this.#closing.has(browserContextId)) return read({ error: FAULTS.context })
    this.#closing.add(browserContextId)
    this.#clearing.ask('Target.disposeBrowserContext', { browserContextId }, (reply) => {
      this.#closing.delete(browserContextId)
      if (reply.error === undefined) this.#contexts.delete(browserContextId)
      read(reply)
    })
  }

  /** A client is gone for good: what was to go with it goes. */
  removeClient(client: Client): void {
    this.clients.delete(client)
    for (const [context, owner] of [...this.#contexts]) {
      if (owner === client) this.dispose(context)
    }
  }

  /** Another client takes the place of one that is gone, and keeps what it had made. */
  handOver(gone: Client, next: Client): void {
    this.clients.delete(gone)
    for (const [context, owner] of this.#contexts) {
      if (owner === gone) this.#contexts.set(context, next)
    }
  }

  /** The session is over: nothing of it stays in the browser. */
  end(): void {
    for (const pace of [this.#opening, this.#clearing]) pace.refuseWaiting(OVER)
    // A browser of its own ends with it.
    if (this.host.isOwn) return
    for (const context of this.contexts) this.dispose(context)
  }

  dispose(browserContextId: string): void {
    this.#contexts.delete(browserContextId)
    this.#clearing.ask('Target.disposeBrowserContext', { browserContextId })
  }
}
