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
import type { BrowserLink } from './link.ts'
import { RUN } from './protocol.ts'
import type { TargetInfo, Targets } from './targets.ts'

/** A session with a target that waits. */
export type WaitingSession = {
  readonly target: string | null
  runAndDetach(): void
}

/** One target that waits; a window is two targets: its tab, and the page in it. */
type WaitingTarget = {
  readonly targets: Set<string>
  page: TargetInfo | null
  /** Sessions of clients that may use the target, and have not sent `RUN`. */
  readonly holders: Set<WaitingSession>
  /** Sessions of clients that may not use it, and do not know of them. */
  readonly hidden: Set<WaitingSession>
  /** `RUN` was sent in a session with the page. */
  isRun: boolean
  /** The browser was asked for a sign that it has reported all sessions. */
  isAsked: boolean
}

export class WaitingTargets {
  readonly #link: BrowserLink
  readonly #targets: Targets
  /** By the id of each of its targets. */
  readonly #waiting = new Map<string, WaitingTarget>()
  /** The newest tab of each browser context: the browser reports its page next. */
  readonly #lastTab = new Map<string | undefined, string>()
  #isOn = false

  constructor(link: BrowserLink, targets: Targets) {
    this.#link = link
    this.#targets = targets
  }

  /** A client uses auto-attach on the browser: from now on new targets wait. */
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

  #entry(target: string, known = this.#waiting.get(target)): WaitingTarget {
    const waiting = known ?? {
      targets: new Set(),
      page: null,
      holders: new Set(),
      hidden: new Set(),
      isRun: false,
      isAsked: false,
    }
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
    this.#link.ask('Browser.getVersion', {}, () => {
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
    if (page !== null && !isRun && this.#needsRun(page)) this.#runPage(page.targetId)
    for (const target of targets) this.#waiting.delete(target)
    targets.clear()
  }

  /** A page without access to its opener waits only for the hidden sessions. */
  #needsRun({ targetId, openerId, canAccessOpener }: TargetInfo): boolean {
    const isUnwanted = this.#targets.isUnwanted(targetId)
    return openerId !== undefined && canAccessOpener !== false && !isUnwanted
  }

  #runPage(targetId: string): void {
    this.#link.attach(targetId, (session) => session?.ask(RUN, {}, () => session.detach()))
  }
}
