/**
 * Finds the browser context of a download. The browser reports every download to every client that
 * enables these events, with the frame that started it. The main frame of a page has the page's id;
 * other frames are searched for in the pages. Until the frame is found, the events wait.
 */
import type { BrowserLink, DoorSession } from './link.ts'
import type { CdpReply, Params } from './protocol.ts'
import type { TargetInfo, Targets } from './targets.ts'

/** Downloads that are remembered: the newest. */
const DOWNLOADS_MAX = 1_000

/** Targets that have frames. */
const FRAMED: ReadonlySet<string> = new Set(['page', 'iframe', 'webview'])

type FrameTree = { readonly frame: { readonly id: string }; readonly childFrames?: FrameTree[] }
type FoundContext = string | null | Promise<string | null>

export class Downloads {
  readonly #link: BrowserLink
  readonly #targets: Targets
  /** By the browser's id of the download. */
  readonly #contexts = new Map<string, FoundContext>()

  constructor(link: BrowserLink, targets: Targets) {
    this.#link = link
    this.#targets = targets
  }

  static concerns(method: string): boolean {
    return method.startsWith('Browser.download')
  }

  /** Calls `pass` if the download that an event is about belongs to one of these contexts. */
  route(message: Buffer, isOwn: (context: string | null) => boolean, pass: () => void): void {
    const { params = {} } = JSON.parse(message.toString()) as { params?: Params }
    const context = this.#contextOf(String(params['guid']), params['frameId'])
    if (!(context instanceof Promise)) return isOwn(context) ? pass() : undefined
    void context.then((found) => {
      if (isOwn(found)) pass()
    })
  }

  #contextOf(guid: string, frame: unknown): FoundContext {
    const known = this.#contexts.get(guid)
    if (known !== undefined) return known
    // It began before any client enabled these events.
    if (typeof frame !== 'string') return null
    const context = this.#targets.get(frame)?.browserContextId ?? this.#search(frame)
    this.#contexts.set(guid, context)
    const [oldest] = this.#contexts.keys()
    if (this.#contexts.size > DOWNLOADS_MAX && oldest !== undefined) this.#contexts.delete(oldest)
    return context
  }

  async #search(frame: string): Promise<string | null> {
    const sessions = new Set<DoorSession>()
    const framed = this.#targets.all().filter(({ type }) => FRAMED.has(type))
    const looks = framed.map((info) => this.#look(info, frame, sessions))
    // A page that hangs does not answer; the one with the frame has just started a download.
    const found = await Promise.any(looks).catch(() => null)
    for (const session of sessions) session.detach()
    return found
  }

  /** Resolves with the target's context if the frame is in it; rejects otherwise. */
  async #look(
    { targetId, browserContextId }: TargetInfo,
    frame: string,
    sessions: Set<DoorSession>,
  ): Promise<string | null> {
    const tree = await new Promise<FrameTree>((resolve, reject) => {
      this.#link.attach(targetId, (session) => {
        if (session === null) return reject(new Error('the target is gone'))
        sessions.add(session)
        session.ask('Page.getFrameTree', {}, ({ result }: CdpReply) => {
          session.detach()
          if (result === undefined) reject(new Error('the target has no frames'))
          else resolve(result['frameTree'] as FrameTree)
        })
      })
    })
    if (!isIn(tree, frame)) throw new Error('the frame is not in this target')
    return browserContextId ?? null
  }
}

function isIn({ frame: { id }, childFrames = [] }: FrameTree, frame: string): boolean {
  return id === frame || childFrames.some((child) => isIn(child, frame))
}
