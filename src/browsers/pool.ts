/** The browsers that an operator has named: starts them, up to a limit, and stops all of them. */
import { HoldfastError, invalid, limitsFrom, type Clock, type Diagnose } from '../core/index.ts'
import { groupMemory } from '../platform/processes.ts'
import { startChromium, type ChromiumOptions } from './chromium.ts'
import type { BrowserConnection, ConnectionEvents } from './connection.ts'
import { EgressRule } from '../platform/egress.ts'
import type { ResolveHost } from '../platform/resolver.ts'
import type { EgressOptions } from './egress-proxy.ts'
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
  /** Whether pages may reach public addresses only, where a browser's `egress` does not say. */
  readonly severalPrincipals?: () => boolean
  /** How the names are resolved that such pages ask for; by default by the name servers. */
  readonly resolveHost?: ResolveHost | undefined
  readonly diagnose?: Diagnose
}

export class BrowserPool {
  readonly limits: BrowserLimits
  readonly clock: Clock
  #specs: Readonly<Record<string, BrowserSpec>>
  /** Of the browsers that run: what they may reach, which a new configuration can change. */
  readonly #guards = new Map<string, { rule: EgressRule }>()
  readonly #options: PoolOptions
  readonly #running = new Set<symbol>()
  /** Those too that have ended and are being cleaned up. */
  readonly #all = new Set<BrowserConnection>()
  #isClosed = false

  constructor(options: PoolOptions) {
    const { browsers, clock, limits = {} } = options
    this.#options = options
    this.#specs = browsers
    this.clock = clock
    this.limits = limitsFrom(BROWSER_LIMITS, limits, 'browserLimits')
    // A rule that cannot be used is reported at the start.
    for (const name of this.names) this.#ruleOf(name, this.spec(name))
  }

  /**
   * Checks other `egress` of the same browsers; the returned function puts it in force, for new
   * connections of browsers that run too. Between `any` and a rule a browser has to start again.
   */
  prepare(browsers: Readonly<Record<string, BrowserSpec>>): () => void {
    const rules = this.names.map((name) => {
      return [name, this.#ruleOf(name, browsers[name] ?? this.spec(name))] as const
    })
    return () => {
      this.#specs = { ...this.#specs, ...browsers }
      for (const [name, rule] of rules) {
        const guard = this.#guards.get(name)
        if (rule !== null && guard !== undefined) guard.rule = rule
      }
    }
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
    this.spec(name)
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
      connection = await this.#connect(name, { ...events, closed })
      this.#all.add(connection)
      this.#assertOpen()
      return connection
    } catch (error) {
      await connection?.close()
      this.#running.delete(running)
      throw error
    }
  }

  /** Whether a browser of this name, started now, would reach allowed addresses only. */
  isGuarded(name: string): boolean {
    return this.#allowed(this.spec(name)) !== null
  }

  /** What its pages may reach besides public addresses; null: everything. */
  #allowed(spec: BrowserSpec): readonly string[] | null {
    if ('address' in spec) return null
    const isDefault = this.#options.severalPrincipals?.() === true ? [] : 'any'
    const { egress = isDefault } = spec
    return egress === 'any' ? null : egress
  }

  /** Null: no rule. Throws `invalid_field` if it is wrong, or if the browser's flags undo it. */
  #ruleOf(name: string, spec: BrowserSpec): EgressRule | null {
    const allowed = this.#allowed(spec)
    if (allowed === null || 'address' in spec) return null
    const field = `browsers.${name}.egress`
    const flag = spec.args?.find((arg) => WAYS_AROUND.test(arg))
    if (flag !== undefined) throw invalid(field, `must be any if the browser has the flag ${flag}`)
    return EgressRule.read(allowed, field)
  }

  #egress(name: string): EgressOptions | null {
    const rule = this.#ruleOf(name, this.spec(name))
    if (rule === null) return null
    const { resolveHost, diagnose } = this.#options
    const guard = this.#guards.get(name) ?? { rule }
    guard.rule = rule
    this.#guards.set(name, guard)
    const onRefused = (host: string, port: number): void => {
      diagnose?.('egress_refused', 'a page may not reach this host', { name, host, port })
    }
    return { guard, resolve: resolveHost, onRefused }
  }

  #connect(name: string, events: ConnectionEvents): Promise<BrowserConnection> {
    const spec = this.spec(name)
    if (!('address' in spec)) return startChromium(spec, events, this.limits, this.#egress(name))
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

/** Flags that would lead around the egress proxy. */
const WAYS_AROUND = /^--?(no-proxy-server|proxy-|host-(resolver-)?rules|enable-quic)/

/** The memory of a browser's processes, in bytes; null where that is not known. */
export async function memoryOf({ pid }: BrowserConnection): Promise<number | null> {
  return pid === undefined ? null : groupMemory(pid)
}
