/**
 * New targets that wait for a debugger. As soon as one client of a browser attaches to new targets
 * by itself, Chromium lets every new window, service worker and shared worker wait, whosesoever it
 * is, and even if that client asked not to wait. Two things then stand still:
 *
 * - a window with access to its opener, and the opener with it, until `run` is said in any session
 *   with its page;
 * - any other target, until `run` is said in every session that was made with `waitingForDebugger`.
 *
 * The rule: what belongs to one browser session runs when the clients of that session that wait for
 * it have said `run` or are gone, and at once if none of them waits. Only then `run` is said in the
 * sessions that Chromium made for clients of other browser sessions, which never hear of them.
 */
import type { Host } from './host.ts'
import type { Session } from './session.ts'
import type { TargetInfo } from './targets.ts'

export const RUN = 'Runtime.runIfWaitingForDebugger'

/** One target that waits; a window is two: its tab, and the page in it. */
type Waiting = {
  readonly targets: Set<string>
  page: TargetInfo | null
  /** Sessions of its owner's clients that wait, with the session that attached them. */
  readonly holders: Map<string, Session>
  /** Sessions that were made for clients that may not have them. */
  readonly hidden: Map<string, Session>
  /** Its owner has run the page, or the door has. */
  isRun: boolean
  /** The browser was asked for a sign that it has told of all sessions. */
  isAsked: boolean
}

/** What was told in a session that only the door knows of. */
type Running = { readonly parent: Session | null; asked: number }

export class WaitingTargets {
  readonly #host: Host
  /** By the id of each of its targets. */
  readonly #waiting = new Map<string, Waiting>()
  /** By context: the tab that was made last. Its page is told of next. */
  readonly #lastTab = new Map<string | undefined, string>()
  /** By the browser's name of a session that is to be detached when it has run its target. */
  readonly #running = new Map<string, Running>()
  #isOn = false

  constructor(host: Host) {
    this.#host = host
  }

  /** A client attaches to all new targets of the browser: from now on they wait. */
  begin(): void {
    this.#isOn = true
  }

  created(info: TargetInfo): void {
    const { targetId, type, browserContextId, openerId } = info
    if (!this.#isOn) return
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

  #entry(target: string, known = this.#waiting.get(target)): Waiting {
    const waiting = known ?? {
      targets: new Set(),
      page: null,
      holders: new Map<string, Session>(),
      hidden: new Map<string, Session>(),
      isRun: false,
      isAsked: false,
    }
    waiting.targets.add(target)
    this.#waiting.set(target, waiting)
    return waiting
  }

  /** A client of its owner was attached to a new target, and may wait with it. */
  hold(parent: Session, upstream: string, { targetId }: TargetInfo): void {
    // Below a page are frames and workers, which nobody else is attached to.
    const isNew = parent.isBrowser || this.#host.targets.get(parent.target ?? '')?.type === 'tab'
    if (isNew) this.#entry(targetId).holders.set(upstream, parent)
  }

  /** Whether the target would wait for ever if this session ended without a word. */
  isLastHolder({ target, upstream }: Session): boolean {
    const holders = this.#waiting.get(target ?? '')?.holders
    return holders?.size === 1 && holders.has(upstream)
  }

  /** A session was made that its client may not have: it goes once its target has run. */
  hide(parent: Session, upstream: string, info: TargetInfo): void {
    const waiting = this.#entry(info.targetId)
    waiting.hidden.set(upstream, parent)
    this.#askForSign(waiting)
  }

  /** The browser tells of a target in all sessions at once: what it is asked now comes after. */
  #askForSign(waiting: Waiting): void {
    if (waiting.isAsked) return
    waiting.isAsked = true
    this.#host.link.ask('Browser.getVersion', {}, () => {
      waiting.isAsked = false
      this.#decide(waiting)
    })
  }

  /** `run` is said in a client's session. */
  ran(session: Session): void {
    const waiting = this.#waiting.get(session.target ?? '')
    if (waiting === undefined) return
    // A client says `run` for a tab after it has asked to be attached to the page in it.
    session.askForSign(() => {
      waiting.holders.delete(session.upstream)
      if (session.target === waiting.page?.targetId) waiting.isRun = true
      this.#decide(waiting)
    })
  }

  /** A client's session is over, with what it waits for. */
  ended(session: Session): void {
    for (const [upstream, { parent, asked }] of this.#running) {
      if (parent === session) this.#forget(upstream, asked)
    }
    for (const waiting of new Set(this.#waiting.values())) {
      for (const [upstream, parent] of waiting.hidden) {
        if (parent === session) waiting.hidden.delete(upstream)
      }
      const before = waiting.holders.size
      for (const [upstream, parent] of waiting.holders) {
        if (upstream === session.upstream || parent === session) waiting.holders.delete(upstream)
      }
      if (waiting.holders.size < before) this.#decide(waiting)
    }
  }

  /** The browser has ended a session that only the door knows of. */
  detached(upstream: string): void {
    const running = this.#running.get(upstream)
    if (running !== undefined) this.#forget(upstream, running.asked)
    for (const { hidden } of this.#waiting.values()) hidden.delete(upstream)
  }

  #forget(upstream: string, asked: number): void {
    this.#running.delete(upstream)
    this.#host.link.forget(asked)
  }

  #decide(waiting: Waiting): void {
    const { holders, hidden, targets, page, isRun } = waiting
    if (holders.size > 0 || targets.size === 0) return
    for (const [upstream, parent] of hidden) this.#run(upstream, parent)
    hidden.clear()
    if (page !== null && !isRun && this.#needsRun(page)) this.#runPage(page.targetId)
    for (const target of targets) this.#waiting.delete(target)
    targets.clear()
  }

  /** One that has no access to its opener waits in no session but those that are hidden. */
  #needsRun({ targetId, openerId, canAccessOpener }: TargetInfo): boolean {
    const isUnwanted = this.#host.targets.isUnwanted(targetId)
    return openerId !== undefined && canAccessOpener !== false && !isUnwanted
  }

  #run(upstream: string, parent: Session | null): void {
    const { link } = this.#host
    const running: Running = { parent, asked: 0 }
    this.#running.set(upstream, running)
    const read = (): void => {
      this.#running.delete(upstream)
      this.#host.detach(parent?.upstream ?? '', upstream)
    }
    running.asked = link.ask(RUN, {}, read, upstream)
  }

  #runPage(targetId: string): void {
    const attach = { targetId, flatten: true }
    this.#host.link.ask('Target.attachToTarget', attach, ({ result }) => {
      if (result !== undefined) this.#run(String(result['sessionId']), null)
    })
  }
}
