/** One browser that runs, as the door sees it: the line to it, its targets, and its tenants. */
import type { Browser, BrowserLimits } from '../../browsers/index.ts'
import type { Clock } from '../../core/index.ts'
import { Downloads } from './downloads.ts'
import type { CdpLimits } from './limits.ts'
import { Link } from './link.ts'
import { Targets } from './targets.ts'
import type { Tenant } from './tenant.ts'
import { RUN, WaitingTargets } from './waiting-targets.ts'

export class Host {
  readonly link: Link
  readonly targets = new Targets()
  readonly tenants = new Set<Tenant>()
  readonly downloads = new Downloads(this)
  readonly waiting = new WaitingTargets(this)
  /** Tenants that are about to be. */
  expected = 0
  /** Told when its last tenant has left. */
  onIdle: () => void = () => undefined

  readonly browser: Browser
  readonly name: string
  /** It has one tenant only, which may do what concerns all of the browser. */
  readonly isOwn: boolean
  readonly startedAt: number
  readonly clock: Clock
  /** It was asked for a sign of life and has not given it yet. */
  isSilent = false

  readonly #timers = new Map<'idle' | 'health', () => void>()

  constructor(
    browser: Browser,
    facts: Pick<Host, 'name' | 'isOwn' | 'startedAt' | 'clock'>,
    limits: CdpLimits,
  ) {
    this.browser = browser
    this.name = facts.name
    this.isOwn = facts.isOwn
    this.startedAt = facts.startedAt
    this.clock = facts.clock
    this.link = new Link(browser, limits)
    this.targets.onCreated = (info) => {
      for (const tenant of this.tenants) tenant.targetCreated(info)
      this.waiting.created(info)
    }
    this.targets.onDestroyed = (target) => this.waiting.destroyed(target)
    this.targets.onDetached = (session) => {
      this.waiting.detached(session)
      this.link.correspondent(session)?.detached()
    }
  }

  /** Clients that it has, or is about to have. */
  get places(): number {
    return [...this.tenants].reduce((sum, tenant) => sum + tenant.placesFor(false), 0)
  }

  /** Asks the browser to tell of every target. */
  async greet(): Promise<void> {
    this.link.open(this.targets)
    await this.link.command('Target.setDiscoverTargets', { discover: true, filter: [{}] })
  }

  /** Asks for a sign of life now and then; a browser that gives none is stopped. */
  watch(limits: BrowserLimits): void {
    const { clock } = this
    const { healthMs, healthAnswerMs, readBytesPerMs } = limits
    const look = (): void => {
      // It may be busy with a message of 100 MB: that takes ten seconds where machines are slow.
      const readMs = Math.ceil(this.link.underwayBytes / readBytesPerMs)
      const late = clock.after(healthAnswerMs + readMs, () => this.stop())
      this.isSilent = true
      this.link.ask('Browser.getVersion', {}, () => {
        this.isSilent = false
        late()
        this.watch(limits)
      })
    }
    this.setTimer('health', clock.after(healthMs, look))
  }

  /** One of each kind at a time, and none once the browser is gone. */
  setTimer(kind: 'idle' | 'health', cancel: () => void): void {
    this.#timers.get(kind)?.()
    if (this.link.closed === null) this.#timers.set(kind, cancel)
    else cancel()
  }

  /** The browser is gone. */
  close(reason: string): void {
    for (const cancel of this.#timers.values()) cancel()
    this.#timers.clear()
    this.link.close(reason)
  }

  stop(): void {
    void this.browser.stop()
  }

  /** Ends a session that the browser made and nobody here wants. Others' in that target stay. */
  detach(parent: string, sessionId: string): void {
    this.link.tell('Target.detachFromTarget', { sessionId }, parent)
  }

  /** Closes a page that no client is to hear of. */
  closeUnseen(targetId: string): void {
    const { link } = this
    this.targets.disown(targetId)
    link.ask('Target.attachToTarget', { targetId, flatten: true }, ({ result }) => {
      // Closed while it waits for somebody's debugger, it would leave its opener waiting for ever.
      const session = String(result?.['sessionId'])
      const asked = result === undefined ? 0 : link.ask(RUN, {}, () => undefined, session)
      // Once it is closed, nothing that was asked of it is answered.
      link.ask('Target.closeTarget', { targetId }, () => link.forget(asked))
    })
  }
}
