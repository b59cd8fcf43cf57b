/** All browser sessions of one Vitest under one authority: Vitest's own list only reflects it. */
import type { Holdfast, ReconnectPolicy, SessionHandle } from '../core/index.ts'
import { openHoldfast } from '../open.ts'
import type { Orchestrator, Project, Vitest } from './internals.ts'
import { callPage, TestSession } from './test-session.ts'

export type TestSessionsOptions = {
  readonly reconnect: ReconnectPolicy
  readonly graceMs: number
}

export class TestSessions {
  readonly #vitest: Vitest
  readonly #options: TestSessionsOptions
  readonly #sessions = new Map<string, TestSession>()
  #holdfast: Promise<Holdfast> | null = null

  constructor(vitest: Vitest, options: TestSessionsOptions) {
    this.#vitest = vitest
    this.#options = options
    this.#takeOver()
    vitest.onClose(() => this.#close())
  }

  get(id: string): TestSession | undefined {
    return this.#sessions.get(id)
  }

  #takeOver(): void {
    const { _browserSessions: own } = this.#vitest
    const createSession = own.createSession.bind(own)
    const close = own.close.bind(own)
    const destroySession = own.destroySession.bind(own)
    own.createSession = (id, project, ...rest) => {
      const created = createSession(id, project, ...rest)
      const session = this.#add(id, project, () => close(id))
      const record = own.getSession(id)
      const fail = record?.fail.bind(record)
      if (record === undefined || fail === undefined) return created
      record.fail = (error) => {
        fail(error)
        // A page that crashed does not come back.
        session.close('its page failed')
      }
      return created
    }
    own.destroySession = (id) => {
      const session = this.#sessions.get(id)
      if (session === undefined) destroySession(id)
      else session.letGo()
    }
    own.close = (id) => {
      this.#sessions.get(id)?.close('closed by Vitest')
      close(id)
    }
  }

  #add(id: string, project: Project, onOver: () => void): TestSession {
    const session = new TestSession(this.#session(id, project), (reason) => {
      onOver()
      if (!reason.endsWith(' by Vitest'))
        this.#vitest.logger.warn(`holdfast: browser session ${id} is over: ${reason}`)
    })
    this.#sessions.set(id, session)
    return session
  }

  async #session(id: string, { name }: Project): Promise<SessionHandle> {
    this.#holdfast ??= openHoldfast({
      store: 'memory:',
      agents: { page: callPage },
      // How long a test file may run is for Vitest to say.
      limits: { turnMs: Number.POSITIVE_INFINITY },
    })
    const { reconnect, graceMs } = this.#options
    const labels = { project: name }
    return (await this.#holdfast).resolve({ id, reconnect, graceMs, exclusive: true, labels })
  }

  async #close(): Promise<void> {
    const holdfast = this.#holdfast
    this.#holdfast = null
    for (const session of this.#sessions.values()) session.close('closed by Vitest')
    this.#sessions.clear()
    await (await holdfast)?.close()
  }
}

/** Vitest's list of runner pages, by session: a page stays on it while it may come back. */
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
    return super.set(id, session)
  }

  override has(id: string): boolean {
    return super.has(id) && this.#sessions.get(id)?.$closed !== true
  }

  /** A connection closed, which decides nothing here: `destroySession` follows. */
  override delete(id: string): boolean {
    const session = this.#sessions.get(id)
    return session === undefined || session.over !== null ? super.delete(id) : this.has(id)
  }
}
