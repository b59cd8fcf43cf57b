/**
 * Checks that a log is linear and complete (I2, I3, I4, I8, I9): its numbers have no gap, nothing
 * follows its end, one turn runs at a time in the order of the queue, and every turn and every ask
 * ends exactly once.
 */
import { isKnownType, isReadable } from '../core/index.ts'

/** The fields of an event that are checked. */
export type CheckedEvent = {
  readonly type: string
  readonly seq: number
  readonly turn?: string
  readonly ask?: string
  readonly ignorable?: unknown
}

/** The result of a check. */
export type Findings = {
  readonly events: number
  readonly turns: number
  readonly problems: readonly string[]
  /** Unfinished turns of an open session. */
  readonly pending: readonly string[]
}

/** How many problems are reported. */
const PROBLEMS_MAX = 20
const ENDS = ['done', 'failed', 'cancelled', 'interrupted', 'expired'].map((end) => `turn.${end}`)

export class LogCheck {
  readonly #problems: string[] = []
  #seq = 0
  #turns = 0
  #isClosed = false
  #running: string | null = null
  #queue: string[] = []
  readonly #admitted = new Set<string>()
  readonly #ended = new Set<string>()
  /** Open asks and their turns. */
  readonly #asks = new Map<string, string>()

  add(event: CheckedEvent): void {
    this.#checkPlace(event)
    this.#seq = event.seq
    if (event.type === 'session.closed') this.#isClosed = true
    if (!isKnownType(event.type)) return this.#checkUnknown(event)
    if (event.ask !== undefined && event.type.startsWith('ask.')) this.#checkAsk(event, event.ask)
    else if (event.turn !== undefined) this.#checkTurn(event, event.turn)
  }

  /** Adds a problem that the caller found. */
  problem(text: string): void {
    if (this.#problems.length < PROBLEMS_MAX) this.#problems.push(text)
    else if (this.#problems.length === PROBLEMS_MAX) this.#problems.push('and more')
  }

  finish(): Findings {
    const pending = this.#running === null ? this.#queue : [this.#running, ...this.#queue]
    if (this.#seq === 0) this.problem('there are no events')
    if (this.#isClosed) {
      for (const turn of pending) this.problem(`closed, but turn ${turn} never ended`)
      for (const ask of this.#asks.keys()) this.problem(`closed, but ask ${ask} was never settled`)
    }
    const problems = this.#problems
    return {
      events: this.#seq,
      turns: this.#turns,
      problems,
      pending: this.#isClosed ? [] : pending,
    }
  }

  #checkPlace({ type, seq }: CheckedEvent): void {
    if (seq !== this.#seq + 1) this.problem(`event ${seq} (${type}) follows event ${this.#seq}`)
    if ((type === 'session.created') !== (this.#seq === 0)) {
      this.problem(`event ${seq} is ${type}: a log begins with session.created, and only once`)
    }
    if (this.#isClosed) this.problem(`event ${seq} (${type}) follows session.closed`)
  }

  #checkUnknown(event: CheckedEvent): void {
    if (isReadable(event)) return
    const { seq, type } = event
    this.problem(`event ${seq} is of type ${type}, which this version neither knows nor may ignore`)
  }

  #checkTurn(event: CheckedEvent, turn: string): void {
    const { type, seq } = event
    const bad = (problem: string): void => this.problem(`event ${seq} (${type}): ${problem}`)
    if (this.#ended.has(turn)) bad(`turn ${turn} was over`)
    if (type === 'turn.queued') return this.#admit(event, turn, bad)
    if (type === 'turn.started') return this.#start(event, turn, bad)
    if (type === 'turn.joined') {
      if (!this.#queue.includes(turn)) bad(`turn ${turn} does not wait`)
    } else if (ENDS.includes(type)) {
      this.#end(turn, bad)
    } else if (this.#running !== turn) {
      bad(`turn ${turn} does not run`)
    }
  }

  #admit({ seq, type }: CheckedEvent, turn: string, bad: (problem: string) => void): void {
    if (this.#admitted.has(turn)) bad(`turn ${turn} was admitted before`)
    if (turn !== `t${seq}`) bad(`turn ${turn} should be t${seq}`)
    this.#admitted.add(turn)
    if (type === 'turn.queued') this.#queue.push(turn)
  }

  #start(event: CheckedEvent, turn: string, bad: (problem: string) => void): void {
    this.#turns += 1
    if (this.#running !== null) bad(`turn ${this.#running} runs`)
    if (!this.#queue.includes(turn)) this.#admit(event, turn, bad)
    else if (this.#queue[0] !== turn) bad(`turn ${this.#queue[0]} waits longer`)
    this.#running = turn
    this.#queue = this.#queue.filter((waiting) => waiting !== turn)
  }

  #end(turn: string, bad: (problem: string) => void): void {
    if (this.#running !== turn && !this.#queue.includes(turn)) bad(`turn ${turn} is not there`)
    for (const [ask, asker] of this.#asks) if (asker === turn) bad(`ask ${ask} outlives its turn`)
    this.#ended.add(turn)
    if (this.#running === turn) this.#running = null
    this.#queue = this.#queue.filter((waiting) => waiting !== turn)
  }

  #checkAsk({ type, seq, turn }: CheckedEvent, ask: string): void {
    const bad = (problem: string): void => this.problem(`event ${seq} (${type}): ${problem}`)
    if (type === 'ask.opened') {
      if (turn === undefined || this.#running !== turn) bad(`turn ${turn} does not run`)
      this.#asks.set(ask, turn ?? '')
    } else if (!this.#asks.delete(ask)) {
      bad(`ask ${ask} does not wait`)
    }
  }
}
