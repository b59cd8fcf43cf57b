/**
 * What one browser session owns of a browser: a browser context of its own, which its clients take
 * for the browser's default one, the contexts that they create, and the pages in them. Its clients
 * see nothing else of the browser.
 */
import { HoldfastError } from '../../core/index.ts'
import { ConcurrencyLimit } from './concurrency.ts'
import type { BrowserHost } from './host.ts'
import type { CdpLimits } from './limits.ts'
import { CDP_ERRORS, type Params, type ReadReply } from './protocol.ts'
import { isInternalUrl, type TargetInfo } from './targets.ts'

/** Targets of the browser itself, which have access to every page. */
const HIDDEN_TYPES: ReadonlySet<string> = new Set(['browser', 'browser_ui'])

/** Targets that are neither pages nor in one. */
const UNLISTED_TYPES: ReadonlySet<string> = new Set([...HIDDEN_TYPES, 'tab'])

const FULL = {
  pages: { code: -32000, message: 'there are too many pages' },
  contexts: { code: -32000, message: 'there are too many browser contexts' },
} as const

const OPENING = {
  pages: 'Target.createTarget',
  contexts: 'Target.createBrowserContext',
} as const

/** The warning for the page that opened one too many. */
const CLOSED_AT_ONCE = 'Holdfast closed a window at once: there are too many pages'

const OVER = { code: -32000, message: 'the session is over' } as const

const TOO_LARGE = { code: -32600, message: 'Message is too large for what it asks for' } as const

/** A client of the browser session, as far as a tenant needs it. */
export type TenantClient = {
  /** The page that it is connected to; null: the browser. */
  readonly target: string | null
  /** Logs a warning in its CDP sessions with a page; null: in those with any page. */
  warn(text: string, page: string | null): void
}

export class BrowserTenant {
  readonly host: BrowserHost
  readonly limits: CdpLimits
  /** The context that stands for the default one. */
  readonly home: string
  readonly clients = new Set<TenantClient>()
  /** Windows that clients know, each with a page in it: other ids could be guessed. */
  readonly windows = new Map<number, string>()
  /** Every context, with the client that it ends with, if there is one. */
  readonly #contexts = new Map<string, TenantClient | null>()
  /** Requested of the browser: they count as if they existed. */
  readonly #expected = { pages: 0, contexts: 0 }
  readonly #opening: ConcurrencyLimit
  /** Apart, so that clean-up does not wait behind pages that may never open. */
  readonly #closing: ConcurrencyLimit
  /** Contexts that the browser was asked to dispose of for a client. */
  readonly #disposing = new Set<string>()
  readonly #onTarget = (info: TargetInfo): void => this.#targetCreated(info)
  #firstPage: Promise<unknown> | null = null

  constructor(host: BrowserHost, home: string, limits: CdpLimits) {
    this.host = host
    this.home = home
    this.limits = limits
    this.#opening = new ConcurrencyLimit(host.link, limits.openingMax)
    this.#closing = new ConcurrencyLimit(host.link, limits.openingMax)
    this.#contexts.set(home, null)
    host.onTarget.add(this.#onTarget)
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
    // The page of such a tab is hidden: a client that waits for it would wait without end.
    if (type === 'tab' && isInternalUrl(url)) return false
    return this.hasContext(browserContextId) && !HIDDEN_TYPES.has(type)
  }

  /** A target of its own, by its id. */
  target(id: unknown): TargetInfo | null {
    const info = typeof id === 'string' ? this.host.targets.get(id) : undefined
    return info !== undefined && this.owns(info) ? info : null
  }

  /** Its targets as `/json/list` shows them, the newest first. */
  pages(): readonly TargetInfo[] {
    return this.host.targets
      .all()
      .filter((info) => this.owns(info) && !UNLISTED_TYPES.has(info.type))
      .reverse()
  }

  /** Opens a page in one of its contexts, if there is room. */
  openPage(params: Params, read: ReadReply): void {
    this.#open('pages', params, read)
  }

  /** Makes a context that ends with a client, if one is given, and if there is room. */
  openContext(params: Params, owner: TenantClient | null, read: ReadReply): void {
    this.#open('contexts', params, (reply) => {
      const { browserContextId } = reply.result ?? {}
      if (typeof browserContextId === 'string') this.#contexts.set(browserContextId, owner)
      read(reply)
    })
  }

  /**
   * The command is the door's own, not the client's: the client may be gone before the reply, but
   * what was opened has to be counted all the same.
   */
  #open(kind: 'pages' | 'contexts', params: Params, read: ReadReply): void {
    const { targetsMax, contextsMax, makingCharsMax } = this.limits
    const isFull =
      kind === 'pages'
        ? this.#pagesCount >= targetsMax
        : this.#contexts.size + this.#expected.contexts >= contextsMax
    if (isFull) return read({ error: FULL[kind] })
    // Throws a RangeError if it nests too deeply.
    if (JSON.stringify(params).length > makingCharsMax) return read({ error: TOO_LARGE })
    this.#expected[kind] += 1
    this.#opening.ask(OPENING[kind], params, (reply) => {
      this.#expected[kind] -= 1
      read(reply)
    })
  }

  get #pagesCount(): number {
    return this.pages().length + this.#expected.pages
  }

  /** Closes windows that pages open beyond the limit, before any client sees them. */
  #targetCreated({ targetId, type, browserContextId, openerId }: TargetInfo): void {
    if (type !== 'page' || !this.hasContext(browserContextId)) return
    // A page that a client asked for stays, even if frames and workers have exceeded the limit.
    if (openerId === undefined && this.#expected.pages > 0) return
    if (this.#pagesCount <= this.limits.targetsMax) return
    this.host.closeUnseen(targetId)
    if (openerId === undefined) return
    for (const client of this.clients) client.warn(CLOSED_AT_ONCE, openerId)
  }

  /** As in Chrome, a new session has a page, and so has one whose pages are listed. */
  async haveFirstPage(): Promise<void> {
    if (this.pages().length > 0) return
    this.#firstPage ??= this.newPage('about:blank')
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

  /** Disposes of a context for a client: once, however often it is requested. */
  closeContext(browserContextId: string, read: ReadReply): void {
    if (this.#disposing.has(browserContextId)) return read({ error: CDP_ERRORS.context })
    this.#disposing.add(browserContextId)
    this.#closing.ask('Target.disposeBrowserContext', { browserContextId }, (reply) => {
      this.#disposing.delete(browserContextId)
      if (reply.error === undefined) this.#contexts.delete(browserContextId)
      read(reply)
    })
  }

  /** A client is gone for good, and the contexts that end with it. */
  removeClient(client: TenantClient): void {
    this.clients.delete(client)
    for (const [context, owner] of [...this.#contexts]) {
      if (owner === client) this.dispose(context)
    }
  }

  /** Another client replaces one that is gone, and keeps its contexts. */
  handOver(gone: TenantClient, next: TenantClient): void {
    this.clients.delete(gone)
    for (const [context, owner] of this.#contexts) {
      if (owner === gone) this.#contexts.set(context, next)
    }
  }

  /** The session is over: nothing of it stays in the browser. */
  end(): void {
    this.host.onTarget.delete(this.#onTarget)
    for (const limit of [this.#opening, this.#closing]) limit.refuseWaiting(OVER)
    // A browser of its own ends with it.
    if (this.host.isOwn) return
    for (const context of this.contexts) this.dispose(context)
  }

  dispose(browserContextId: string): void {
    this.#contexts.delete(browserContextId)
    this.#closing.ask('Target.disposeBrowserContext', { browserContextId })
  }
}
