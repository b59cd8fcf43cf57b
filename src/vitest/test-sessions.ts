/** All browser sessions of one Vitest under one authority: Vitest's own list only reflects it. */
import { randomUUID } from 'node:crypto'
import type { Holdfast, ReconnectPolicy, SessionHandle } from '../core/index.ts'
import { openHoldfast } from '../open.ts'
import type { Orchestrator, Project, Vitest } from './internals.ts'
import { TestSession } from './test-session.ts'

export type TestSessionsOptions = {
  readonly reconnect: ReconnectPolicy
  readonly graceMs: number
}

type Work = () => Promise<unknown>

/** How long a call waits for the one before it. Vitest makes one at a time. */
const LANE_WAIT_MS = 600_000

export class TestSessions {
  readonly #vitest: Vitest
  readonly #options: TestSessionsOptions
  readonly #sessions = new Map<string, TestSession>()
  readonly #works = new Map<string, Work>()
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
    const session = new TestSession({
      session: this.#session(id, project),
      runTurn: (session, text, work) => this.#runTurn(session, text, work),
      onOver: (reason) => {
        onOver()
        if (!reason.endsWith(' by Vitest'))
          this.#vitest.logger.warn(`holdfast: browser session ${id} is over: ${reason}`)
      },
    })
    this.#sessions.set(id, session)
    return session
  }

  async #session(id: string, { name }: Project): Promise<SessionHandle> {
    this.#holdfast ??= this.#open()
    const { reconnect, graceMs } = this.#options
    const labels = { project: name }
    return (await this.#holdfast).resolve({ id, reconnect, graceMs, exclusive: true, labels })
  }

  #open(): Promise<Holdfast> {
    return openHoldfast({
      store: 'memory:',
      agents: {
        page: async ({ input }) => {
          const { work = '' } = input as { readonly work?: string }
          await this.#works.get(work)?.()
        },
      },
      // How long a test file may run is for Vitest to say.
      limits: { turnMs: Number.POSITIVE_INFINITY },
    })
  }

  /** Makes a call to the page as a turn of its session, and settles as the call does. */
  async #runTurn(session: SessionHandle, text: string, call: Work): Promise<unknown> {
    const work = randomUUID()
    const called: Promise<unknown>[] = []
    this.#works.set(work, async () => {
      called.push(call())
      await called[0]
    })
    try {
      const { state, reason } = await session.turn({ text, work }, { waitMs: LANE_WAIT_MS })
      if (called.length === 0) throw new Error(`${text}: ${state}, ${reason ?? 'for no reason'}`)
      return await called[0]
    } finally {
      this.#works.delete(work)
    }
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
