/**
 * What one browser session has of a browser: a browser context of its own that its clients take for
 * the browser's default, the contexts they make, and the pages in them. Nothing else of the browser
 * exists for its clients.
 */
import type { SessionHandle } from '../../core/index.ts'
import type { Client } from './client.ts'
import type { Host } from './host.ts'
import { isInternalUrl } from './request.ts'
import type { Seat } from './seat.ts'
import type { TargetInfo } from './targets.ts'
import { Windows } from './windows.ts'

/** Pages of the browser's own, which could do what no page may. */
const HIDDEN_TYPES: ReadonlySet<string> = new Set(['browser', 'browser_ui'])

/** Downloads that are remembered: the newest. */
const DOWNLOADS_MAX = 1_000

export class Tenant {
  readonly host: Host
  readonly session: SessionHandle
  /** What stands for the default context. */
  readonly home: string
  readonly clients = new Set<Client>()
  readonly seats = new Set<Seat>()
  readonly windows = new Windows()
  /** Every context, and the client with which it goes, if there is one. */
  readonly #contexts = new Map<string, Client | null>()
  readonly #downloads = new Set<string>()

  constructor({ host, session, home }: Pick<Tenant, 'host' | 'session' | 'home'>) {
    this.host = host
    this.session = session
    this.home = home
    this.#contexts.set(home, null)
  }

  get contexts(): readonly string[] {
    return [...this.#contexts.keys()]
  }

  hasContext(context: unknown): boolean {
    return typeof context === 'string' && this.#contexts.has(context)
  }

  owns({ browserContextId, type, url }: TargetInfo): boolean {
    // A tab of the browser's own, whose page is hidden: who waits for that would wait for ever.
    if (type === 'tab' && isInternalUrl(url)) return false
    return this.hasContext(browserContextId) && !HIDDEN_TYPES.has(type)
  }

  /** Whether a download is its own: told by the page that it is of, and then by its name. */
  mayKnowDownload(method: string, message: Buffer): boolean {
    const { params = {} } = JSON.parse(message.toString()) as { params?: Record<string, unknown> }
    const guid = String(params['guid'])
    if (method !== 'Browser.downloadWillBegin') return this.#downloads.has(guid)
    const isAlone = this.host.tenants.size === 1
    if (!isAlone && this.target(params['frameId']) === null) return false
    this.#downloads.add(guid)
    const [oldest] = this.#downloads
    if (this.#downloads.size > DOWNLOADS_MAX && oldest !== undefined) this.#downloads.delete(oldest)
    return true
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
      .filter((info) => this.owns(info) && info.type !== 'tab')
      .reverse()
  }

  /** The place of an attachment. */
  seat(attachment: string): Seat | undefined {
    return [...this.seats].find((seat) => seat.attachment.id === attachment)
  }

  addContext(context: string, owner: Client | null): void {
    this.#contexts.set(context, owner)
  }

  dropContext(context: string): void {
    this.#contexts.delete(context)
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
    for (const context of this.contexts) this.dispose(context)
  }

  dispose(browserContextId: string): void {
    this.#contexts.delete(browserContextId)
    this.host.link.tell('Target.disposeBrowserContext', { browserContextId })
  }
}
