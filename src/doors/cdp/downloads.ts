/**
 * Whose a download is. The browser tells everybody who wants to hear of downloads of all of them,
 * by the frame that began it. A page's main frame has the page's name; any other frame is looked
 * for in the pages. Until it is found, what is told of the download waits.
 */
import type { Host } from './host.ts'
import type { Tenant } from './tenant.ts'

/** Downloads that are remembered: the newest. */
const DOWNLOADS_MAX = 1_000

/** Targets that have frames. */
const FRAMED: ReadonlySet<string> = new Set(['page', 'iframe', 'webview'])

type FrameTree = { readonly frame: { readonly id: string }; readonly childFrames?: FrameTree[] }

export class Downloads {
  readonly #host: Host
  /** By the browser's name of the download. */
  readonly #owners = new Map<string, Tenant | null | Promise<Tenant | null>>()

  constructor(host: Host) {
    this.#host = host
  }

  static concerns(method: string): boolean {
    return method.startsWith('Browser.download')
  }

  /** Passes on what a client of this tenant is told, if it may know, and in order. */
  route(tenant: Tenant, message: Buffer, passOn: () => void): void {
    const { params = {} } = JSON.parse(message.toString()) as { params?: Record<string, unknown> }
    const owner = this.#ownerOf(String(params['guid']), params['frameId'])
    if (owner instanceof Promise) {
      void owner.then((found) => {
        if (found === tenant) passOn()
      })
    } else if (owner === tenant) passOn()
  }

  #ownerOf(guid: string, frame: unknown): Tenant | null | Promise<Tenant | null> {
    const known = this.#owners.get(guid)
    if (known !== undefined) return known
    // Its beginning was before anybody here listened.
    if (typeof frame !== 'string') return null
    const owner = this.#tenantOf(frame) ?? this.#search(frame)
    this.#owners.set(guid, owner)
    const [oldest] = this.#owners.keys()
    if (this.#owners.size > DOWNLOADS_MAX && oldest !== undefined) this.#owners.delete(oldest)
    return owner
  }

  #tenantOf(target: string): Tenant | null {
    return [...this.#host.tenants].find((tenant) => tenant.target(target) !== null) ?? null
  }

  async #search(frame: string): Promise<Tenant | null> {
    const targets = this.#host.targets.all().filter(({ type }) => FRAMED.has(type))
    const found = targets.map(async ({ targetId }) => {
      if (!(await this.#hasFrame(targetId, frame))) throw new Error('not here')
      return this.#tenantOf(targetId)
    })
    // A page that hangs does not answer; the one that has the frame has just begun a download.
    return Promise.any(found).catch(() => null)
  }

  /** Looks into a target, in a session of the door's own. */
  async #hasFrame(targetId: string, frame: string): Promise<boolean> {
    const { link } = this.#host
    const attach = { targetId, flatten: true }
    const { sessionId } = await link.command('Target.attachToTarget', attach)
    try {
      const { frameTree } = await link.command('Page.getFrameTree', {}, String(sessionId))
      return isIn(frameTree as FrameTree, frame)
    } finally {
      this.#host.detach('', String(sessionId))
    }
  }
}

function isIn({ frame: { id }, childFrames = [] }: FrameTree, frame: string): boolean {
  return id === frame || childFrames.some((child) => isIn(child, frame))
}
