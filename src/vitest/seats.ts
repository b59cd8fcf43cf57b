/** All browser sessions of one Vitest under one authority: Vitest's own list only reflects it. */
import { randomUUID } from 'node:crypto'
import type { Holdfast, ReconnectPolicy, SessionHandle } from '../core/index.ts'
import { openHoldfast } from '../open.ts'
import type { VitestBrowserSession, Project, Vitest } from './internals.ts'
import { Seat } from './seat.ts'

export type SeatsOptions = {
  readonly reconnect: ReconnectPolicy
  readonly graceMs: number
}

type Work = () => Promise<unknown>

/** How long a call waits for the one before it. Vitest makes one at a time. */
const LANE_WAIT_MS = 600_000

export class Seats {
  readonly #vitest: Vitest
  readonly #options: SeatsOptions
  readonly #seats = new Map<string, Seat>()
  readonly #works = new Map<string, Work>()
  #holdfast: Promise<Holdfast> | null = null

  constructor(vitest: Vitest, options: SeatsOptions) {
    this.#vitest = vitest
    this.#options = options
    this.#takeOver()
    vitest.onClose(() => this.#close())
  }

  get(id: string): Seat | undefined {
    return this.#seats.get(id)
  }

  #takeOver(): void {
    const { _browserSessions: own } = this.#vitest
    const createSession = own.createSession.bind(own)
    const close = own.close.bind(own)
    const destroySession = own.destroySession.bind(own)
    own.createSession = (id, project, ...rest) => {
      const created = createSession(id, project, ...rest)
      const seat = this.#add(id, project, () => close(id))
      const record = own.getSession(id)
      if (record !== undefined) closeOnFailure(record, seat)
      return created
    }
    own.destroySession = (id) => {
      const seat = this.#seats.get(id)
      if (seat === undefined) destroySession(id)
      else seat.letGo()
    }
    own.close = (id) => {
      this.#seats.get(id)?.close('closed by Vitest')
      close(id)
    }
  }

  #add(id: string, project: Project, onOver: () => void): Seat {
    const seat = new Seat({
      session: this.#session(id, project),
      runTurn: (session, text, work) => this.#runTurn(session, text, work),
      onOver: (reason) => {
        onOver()
        if (!reason.endsWith(' by Vitest'))
          this.#vitest.logger.warn(`holdfast: browser session ${id} is over: ${reason}`)
      },
    })
    this.#seats.set(id, seat)
    return seat
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
    for (const seat of this.#seats.values()) seat.close('closed by Vitest')
    this.#seats.clear()
    await (await holdfast)?.close()
  }
}

/** A page that crashed does not come back. */
function closeOnFailure(record: VitestBrowserSession, seat: Seat): void {
  const fail = record.fail.bind(record)
  record.fail = (error) => {
    fail(error)
    seat.close('its page failed')
  }
}
