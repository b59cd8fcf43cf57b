/** The targets of one browser: pages, frames, workers, their downloads, and those that wait. */
import { dropOldest } from './limits.ts'
import { DoorSession, type BrowserLink, type SessionListener } from './link.ts'
import { RUN, type CdpEvent, type Params } from './protocol.ts'

export type TargetInfo = {
  readonly targetId: string
  readonly type: string
  readonly title: string
  readonly url: string
  readonly browserContextId?: string
  readonly parentId?: string
  /** The page that opened it, with or without access to it. */
  readonly openerId?: string
  readonly canAccessOpener?: boolean
}

export function targetInfoOf(value: unknown): TargetInfo | null {
  if (typeof value !== 'object' || value === null) return null
  const { targetId, type } = value as Partial<TargetInfo>
  return typeof targetId === 'string' && typeof type === 'string' ? (value as TargetInfo) : null
}

/** Schemes of the browser's own pages, which have access to every page of the browser. */
const INTERNAL_URL = /^(view-source:)*(chrome|devtools|about:(?!(blank|srcdoc)($|[?#])))/i

/** Browsers drop spaces and control characters before and inside a scheme, so this does too. */
export function isInternalUrl(url: unknown): boolean {
  return typeof url === 'string' && INTERNAL_URL.test(url.replaceAll(/[\0-\x20]/g, ''))
}

/** Listens on the connection itself, where the browser reports every target. */
export class Targets implements SessionListener {
  readonly upstream = ''
  readonly id = null
  readonly unanswered = new Set<number>()
  readonly #infos = new Map<string, TargetInfo>()
  /** Targets that are being closed because there are too many: clients never see them. */
  readonly unwanted = new Set<string>()
  /** The id of the browser as a target, by the id of the session with it. */
  readonly browsers = new Map<unknown, string>()
  /** Told of each new target. */
  readonly tenants = new Set<{ targetCreated(info: TargetInfo): void }>()
  readonly waiting = new WaitingTargets(this)
  readonly downloads = new Downloads(this)
  readonly link: BrowserLink

  constructor(link: BrowserLink) {
    this.link = link
  }

  get(target: string): TargetInfo | undefined {
    return this.#infos.get(target)
  }

  /** In the order in which they were created. */
  all(): readonly TargetInfo[] {
    return [...this.#infos.values()]
  }

  get pages(): number {
    return this.all().filter(({ type }) => type === 'page').length
  }

  learn(info: TargetInfo): void {
    if (!this.unwanted.has(info.targetId)) this.#infos.set(info.targetId, info)
  }

  /** The target will be closed, and no client gets an event. */
  disown(target: string): void {
    this.#infos.delete(target)
    this.unwanted.add(target)
  }

  targetEvent({ method, params }: CdpEvent): void {
    const info = targetInfoOf(params['targetInfo'])
    const { sessionId } = params
    if (method === 'Target.targetDestroyed') {
      const target = String(params['targetId'])
      this.#infos.delete(target)
      this.unwanted.delete(target)
      this.waiting.destroyed(target)
    }
    if (method === 'Target.detachedFromTarget') {
      this.browsers.delete(sessionId)
      this.link.listener(String(sessionId))?.detached?.()
    }
    if (info === null) return
    if (method === 'Target.attachedToTarget' && info.type === 'browser') {
      this.browsers.set(sessionId, info.targetId)
    }
    if (method === 'Target.targetInfoChanged') this.learn(info)
    if (method !== 'Target.targetCreated') return
    this.learn(info)
    for (const tenant of this.tenants) tenant.targetCreated(info)
    this.waiting.created(info)
  }
}

/** Downloads that are remembered: the newest. */
const DOWNLOADS_MAX = 1_000

/** Targets that have frames. */
const FRAMED: ReadonlySet<string> = new Set(['page', 'iframe', 'webview'])

type FrameTree = { readonly frame: { readonly id: string }; readonly childFrames?: FrameTree[] }
type FoundContext = string | null | Promise<string | null>

/**
 * Finds the browser context of a download. The browser reports every download to every client that
 * enables these events, with the frame that started it. The main frame of a page has the page's id;
 * other frames are searched for in the pages. Until the frame is found, the events wait.
 */
class Downloads {
  readonly #targets: Targets
  /** By the browser's id of the download. */
  readonly #contexts = new Map<string, FoundContext>()

  constructor(targets: Targets) {
    this.#targets = targets
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
    dropOldest(this.#contexts, DOWNLOADS_MAX)
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
  async #look(info: TargetInfo, frame: string, sessions: Set<DoorSession>) {
    const { link } = this.#targets
    const session = new DoorSession(link, await link.attachTo(info.targetId))
    sessions.add(session)
    const tree = link.command('Page.getFrameTree', {}, session)
    const { frameTree } = await tree.finally(() => session.detach())
    if (isIn(frameTree as FrameTree, frame)) return info.browserContextId ?? null
    throw new Error('the frame is not in this target')
  }
}

function isIn({ frame: { id }, childFrames = [] }: FrameTree, frame: string): boolean {
  return id === frame || childFrames.some((child) => isIn(child, frame))
}

/** A session with a target that waits. */
type WaitingSession = { readonly target: string | null; runAndDetach(): void }

/** One target that waits; a window is two targets: its tab, and the page in it. */
class WaitingTarget {
  readonly targets = new Set<string>()
  page: TargetInfo | null = null
  /** Sessions of clients that may use the target, and have not sent `RUN`. */
  readonly holders = new Set<WaitingSession>()
  /** Sessions of clients that may not use it, and do not know of them. */
  readonly hidden = new Set<WaitingSession>()
  /** `RUN` was sent in a session with the page. */
  isRun = false
  /** The browser was asked for a sign that it has reported all sessions. */
  isAsked = false
}

/**
 * New targets that wait for a debugger. As soon as one client of a browser uses auto-attach,
 * Chromium makes every new window, service worker and shared worker wait, whichever client it
 * belongs to, and even if that client asked not to wait. Two things then wait:
 *
 * - a window with access to its opener, and the opener with it, until `RUN` is sent in any session
 *   with its page;
 * - any other target, until `RUN` is sent in every session attached with `waitingForDebugger`.
 *
 * The rule: a target of a browser session runs when those clients of that session that wait for it
 * have sent `RUN` or are gone, and at once if none of them waits. Only then is `RUN` sent in the
 * hidden sessions, which Chromium made for clients of other browser sessions.
 */
class WaitingTargets {
  readonly #targets: Targets
  /** By the id of each of its targets. */
  readonly #waiting = new Map<string, WaitingTarget>()
  /** The newest tab of each browser context: the browser reports its page next. */
  readonly #lastTab = new Map<string | undefined, string>()
  /** A client uses auto-attach on the browser: from then on new targets wait. */
  isOn = false

  constructor(targets: Targets) {
    this.#targets = targets
  }

  created(info: TargetInfo): void {
    const { targetId, type, browserContextId, openerId } = info
    if (!this.isOn) return
    if (type === 'tab') this.#lastTab.set(browserContextId, targetId)
    if (type !== 'page') return
    const tab = this.#lastTab.get(browserContextId)
    this.#lastTab.delete(browserContextId)
    const known = tab === undefined ? undefined : this.#waiting.get(tab)
    if (known === undefined && openerId === undefined) return
    const waiting = this.#entry(targetId, known)
    waiting.page = info
    if (tab !== undefined) this.#entry(tab, waiting)
    this.#askForSign(waiting)
  }

  destroyed(target: string): void {
    this.#waiting.get(target)?.targets.delete(target)
    this.#waiting.delete(target)
  }

  #entry(target: string, known = this.#waiting.get(target)): WaitingTarget {
    const waiting = known ?? new WaitingTarget()
    waiting.targets.add(target)
    this.#waiting.set(target, waiting)
    return waiting
  }

  #of({ target }: WaitingSession): WaitingTarget | undefined {
    return this.#waiting.get(target ?? '')
  }

  /** A client was attached, by the session with `parent`, to a target that it may run. */
  hold(session: WaitingSession, parent: string | null): void {
    // No other client is attached to frames and workers below a page.
    const isNew = parent === null || this.#targets.get(parent)?.type === 'tab'
    if (isNew && session.target !== null) this.#entry(session.target).holders.add(session)
  }

  /** A hidden session was attached: it is detached when its target has run. */
  hide(session: WaitingSession): void {
    const waiting = this.#entry(session.target ?? '')
    waiting.hidden.add(session)
    this.#askForSign(waiting)
  }

  isWaiting(session: WaitingSession): boolean {
    return this.#of(session) !== undefined
  }

  /** Whether the target would never run if this session ended without `RUN`. */
  isLastHolder(session: WaitingSession): boolean {
    const holders = this.#of(session)?.holders
    return holders?.size === 1 && holders.has(session)
  }

  /** The browser reports a target in all sessions at once: the reply to this comes after that. */
  #askForSign(waiting: WaitingTarget): void {
    if (waiting.isAsked) return
    waiting.isAsked = true
    this.#targets.link.ask('Browser.getVersion', {}, () => {
      waiting.isAsked = false
      this.#decide(waiting)
    })
  }

  /** The browser has processed a `RUN` that was sent in this session. */
  ran(session: WaitingSession): void {
    const waiting = this.#of(session)
    if (waiting === undefined) return
    waiting.holders.delete(session)
    if (session.target === waiting.page?.targetId) waiting.isRun = true
    this.#decide(waiting)
  }

  ended(session: WaitingSession): void {
    const waiting = this.#of(session)
    waiting?.hidden.delete(session)
    if (waiting?.holders.delete(session) === true) this.#decide(waiting)
  }

  #decide(waiting: WaitingTarget): void {
    const { holders, hidden, targets, page, isRun } = waiting
    if (holders.size > 0 || targets.size === 0) return
    for (const session of hidden) session.runAndDetach()
    hidden.clear()
    if (page !== null && !isRun && this.#needsRun(page)) {
      this.#targets.link.attach(page.targetId, (session) =>
        session?.ask(RUN, {}, () => session.detach()),
      )
    }
    for (const target of targets) this.#waiting.delete(target)
    targets.clear()
  }

  /** A page without access to its opener waits only for the hidden sessions. */
  #needsRun({ targetId, openerId, canAccessOpener }: TargetInfo): boolean {
    const isUnwanted = this.#targets.unwanted.has(targetId)
    return openerId !== undefined && canAccessOpener !== false && !isUnwanted
  }
}
