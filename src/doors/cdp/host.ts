/**
 * The running browsers of a server: the connection to each, its targets, and its health. A browser
 * starts when it is first needed, and stops when it has had no session for a while.
 */
import type { BrowserConnection, BrowserLimits, BrowserPool } from '../../browsers/index.ts'
import type { Authority, Clock } from '../../core/index.ts'
import { targetInfoOf, Targets } from './targets.ts'
import type { CdpLimits } from './limits.ts'
import { BrowserLink } from './link.ts'
import { RUN, type Params } from './protocol.ts'

/** How long a browser may take to say the titles of its pages. */
const TITLES_MS = 1_000

export type HostFacts = {
  readonly name: string
  /** The browser has one session only, which may do everything that Chrome allows. */
  readonly isOwn: boolean
  readonly startedAt: number
  readonly clock: Clock
}

export class BrowserHost {
  readonly link: BrowserLink
  readonly targets: Targets
  readonly browser: BrowserConnection
  readonly facts: HostFacts
  readonly isOwn: boolean
  /** The folder for downloads if its pages may not reach everything; null: they may. */
  readonly downloads: string | null
  readonly clock: Clock
  /** How many sessions it has, with those that are being made. */
  sessions = 0
  /** It was pinged and has not answered yet. */
  isSilent = false
  readonly #timers = new Map<'idle' | 'health', () => void>()

  constructor(browser: BrowserConnection, facts: HostFacts, limits: CdpLimits) {
    this.browser = browser
    this.facts = facts
    this.isOwn = facts.isOwn
    this.downloads = browser.downloads ?? null
    this.clock = facts.clock
    this.link = new BrowserLink((...parts) => browser.send(...parts), limits)
    this.targets = new Targets(this.link)
  }

  /** Asks the browser to report every target. */
  async greet(): Promise<void> {
    this.link.open(this.targets)
    await this.link.command('Target.setDiscoverTargets', { discover: true, filter: [{}] })
  }

  /** Browsers tell of a new title only when they are asked. One that is busy is not waited for. */
  readTitles(): Promise<void> {
    return new Promise((resolve) => {
      const cancelTimer = this.clock.after(TITLES_MS, resolve)
      this.link.ask('Target.getTargets', { filter: [{}] }, ({ result }) => {
        cancelTimer()
        const infos = result?.['targetInfos']
        for (const value of Array.isArray(infos) ? infos : []) {
          const info = targetInfoOf(value)
          if (info !== null && this.targets.get(info.targetId) !== undefined) {
            this.targets.learn(info)
          }
        }
        resolve()
      })
    })
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
      session?.ask(RUN, {})
      this.link.ask('Target.closeTarget', { targetId })
    })
  }
}

type BrowserHostsOptions = {
  readonly pool: BrowserPool
  readonly limits: CdpLimits
  readonly diagnose: Authority['diagnose']
  readonly onEnd: (host: BrowserHost, reason: string) => void
}

export class BrowserHosts {
  readonly #options: BrowserHostsOptions
  readonly #versions = new Map<string, Params>()
  /** By name, and session if every session has its own; those too that are starting. */
  readonly #hosts = new Map<string, Promise<BrowserHost>>()
  /** Those that run, with their key in the map above. */
  readonly #running = new Map<BrowserHost, string>()

  constructor(options: BrowserHostsOptions) {
    this.#options = options
  }

  /** Whether every session has a browser of its own. */
  isOwn(name: string): boolean {
    return this.#options.pool.spec(name).own === true
  }

  get running(): readonly BrowserHost[] {
    return [...this.#running.keys()]
  }

  /** Resolves when no browser is starting any more. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#hosts.values())
  }

  /** The result of the browser's `Browser.getVersion`, which is asked once. */
  async version(name: string): Promise<Params> {
    const known = this.#versions.get(name)
    if (known !== undefined) return known
    const host = await this.host(name, null)
    const version = await host.link.command('Browser.getVersion')
    this.#versions.set(name, version)
    // No session uses this one.
    if (this.isOwn(name)) host.stop()
    return version
  }

  /** The browser of a session, which is started if it does not run. */
  host(name: string, session: string | null): Promise<BrowserHost> {
    const isOwn = this.isOwn(name) && session !== null
    // One that was started without a rule keeps its sessions, and gets no more once there is one.
    const rule = this.#options.pool.isGuarded(name) ? 'guarded' : 'free'
    const key = `${name} ${rule}${isOwn ? ` ${session}` : ''}`
    return madeOnce(this.#hosts, key, () => this.#start(key, name, isOwn))
  }

  async #start(key: string, name: string, isOwn: boolean): Promise<BrowserHost> {
    const { pool, limits, diagnose } = this.#options
    const { clock } = pool
    let host: BrowserHost | null = null
    const browser = await pool.start(name, {
      message: (message) => host?.link.receive(message),
      tooLarge: (head, tail) => host?.link.lost(head, tail),
      closed: (reason) => this.#closed(name, host, reason),
    })
    const started = new BrowserHost(browser, { name, isOwn, startedAt: clock.now(), clock }, limits)
    host = started
    const late = clock.after(pool.limits.startMs, () => started.stop())
    try {
      await started.greet()
    } catch (error) {
      started.stop()
      throw error
    } finally {
      late()
    }
    this.#running.set(started, key)
    diagnose('browser_started', 'a browser was started', { name, isOwn })
    started.watch(pool.limits)
    this.stopWhenIdle(started)
    return started
  }

  /** Stops a browser without sessions after a while, unless a session uses it by then. */
  stopWhenIdle(host: BrowserHost): void {
    const { pool } = this.#options
    if (host.sessions > 0) return
    const stop = (): void => {
      if (host.sessions > 0 || host.link.closed !== null) return
      this.#forget(host)
      host.stop()
    }
    host.setTimer('idle', pool.clock.after(host.isOwn ? 0 : pool.limits.idleMs, stop))
  }

  /** Whether it was running. */
  #forget(host: BrowserHost): boolean {
    this.#hosts.delete(this.#running.get(host) ?? '')
    return this.#running.delete(host)
  }

  #closed(name: string, host: BrowserHost | null, error: string): void {
    const isStopped = host !== null && !this.#forget(host)
    const facts = { reason: isStopped ? 'stopped' : 'gone', name, error }
    this.#options.diagnose('browser_ended', 'a browser has ended', facts)
    host?.close(error)
    if (host !== null) this.#options.onEnd(host, error)
  }
}

/** The value of a key, made once for all that need it at the same time; forgotten if that fails. */
export function madeOnce<Value>(
  values: Map<string, Promise<Value>>,
  key: string,
  make: () => Promise<Value>,
): Promise<Value> {
  const known = values.get(key)
  if (known !== undefined) return known
  const made = make()
  values.set(key, made)
  // Those that wait for it get the error; the next caller makes another.
  made.catch(() => {
    if (values.get(key) === made) values.delete(key)
  })
  return made
}
