/**
 * What one browser session owns of a browser: a browser context of its own, which its clients take
 * for the browser's default one, the contexts that they create, and the pages in them. Its clients
 * see nothing else of the browser.
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { folderBytes } from '../../browsers/index.ts'
import { HoldfastError, type SessionHandle } from '../../core/index.ts'
import type { AttachedClient } from './attached-client.ts'
import type { BrowserHost } from './host.ts'
import type { CdpLimits } from './limits.ts'
import {
  CDP_ERRORS,
  type CdpError,
  type CdpEvent,
  type CdpReply,
  type Params,
  type ReadReply,
} from './protocol.ts'
import { isInternalUrl, type TargetInfo } from './targets.ts'
import type { BrowserLink } from './link.ts'

/** Targets of the browser itself, which have access to every page; and all that are not listed. */
const HIDDEN_TYPE = /^browser(_ui)?$/
const EXTENSION = /^chrome-extension:/i
const UNLISTED_TYPE = /^(browser|browser_ui|tab)$/

const FULL_OF_PAGES = { code: -32000, message: 'there are too many pages' } as const
const FULL_OF_CONTEXTS = { code: -32000, message: 'there are too many browser contexts' } as const
const OVER = { code: -32000, message: 'the session is over' } as const
const TOO_LARGE = { code: -32600, message: 'Message is too large for what it asks for' } as const

type TenantOptions = Pick<BrowserTenant, 'session' | 'host' | 'home' | 'limits'>

export class BrowserTenant {
  readonly session: SessionHandle
  readonly host: BrowserHost
  readonly limits: CdpLimits
  /** The context that stands for the default one. */
  readonly home: string
  readonly clients = new Set<AttachedClient>()
  /** Clients that are being admitted. */
  entering = 0
  /** Windows that clients know, each with a page in it: other ids could be guessed. */
  readonly windows = new Map<number, string>()
  /** Every context, with the client that it ends with, if there is one. */
  readonly #contexts = new Map<string, AttachedClient | null>()
  /** Requested of the browser: they count as if they existed. */
  readonly #expected = { pages: 0, contexts: 0 }
  readonly #opening: ConcurrencyLimit
  /** Apart, so that clean-up does not wait behind pages that may never open. */
  readonly #closing: ConcurrencyLimit
  /** Contexts that the browser was asked to dispose of for a client. */
  readonly #disposing = new Set<string>()
  #firstPage: Promise<unknown> | null = null
  #isOver = false
  #unwatchDownloads = (): void => undefined
  /** Ends that it is counted for a principal; null: it is not. */
  uncount: (() => void) | null = null

  constructor({ session, host, home, limits }: TenantOptions) {
    this.session = session
    this.host = host
    this.home = home
    this.limits = limits
    this.#opening = new ConcurrencyLimit(host.link, limits.openingMax)
    this.#closing = new ConcurrencyLimit(host.link, limits.openingMax)
    this.#addContext(home, null)
    host.targets.tenants.add(this)
  }

  /** How many clients count for one that enters: a stock client replaces a lost one. */
  clientsFor(mayReturn: boolean): number {
    const present = [...this.clients].filter(({ isLost }) => mayReturn || !isLost)
    return present.length + this.entering
  }

  get contexts(): readonly string[] {
    return [...this.#contexts.keys()]
  }

  hasContext(context: unknown): boolean {
    return typeof context === 'string' && this.#contexts.has(context)
  }

  owns({ targetId, browserContextId, type, url }: TargetInfo): boolean {
    if (this.host.targets.unwanted.has(targetId)) return false
    if (this.host.isOwn) return type !== 'browser' && !this.#isPrivileged(type, url)
    // The page of such a tab is hidden: a client that waits for it would wait without end.
    if (type === 'tab' && isInternalUrl(url)) return false
    return this.hasContext(browserContextId) && !HIDDEN_TYPE.test(type)
  }

  /** A part of the browser that could do what its clients may not (egress). */
  #isPrivileged(type: string, url: string): boolean {
    return this.host.downloads !== null && (HIDDEN_TYPE.test(type) || EXTENSION.test(url))
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
      .filter((info) => this.owns(info) && !UNLISTED_TYPE.test(info.type))
      .reverse()
  }

  /** Opens a page in one of its contexts, if there is room. */
  openPage(params: Params, read: ReadReply): void {
    if (this.#pagesCount >= this.limits.targetsMax) return read({ error: FULL_OF_PAGES })
    this.#open('pages', params, read)
  }

  /** Makes a context that ends with a client, if one is given, and if there is room. */
  openContext(params: Params, owner: AttachedClient | null, read: ReadReply): void {
    const count = this.#contexts.size + this.#expected.contexts
    if (count >= this.limits.contextsMax) return read({ error: FULL_OF_CONTEXTS })
    this.#open('contexts', params, (reply) => {
      const { browserContextId } = reply.result ?? {}
      if (typeof browserContextId === 'string') this.#addContext(browserContextId, owner)
      read(reply)
    })
  }

  #addContext(browserContextId: string, owner: AttachedClient | null): void {
    this.#contexts.set(browserContextId, owner)
    if (this.host.downloads === null) return
    // Without this they would go to the home folder of the server's user.
    const behavior = { behavior: 'deny', browserContextId }
    this.host.link.ask('Browser.setDownloadBehavior', behavior)
  }

  /**
   * The command is the door's own, not the client's: the client may be gone before the reply, but
   * what was opened has to be counted all the same.
   */
  #open(kind: 'pages' | 'contexts', params: Params, read: ReadReply): void {
    // Throws a RangeError if it nests too deeply.
    const isLarge = JSON.stringify(params).length > this.limits.makingCharsMax
    if (isLarge) return read({ error: TOO_LARGE })
    const method = kind === 'pages' ? 'Target.createTarget' : 'Target.createBrowserContext'
    this.#expected[kind] += 1
    this.#opening.ask(method, params, (reply) => {
      this.#expected[kind] -= 1
      read(reply)
    })
  }

  get #pagesCount(): number {
    return this.pages().length + this.#expected.pages
  }

  /** Closes windows that pages open beyond the limit, before any client sees them. */
  targetCreated({ targetId, type, browserContextId, openerId }: TargetInfo): void {
    if (type !== 'page' || !this.hasContext(browserContextId)) return
    // A page that a client asked for stays, even if frames and workers have exceeded the limit.
    if (openerId === undefined && this.#expected.pages > 0) return
    if (this.#pagesCount <= this.limits.targetsMax) return
    this.host.closeUnseen(targetId)
    if (openerId === undefined) return
    const warning = 'Holdfast closed a window at once: there are too many pages'
    for (const client of this.clients) client.warn(warning, openerId)
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
        reject(
          new HoldfastError(error === FULL_OF_PAGES ? 'too_many' : 'browser_gone', error.message),
        )
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
  removeClient(client: AttachedClient): void {
    this.clients.delete(client)
    for (const [context, owner] of [...this.#contexts]) {
      if (owner === client) this.dispose(context)
    }
  }

  /** Another client replaces one that is gone, and keeps its contexts. */
  handOver(gone: AttachedClient, next: AttachedClient): void {
    gone.isOver = true
    this.clients.delete(gone)
    for (const [context, owner] of this.#contexts) {
      if (owner === gone) this.#contexts.set(context, next)
    }
  }

  /** The folder for its downloads; null: its clients choose it. */
  get #downloads(): string | null {
    const { downloads } = this.host
    return downloads === null ? null : join(downloads, this.session.id)
  }

  /** Measures its downloads at intervals; calls `exceeded` when they are too large. */
  watchDownloads(exceeded: () => void): void {
    const folder = this.#downloads
    if (folder === null) return
    this.#unwatchDownloads = this.host.clock.after(this.limits.downloadsMs, () => {
      void folderBytes(folder).then((bytes) => {
        if (this.#isOver) return
        if (bytes > this.limits.downloadBytesMax) exceeded()
        else this.watchDownloads(exceeded)
      })
    })
  }

  /** The session is over: nothing of it stays in the browser. */
  end(): void {
    this.#isOver = true
    this.#unwatchDownloads()
    this.uncount?.()
    this.host.targets.tenants.delete(this)
    for (const limit of [this.#opening, this.#closing]) limit.refuseWaiting(OVER)
    // A browser of its own ends with it.
    if (this.host.isOwn) return
    for (const context of this.contexts) this.dispose(context)
  }

  dispose(browserContextId: string): void {
    this.#contexts.delete(browserContextId)
    const folder = this.#downloads
    this.#closing.cleanUp('Target.disposeBrowserContext', { browserContextId }, () => {
      if (folder === null || !this.#isOver || this.#contexts.size > 0) return
      // Downloads end with their contexts. What cannot be removed goes with the browser.
      void rm(folder, { recursive: true, force: true }).catch(() => undefined)
    })
  }
}

/** Clean-up commands run even after the client has disconnected. */
type QueuedCommand = CdpEvent & { readonly read: ReadReply; readonly isCleanUp: boolean }

/**
 * Commands that block a browser for a while: opening a page, making or disposing of a context. Of
 * one browser session only a few are in progress at a time, so that other clients are served.
 */
class ConcurrencyLimit {
  readonly #link: BrowserLink
  readonly #runningMax: number
  #waiting: QueuedCommand[] = []
  #running = 0
  #isStarting = false

  constructor(link: BrowserLink, runningMax: number) {
    this.#link = link
    this.#runningMax = runningMax
  }

  ask(method: string, params: Params, read: ReadReply): void {
    this.#waiting.push({ method, params, read, isCleanUp: false })
    this.#start()
  }

  cleanUp(method: string, params: Params, read: ReadReply): void {
    this.#waiting.push({ method, params, read, isCleanUp: true })
    this.#start()
  }

  #start(): void {
    // A closed link answers synchronously: without this, each reply would nest in the one before.
    if (this.#isStarting) return
    this.#isStarting = true
    while (this.#running < this.#runningMax) {
      const next = this.#waiting.shift()
      if (next === undefined) break
      this.#running += 1
      const read = (reply: CdpReply): void => {
        this.#running -= 1
        next.read(reply)
        this.#start()
      }
      this.#link.ask(next.method, next.params, read)
    }
    this.#isStarting = false
  }

  /** Refuses the waiting commands, except clean-up commands. */
  refuseWaiting(error: CdpError): void {
    const waiting = this.#waiting
    this.#waiting = waiting.filter(({ isCleanUp }) => isCleanUp)
    for (const { read, isCleanUp } of waiting) if (!isCleanUp) read({ error })
  }
}
