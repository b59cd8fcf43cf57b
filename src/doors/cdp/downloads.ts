/**
 * Whose a download is. The browser tells everybody who wants to hear of downloads of all of them,
 * by the frame that began it. A page's main frame has the page's name; any other frame is looked
 * for in the pages. Until it is found, what is told of the download waits.
 */
import type { Host } from './host.ts'
import type { Reply } from './link.ts'
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
    const looks = targets.map(({ targetId }) => new Look(this.#host, targetId))
    const found = looks.map(async (look) => {
      const frames = await look.frames().finally(() => look.end())
      if (!isIn(frames, frame)) throw new Error('not here')
      return this.#tenantOf(look.target)
    })
    // A page that hangs does not answer; the one that has the frame has just begun a download.
    const owner = await Promise.any(found).catch(() => null)
    for (const look of looks) look.end()
    return owner
  }
}

/** A look into a target, in a session of the door's own. */
class Look {
  readonly #host: Host
  readonly target: string
  #session: string | null = null
  #asked = 0
  #isOver = false

  constructor(host: Host, target: string) {
    this.#host = host
    this.target = target
  }

  async frames(): Promise<FrameTree> {
    const { link } = this.#host
    const attach = { targetId: this.target, flatten: true }
    const { sessionId } = await link.command('Target.attachToTarget', attach)
    const session = String(sessionId)
    if (this.#isOver) this.#host.detach('', session)
    if (this.#isOver) throw new Error('nobody waits for it any more')
    this.#session = session
    return new Promise((resolve, reject) => {
      const read = ({ result }: Reply): void => {
        if (result === undefined) reject(new Error('it has none'))
        else resolve(result['frameTree'] as FrameTree)
      }
      this.#asked = link.ask('Page.getFrameTree', {}, read, session)
    })
  }

  /** Whether it has answered or not: who hangs never does. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#host.link.forget(this.#asked)
    if (this.#session !== null) this.#host.detach('', this.#session)
  }
}

function isIn({ frame: { id }, childFrames = [] }: FrameTree, frame: string): boolean {
  return id === frame || childFrames.some((child) => isIn(child, frame))
}
