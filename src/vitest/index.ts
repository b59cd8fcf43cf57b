/**
 * Experimental: Holdfast as the one authority behind Vitest's browser sessions, so that a runner
 * page may be reloaded, may lose its socket, and is not opened twice.
 */
import { RECONNECT_POLICIES, type ReconnectPolicy } from '../core/index.ts'
import { guard } from './door.ts'
import { checkVersion, type Project, type Vitest } from './internals.ts'
import { Orchestrators, TestSessions } from './test-sessions.ts'

export type HoldfastVitestOptions = {
  /** What a page's lost connection means. */
  readonly reconnect?: ReconnectPolicy
  /** How long a page may be away. */
  readonly graceMs?: number
  /** Run on a Vitest that this was not tried with. */
  readonly force?: boolean
}

/** A Vite plugin, by its shape: this package does not depend on Vite or Vitest. */
export type HoldfastVitestPlugin = {
  readonly name: string
  configureVitest(context: { readonly vitest: unknown; readonly project: unknown }): void
}

/** Longer than the two seconds after which Vitest's page connects again. */
const GRACE_MS = 10_000

/** A Vitest has its sessions once, however many projects and restarts it has. */
const taken = new WeakMap<Vitest, TestSessions>()

export function holdfast(options: HoldfastVitestOptions = {}): HoldfastVitestPlugin {
  const { reconnect = 'resume', graceMs = GRACE_MS, force = false } = options
  if (!RECONNECT_POLICIES.includes(reconnect)) {
    throw new Error(`reconnect must be one of ${RECONNECT_POLICIES.join(', ')}, not ${reconnect}`)
  }
  return {
    name: 'holdfast',
    configureVitest(context) {
      const vitest = context.vitest as Vitest
      const { browser, vite } = context.project as Project
      if (browser === undefined) return
      checkVersion(vitest, force)
      const sessions = taken.get(vitest) ?? new TestSessions(vitest, { reconnect, graceMs })
      taken.set(vitest, sessions)
      if (browser.state.orchestrators instanceof Orchestrators) return
      if (vite.httpServer === null) throw new Error('holdfast/vitest needs the HTTP server of Vite')
      browser.state.orchestrators = new Orchestrators(sessions)
      guard(vite.httpServer, sessions, vitest)
    },
  }
}
