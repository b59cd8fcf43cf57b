/**
 * The browsers of a server, by name: started when they are first needed, looked after while they
 * are used, stopped when nobody has used them for a while, and never more than a bound.
 */
import { limitsFrom, HoldfastError, type Clock } from '../core/index.ts'
import { groupMemory } from '../platform/processes.ts'
import { startChromium } from './chromium.ts'
import type { BrowserConnection, ConnectionEvents } from './connection.ts'
import { connectEndpoint } from './endpoint.ts'
import { BROWSER_LIMITS, type BrowserLimits } from './limits.ts'
import { RepairedBrowser } from './repair.ts'

/** What the operator named: a program to start, or an address to connect to. */
export type BrowserSpec =
  | {
      readonly program: string
      readonly args?: readonly string[]
      /** Every session gets one of its own. */
      readonly own?: boolean
    }
  | {
      readonly address: string
      /** It has one session for a page, as Lightpanda does: see `repair.ts`. */
      readonly repair?: boolean
    }

export type PoolOptions = {
  readonly browsers: Readonly<Record<string, BrowserSpec>>
  readonly clock: Clock
  readonly limits?: Partial<BrowserLimits>
}

export class BrowserPool {
  readonly limits: BrowserLimits
  readonly clock: Clock
  readonly #specs: Readonly<Record<string, BrowserSpec>>
  readonly #running = new Set<Browser>()
  /** Those too that have ended and of which something is left. */
  readonly #all = new Set<Browser>()
  #isClosed = false

  constructor({ browsers, clock, limits = {} }: PoolOptions) {
    this.#specs = browsers
    this.clock = clock
    this.limits = limitsFrom(BROWSER_LIMITS, limits, 'browserLimits')
  }

  get names(): readonly string[] {
    return Object.keys(this.#specs)
  }

  /** How many run now. */
  get size(): number {
    return this.#running.size
  }

  spec(name: string): BrowserSpec {
    const spec = Object.hasOwn(this.#specs, name) ? this.#specs[name] : undefined
    if (spec !== undefined) return spec
    throw new HoldfastError('browser_unknown', `there is no browser of this name`)
  }

  /** Starts one; whoever calls this owns it until it is stopped or ends by itself. */
  async start(name: string, events: ConnectionEvents): Promise<Browser> {
    const spec = this.spec(name)
    if (this.#isClosed) throw new HoldfastError('draining', 'the server is about to stop')
    if (this.#running.size >= this.limits.runningMax) {
      throw new HoldfastError('too_many', `${this.limits.runningMax} browsers run already`)
    }
    const browser = new Browser(name)
    this.#running.add(browser)
    const closed = (reason: string): void => {
      this.#running.delete(browser)
      void browser.stop().finally(() => this.#all.delete(browser))
      events.closed(reason)
    }
    try {
      browser.connection = await connect(spec, { ...events, closed }, this.limits)
    } catch (error) {
      this.#running.delete(browser)
      throw error
    }
    this.#all.add(browser)
    if (!this.#isClosed) return browser
    await browser.stop()
    throw new HoldfastError('draining', 'the server is about to stop')
  }

  /** Resolves when nothing is left of any of them. */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#all].map((browser) => browser.stop()))
  }
}

function connect(
  spec: BrowserSpec,
  events: ConnectionEvents,
  limits: BrowserLimits,
): Promise<BrowserConnection> {
  if (!('address' in spec)) return startChromium(spec, events, limits)
  const { address, repair = false } = spec
  if (!repair) return connectEndpoint(address, events, limits)
  return RepairedBrowser.open((each) => connectEndpoint(address, each, limits), events)
}

/** One that runs. */
export class Browser {
  readonly name: string
  connection: BrowserConnection | null = null

  constructor(name: string) {
    this.name = name
  }

  /** Null: somebody else runs it. */
  get pid(): number | null {
    return this.connection?.pid ?? null
  }

  /** What all of its processes take; null where that is not known. */
  async memoryBytes(): Promise<number | null> {
    return this.pid === null ? null : groupMemory(this.pid)
  }

  send(...parts: readonly (string | Uint8Array)[]): void {
    this.connection?.send(...parts)
  }

  async stop(): Promise<void> {
    await this.connection?.close()
  }
}
