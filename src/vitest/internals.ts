/**
 * The part of Vitest that the plugin touches, by its shape. All of it is internal to Vitest, so
 * only the minor versions it was tried with are accepted.
 */
import type { EventEmitter } from 'node:events'

/** The minor versions of Vitest that the example passes with. */
export const TESTED_MINORS: readonly string[] = ['5.0', '5.1']

export type Vitest = {
  readonly version: string
  readonly _browserSessions: VitestBrowserSessions
  readonly config: { readonly api: { readonly token: string } }
  readonly logger: { warn(message: string): void }
  onClose(run: () => Promise<void>): void
}

export type Project = {
  readonly name: string
  readonly browser?: { readonly state: { orchestrators: Map<string, Orchestrator> } }
  readonly vite: { readonly httpServer: EventEmitter | null }
}

/** Vitest's own list of sessions: each function is a place where it decides which page is alive. */
export type VitestBrowserSessions = {
  /** `fail`: the page crashed, or could not be served. */
  getSession(id: string): { fail(error: Error): void } | undefined
  createSession(id: string, project: Project, pool: unknown, options?: unknown): Promise<void>
  /** Called when a page's socket has closed, and by the pool when it stops a page. */
  destroySession(id: string): void
  close(id: string): void
}

/** The runner page, as calls to it. */
export type Orchestrator = {
  createTesters(options: {
    readonly files: readonly { readonly filepath: string }[]
  }): Promise<unknown>
  cleanupTesters(): Promise<unknown>
  $close(error?: Error): void
  readonly $closed: boolean
}

/** Throws unless this Vitest is one of those tried, or the caller forces it. */
export function checkVersion({ version }: Pick<Vitest, 'version'>, force: boolean): void {
  if (force || TESTED_MINORS.some((minor) => version.startsWith(`${minor}.`))) return
  throw new Error(
    `holdfast/vitest replaces internals of Vitest and was tried with ${TESTED_MINORS.join(', ')} ` +
      `only; this is ${version}. Pass force: true to try it all the same.`,
  )
}
