/** One running browser: the connection to it, its targets, and its health. */
import type { BrowserConnection, BrowserLimits } from '../../browsers/index.ts'
import type { Clock } from '../../core/index.ts'
import { Downloads } from './downloads.ts'
import type { CdpLimits } from './limits.ts'
import { BrowserLink } from './link.ts'
import { RUN } from './protocol.ts'
import { Targets, type TargetInfo } from './targets.ts'
import { WaitingTargets } from './waiting-targets.ts'

export type HostFacts = {
  readonly name: string
  /** The browser has one session only, which may do everything that Chrome allows. */
  readonly isOwn: boolean
  readonly startedAt: number
  readonly clock: Clock
}

export class BrowserHost {
  readonly link: BrowserLink
  readonly targets = new Targets()
  readonly downloads: Downloads
  readonly waiting: WaitingTargets
  /** Called for each new target. */
  readonly onTarget = new Set<(info: TargetInfo) => void>()
  readonly browser: BrowserConnection
  readonly facts: HostFacts
  /** Sessions that are being made on it. */
  expected = 0
  /** It was pinged and has not answered yet. */
  isSilent = false
  readonly #timers = new Map<'idle' | 'health', () => void>()

  constructor(browser: BrowserConnection, facts: HostFacts, limits: CdpLimits) {
    const { targets } = this
    this.browser = browser
    this.facts = facts
    this.link = new BrowserLink((...parts) => browser.send(...parts), limits)
    this.downloads = new Downloads(this.link, targets)
    this.waiting = new WaitingTargets(this.link, targets)
    targets.onCreated = (info) => {
      for (const created of this.onTarget) created(info)
      this.waiting.created(info)
    }
    targets.onDestroyed = (target) => this.waiting.destroyed(target)
    targets.onDetached = (session) => this.link.listener(session)?.detached?.()
  }

  get isOwn(): boolean {
    return this.facts.isOwn
  }

  get clock(): Clock {
    return this.facts.clock
  }

  /** Asks the browser to report every target. */
  async greet(): Promise<void> {
    this.link.open(this.targets)
    await this.link.command('Target.setDiscoverTargets', { discover: true, filter: [{}] })
  }

  /** Pings at intervals; a browser that does not answer is stopped. */
  watch(limits: BrowserLimits): void {
    const { healthMs, healthAnswerMs, readBytesPerMs } = limits
    const check = (): void => {
      // It may be busy with a message of 100 MB, which takes ten seconds on a slow machine.
      const readMs = Math.ceil(this.link.uplink.underwayBytes / readBytesPerMs)
      const late = this.clock.after(healthAnswerMs + readMs, () => this.stop())
      this.isSilent = true
      this.link.ask('Browser.getVersion', {}, () => {
        this.isSilent = false
        late()
        this.watch(limits)
      })
    }
    this.setTimer('health', this.clock.after(healthMs, check))
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
    void this.browser.close()
  }

  /** Closes a page that no client knows. */
  closeUnseen(targetId: string): void {
    this.targets.disown(targetId)
    this.link.attach(targetId, (session) => {
      // Closed while it waits for a debugger, its opener would wait without end.
      session?.ask(RUN, {}, () => undefined)
      this.link.ask('Target.closeTarget', { targetId }, () => undefined)
    })
  }
}
