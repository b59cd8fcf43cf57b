/**
 * The running browsers of a server. A browser starts when it is first needed, and stops when it has
 * had no session for a while.
 */
import type { BrowserPool } from '../../browsers/index.ts'
import type { Authority } from '../../core/index.ts'
import { BrowserHost } from './host.ts'
import type { CdpLimits } from './limits.ts'
import type { Params } from './protocol.ts'

export type BrowserHostsOptions = {
  readonly pool: BrowserPool
  readonly limits: CdpLimits
  readonly diagnose: Authority['diagnose']
  /** Whether a browser has sessions, or is about to have one. */
  readonly isUsed: (host: BrowserHost) => boolean
  /** A browser has ended. */
  readonly onEnd: (host: BrowserHost, reason: string) => void
}

export class BrowserHosts {
  readonly #options: BrowserHostsOptions
  readonly #versions = new Map<string, Params>()
  /** By name, and session if every session has its own; those too that are starting. */
  readonly #hosts = new Map<string, Promise<BrowserHost>>()
  readonly #running = new Map<string, BrowserHost>()

  constructor(options: BrowserHostsOptions) {
    this.#options = options
  }

  /** Whether every session has a browser of its own. */
  isOwn(name: string): boolean {
    const spec = this.#options.pool.spec(name)
    return 'own' in spec && spec.own === true
  }

  get running(): readonly BrowserHost[] {
    return [...this.#running.values()]
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
    const place = isOwn ? `${name} ${session}` : name
    const known = this.#hosts.get(place)
    if (known !== undefined) return known
    const starting = this.#start(place, name, isOwn)
    this.#hosts.set(place, starting)
    // Those that wait for it get the error; the next caller starts another.
    starting.catch(() => {
      if (this.#hosts.get(place) === starting) this.#hosts.delete(place)
    })
    return starting
  }

  async #start(place: string, name: string, isOwn: boolean): Promise<BrowserHost> {
    const { pool, limits, diagnose } = this.#options
    const { clock } = pool
    let host: BrowserHost | null = null
    const browser = await pool.start(name, {
      message: (message) => host?.link.receive(message),
      tooLarge: (head, tail) => host?.link.lost(head, tail),
      closed: (reason) => this.#closed(place, host, reason),
    })
    host = new BrowserHost(browser, { name, isOwn, startedAt: clock.now(), clock }, limits)
    const started = host
    const late = clock.after(pool.limits.startMs, () => started.stop())
    try {
      await started.greet()
    } catch (error) {
      started.stop()
      throw error
    } finally {
      late()
    }
    this.#running.set(place, started)
    diagnose('browser_started', 'a browser was started', { name, isOwn })
    started.watch(pool.limits)
    this.stopWhenIdle(started)
    return started
  }

  /** Stops a browser after a while, unless a session uses it by then. */
  stopWhenIdle(host: BrowserHost): void {
    const { pool, isUsed } = this.#options
    const stop = (): void => {
      if (isUsed(host) || host.link.closed !== null) return
      for (const [place, running] of this.#running) if (running === host) this.#forget(place, host)
      host.stop()
    }
    host.setTimer('idle', pool.clock.after(host.isOwn ? 0 : pool.limits.idleMs, stop))
  }

  #forget(place: string, host: BrowserHost): void {
    if (this.#running.get(place) !== host) return
    this.#running.delete(place)
    this.#hosts.delete(place)
  }

  #closed(place: string, host: BrowserHost | null, reason: string): void {
    const isExpected = host !== null && this.#running.get(place) !== host
    const facts = { reason: isExpected ? 'stopped' : 'gone', name: place.split(' ')[0] ?? '' }
    this.#options.diagnose('browser_ended', 'a browser has ended', { ...facts, error: reason })
    if (host === null) return
    this.#forget(place, host)
    host.close(reason)
    this.#options.onEnd(host, reason)
  }
}
