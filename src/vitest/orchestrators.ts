/** Vitest's list of runner pages, by session: a page stays on it while it may come back. */
import type { Orchestrator } from './internals.ts'
import type { TestSession } from './test-session.ts'
import type { TestSessions } from './test-sessions.ts'

export class Orchestrators extends Map<string, Orchestrator> {
  readonly #sessions: TestSessions

  constructor(sessions: TestSessions) {
    super()
    this.#sessions = sessions
  }

  /** A connection was set up: Vitest gets the session's page, which outlives it. */
  override set(id: string, page: Orchestrator): this {
    const session = this.#sessions.get(id)
    if (session === undefined) return super.set(id, page)
    session.connected(page)
    return super.set(id, heldPage(session))
  }

  override has(id: string): boolean {
    return super.has(id) && (this.#sessions.get(id)?.canServe ?? true)
  }

  /** A connection closed, which decides nothing here: `destroySession` follows. */
  override delete(id: string): boolean {
    const session = this.#sessions.get(id)
    return session === undefined || session.over !== null ? super.delete(id) : this.has(id)
  }
}

/** The page as Vitest sees it: the same, whichever connection it has. */
function heldPage(session: TestSession): Orchestrator {
  return {
    createTesters(options) {
      const files = options.files.map(({ filepath }) => filepath).join(', ')
      return session.call(files, (page) => page.createTesters(options))
    },
    cleanupTesters: () => session.call('clean up', (page) => page.cleanupTesters()),
    $close: (error) => session.hangUp(error),
    get $closed() {
      return !session.canServe
    },
  }
}
