/** The very statements of a turn on PostgreSQL, grouped as Holdfast groups them, and nothing else. */
import { openPostgresStore, type PostgresStore } from 'holdfast/postgres'
import type { Append } from '../src/core/store.ts'
import { INPUT } from './measure.ts'

/** As many statements as Holdfast has under way. */
export const IN_FLIGHT = 2

/** What a turn of the echo agent records: first that it began, then its answer and its end. */
const BEGIN: Step = [{ type: 'turn.started', input: INPUT }]
const END: Step = [{ type: 'message.added', role: 'assistant', text: INPUT }, { type: 'turn.done' }]

type Step = readonly object[]
type Waiting = { readonly session: string; readonly step: Step; readonly durable: () => void }

export class BareSessions {
  readonly ids: readonly string[]
  readonly #store: PostgresStore
  readonly #seqs: Map<string, number>
  #waiting: Waiting[] = []
  #inFlight = 0
  /** The last turn of each session: the next one waits for it. */
  readonly #lanes = new Map<string, Promise<void>>()

  private constructor(store: PostgresStore, ids: readonly string[]) {
    this.#store = store
    this.ids = ids
    this.#seqs = new Map(ids.map((id) => [id, 1]))
  }

  static async open(url: string, name: string, count: number): Promise<BareSessions> {
    const store = await openPostgresStore({ url })
    const ids = Array.from({ length: count }, (_, key) => `${name}-${key}`)
    const plain = {
      principal: 'default',
      explicit: false,
      key: null,
      agent: 'echo',
      internal: false,
      labels: {},
    }
    const made = { node: name, at: 1, expiresAt: null, body: '{"seq":1}' }
    await Promise.all(ids.map((id) => store.reserve({ ...plain, ...made, id })))
    return new BareSessions(store, ids)
  }

  /** A turn of each session of the group, in two statements. */
  async turns(group: readonly string[]): Promise<void> {
    await this.#commit(group.map((session) => this.#append(session, BEGIN)))
    await this.#commit(group.map((session) => this.#append(session, END)))
  }

  /** A turn of one session, which shares its statements with all that are ready then. */
  turn(session: string): Promise<void> {
    const before = this.#lanes.get(session) ?? Promise.resolve()
    const turn = before.then(() => this.#turn(session))
    this.#lanes.set(session, turn)
    return turn
  }

  async #turn(session: string): Promise<void> {
    for (const step of [BEGIN, END]) {
      await new Promise<void>((durable) => {
        this.#waiting.push({ session, step, durable })
        setImmediate(() => void this.#flush())
      })
    }
  }

  async #flush(): Promise<void> {
    if (this.#waiting.length === 0 || this.#inFlight === IN_FLIGHT) return
    const share = Math.ceil(this.#waiting.length / (IN_FLIGHT - this.#inFlight))
    const some = this.#waiting.splice(0, Math.max(16, share))
    this.#inFlight += 1
    await this.#commit(some.map(({ session, step }) => this.#append(session, step)))
    this.#inFlight -= 1
    for (const { durable } of some) durable()
    setImmediate(() => void this.#flush())
  }

  #append(session: string, step: Step): Append {
    const after = this.#seqs.get(session) ?? 1
    this.#seqs.set(session, after + step.length)
    const at = Date.now()
    const events = step.map((event, index) =>
      JSON.stringify({ ...event, turn: `t${after}`, seq: after + index + 1, at }),
    )
    const flags = { snapshot: null, closed: false, pending: step === BEGIN, expiresAt: null }
    return { session, epoch: 1, after, events, at, ...flags }
  }

  async #commit(appends: readonly Append[]): Promise<void> {
    const outcomes = await this.#store.append(appends)
    if (outcomes.includes('stale')) throw new Error('an append was refused')
  }
}
