/** The browsers that an operator has named: starts them, up to a limit, and stops all of them. */
import { limitsFrom, HoldfastError, type Clock } from '../core/index.ts'
import { groupMemory } from '../platform/processes.ts'
import { startChromium, type ChromiumOptions } from './chromium.ts'
import type { BrowserConnection, ConnectionEvents } from './connection.ts'
import { connectEndpoint } from './endpoint.ts'
import { BROWSER_LIMITS, type BrowserLimits } from './limits.ts'
import { RepairedBrowser, type OpenConnection } from './repair.ts'

/** A program to start, or an address to connect to. */
export type BrowserSpec =
  | (ChromiumOptions & {
      /** Every session has a browser of its own. */
      readonly own?: boolean
      readonly repair?: undefined
    })
  | {
      readonly address: string
      /** It has one session per page, as Lightpanda does: see `repair.ts`. */
      readonly repair?: boolean
      readonly own?: undefined
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
  readonly #running = new Set<symbol>()
  /** Those too that have ended and are being cleaned up. */
  readonly #all = new Set<BrowserConnection>()
  #isClosed = false

  constructor({ browsers, clock, limits = {} }: PoolOptions) {
    this.#specs = browsers
    this.clock = clock
    this.limits = limitsFrom(BROWSER_LIMITS, limits, 'browserLimits')
  }

  get names(): readonly string[] {
    return Object.keys(this.#specs)
  }

  get size(): number {
    return this.#running.size
  }

  spec(name: string): BrowserSpec {
    const spec = Object.hasOwn(this.#specs, name) ? this.#specs[name] : undefined
    if (spec !== undefined) return spec
    throw new HoldfastError('browser_unknown', `there is no browser of this name`)
  }

  /** Starts a browser, or connects to one. The caller owns the connection until it is closed. */
  async start(name: string, events: ConnectionEvents): Promise<BrowserConnection> {
    const spec = this.spec(name)
    this.#assertOpen()
    if (this.#running.size >= this.limits.runningMax) {
      throw new HoldfastError('too_many', `${this.limits.runningMax} browsers run already`)
    }
    const running = Symbol(name)
    this.#running.add(running)
    let connection: BrowserConnection | null = null
    const closed = (reason: string): void => {
      this.#running.delete(running)
      const ended = connection
      void ended?.close().finally(() => this.#all.delete(ended))
      events.closed(reason)
    }
    try {
      connection = await this.#connect(spec, { ...events, closed })
      this.#all.add(connection)
      this.#assertOpen()
      return connection
    } catch (error) {
      await connection?.close()
      this.#running.delete(running)
      throw error
    }
  }

  #connect(spec: BrowserSpec, events: ConnectionEvents): Promise<BrowserConnection> {
    if (!('address' in spec)) return startChromium(spec, events, this.limits)
    const open: OpenConnection = (each) => connectEndpoint(spec.address, each, this.limits)
    return spec.repair === true ? RepairedBrowser.open(open, events) : open(events)
  }

  #assertOpen(): void {
    if (this.#isClosed) throw new HoldfastError('draining', 'the server is about to stop')
  }

  /** Resolves when all of them are cleaned up. */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#all].map((connection) => connection.close()))
  }
}

/** The memory of a browser's processes, in bytes; null where that is not known. */
export async function memoryOf({ pid }: BrowserConnection): Promise<number | null> {
  return pid === undefined ? null : groupMemory(pid)
}
