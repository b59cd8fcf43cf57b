/**
 * Checks that a log is linear and complete (I2, I3, I4, I8, I11): its numbers have no gap, nothing
 * follows its end, one turn runs at a time in the order of the queue, and every turn and every ask
 * ends exactly once. `holdfast verify`, the tests and the simulator share it.
 */
import { isKnownType, isReadable } from './events.ts'
import { isTerminal } from './turns.ts'

/** The fields of an event that are checked. */
export type CheckedEvent = {
  readonly type: string
  readonly seq: number
  readonly at?: number
  readonly turn?: string
  readonly ask?: string
  readonly refusedBy?: string
  readonly before?: string | null
  readonly by?: unknown
  readonly collect?: boolean
  readonly keys?: readonly { readonly key: string }[]
  readonly ignorable?: unknown
}

/** A problem and the invariant that it breaks. */
export type LogViolation = { readonly invariant: string; readonly message: string }

/** What holds of some logs only. */
export type LogRules = {
  /** Nothing is left running or waiting. */
  readonly isAtRest?: boolean
  /** Times never run backwards: logs of 0.1.0 may. */
  readonly hasOrderedTimes?: boolean
  /** A request key has one turn: not if the log is older than keys are remembered. */
  readonly hasUniqueKeys?: boolean
}

/** All that is wrong with a log. */
export function checkLog(
  events: Iterable<CheckedEvent>,
  rules: LogRules = {},
): readonly LogViolation[] {
  const check = new LogCheck(rules)
  for (const event of events) check.add(event)
  return check.violations()
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

type ReportProblem = (problem: string, invariant?: string) => void

export class LogCheck {
  readonly #rules: LogRules
  readonly #violations: LogViolation[] = []
  #at = 0
  #seq = 0
  #turns = 0
  #isClosed = false
  #running: string | null = null
  #queue: string[] = []
  /** Whose each turn is that may be moved, among those that wait. */
  readonly #movers = new Map<string, string>()
  readonly #admitted = new Set<string>()
  readonly #ended = new Set<string>()
  /** Open asks and their turns. */
  readonly #asks = new Map<string, string>()
  readonly #keys = new Map<string, string>()

  constructor(rules: LogRules = {}) {
    this.#rules = rules
  }

  add(event: CheckedEvent): void {
    this.#checkPlace(event)
    this.#checkRules(event)
    this.#seq = event.seq
    if (event.type === 'session.closed') this.#isClosed = true
    if (!isKnownType(event.type)) return this.#checkUnknown(event)
    if (event.ask !== undefined && event.type.startsWith('ask.')) this.#checkAsk(event, event.ask)
    else if (event.turn !== undefined) this.#checkTurn(event, event.turn)
  }

  /** Reports something else that is wrong with this log. */
  problem(message: string, invariant = 'I4'): void {
    const count = this.#violations.length
    if (count < PROBLEMS_MAX) this.#violations.push({ invariant, message })
    else if (count === PROBLEMS_MAX) this.#violations.push({ invariant, message: 'and more' })
  }

  finish(): Findings {
    const problems = this.violations().map(({ message }) => message)
    const pending = this.#isClosed ? [] : this.#pending()
    return { events: this.#seq, turns: this.#turns, problems, pending }
  }

  /** To be asked for at the end of the log. */
  violations(): readonly LogViolation[] {
    if (this.#seq === 0) this.problem('there are no events')
    if (!this.#isClosed && this.#rules.isAtRest !== true) return this.#violations
    const end = this.#isClosed ? 'closed' : 'at rest'
    for (const turn of this.#pending()) this.problem(`${end}, but turn ${turn} never ended`, 'I3')
    for (const ask of this.#asks.keys()) {
      this.problem(`${end}, but ask ${ask} was never settled`, 'I8')
    }
    return this.#violations
  }

  #pending(): readonly string[] {
    return this.#running === null ? this.#queue : [this.#running, ...this.#queue]
  }

  #checkPlace({ type, seq }: CheckedEvent): void {
    if (seq !== this.#seq + 1) this.problem(`event ${seq} (${type}) follows event ${this.#seq}`)
    if ((type === 'session.created') !== (this.#seq === 0)) {
      this.problem(`event ${seq} is ${type}: a log begins with session.created, and only once`)
    }
    if (this.#isClosed) this.problem(`event ${seq} (${type}) follows session.closed`)
  }

  #checkRules({ seq, at = this.#at, turn = '', keys = [], refusedBy }: CheckedEvent): void {
    const { hasOrderedTimes = false, hasUniqueKeys = false } = this.#rules
    if (hasOrderedTimes && at < this.#at) this.problem(`event ${seq} is older than the one before`)
    this.#at = at
    for (const { key } of hasUniqueKeys ? keys : []) {
      const other = this.#keys.get(key) ?? turn
      if (other !== turn && other !== refusedBy)
        this.problem(`key ${key} has the turns ${other} and ${turn}`, 'I11')
      this.#keys.set(key, turn)
    }
  }

  #checkUnknown(event: CheckedEvent): void {
    if (isReadable(event)) return
    const { seq, type } = event
    this.problem(`event ${seq} is of type ${type}, which this version neither knows nor may ignore`)
  }

  #checkTurn(event: CheckedEvent, turn: string): void {
    const { type, seq } = event
    const bad: ReportProblem = (problem, invariant = 'I3') =>
      this.problem(`event ${seq} (${type}): ${problem}`, invariant)
    if (this.#ended.has(turn)) bad(`turn ${turn} was over`)
    if (type === 'turn.queued') return this.#admit(event, turn, bad)
    if (type === 'turn.started') return this.#start(event, turn, bad)
    if (type === 'turn.moved') return this.#move(event, turn, bad)
    if (type === 'turn.joined') {
      if (!this.#queue.includes(turn)) bad(`turn ${turn} does not wait`)
    } else if (isTerminal(event)) {
      this.#end(turn, bad)
    } else if (this.#running !== turn) {
      bad(`turn ${turn} does not run`)
    }
  }

  /** I3: it changes its place with turns of the same principal only, which keep their order. */
  #move({ before = null, by }: CheckedEvent, turn: string, bad: ReportProblem): void {
    const mover = JSON.stringify(by)
    for (const id of before === null ? [turn] : [turn, before]) {
      if (!this.#queue.includes(id)) return bad(`turn ${id} does not wait`)
      if (this.#movers.get(id) !== mover) return bad(`turn ${id} may not be moved by ${mover}`)
    }
    const places = this.#queue.flatMap((id, place) =>
      this.#movers.get(id) === mover ? [place] : [],
    )
    const order = places.map((place) => this.#queue[place] ?? '').filter((id) => id !== turn)
    order.splice(before === null ? order.length : order.indexOf(before), 0, turn)
    for (const [index, place] of places.entries()) this.#queue[place] = order[index] ?? ''
  }

  #admit(event: CheckedEvent, turn: string, bad: ReportProblem): void {
    const { seq, type, by, collect = false } = event
    if (this.#admitted.has(turn)) bad(`turn ${turn} was admitted before`)
    if (turn !== `t${seq}`) bad(`turn ${turn} should be t${seq}`)
    this.#admitted.add(turn)
    if (type !== 'turn.queued') return
    this.#queue.push(turn)
    if (by !== undefined && !collect) this.#movers.set(turn, JSON.stringify(by))
  }

  #start(event: CheckedEvent, turn: string, bad: ReportProblem): void {
    this.#turns += 1
    if (this.#running !== null) bad(`turn ${this.#running} runs`, 'I2')
    if (!this.#queue.includes(turn)) this.#admit(event, turn, bad)
    else if (this.#queue[0] !== turn) bad(`turn ${this.#queue[0]} waits longer`)
    this.#running = turn
    this.#queue = this.#queue.filter((waiting) => waiting !== turn)
  }

  #end(turn: string, bad: ReportProblem): void {
    if (this.#running !== turn && !this.#queue.includes(turn)) bad(`turn ${turn} is not there`)
    for (const [ask, asker] of this.#asks)
      if (asker === turn) bad(`ask ${ask} outlives its turn`, 'I8')
    this.#ended.add(turn)
    if (this.#running === turn) this.#running = null
    this.#queue = this.#queue.filter((waiting) => waiting !== turn)
    this.#movers.delete(turn)
  }

  #checkAsk({ type, seq, turn }: CheckedEvent, ask: string): void {
    const bad = (problem: string): void => this.problem(`event ${seq} (${type}): ${problem}`, 'I8')
    if (type === 'ask.opened') {
      if (turn === undefined || this.#running !== turn) bad(`turn ${turn} does not run`)
      this.#asks.set(ask, turn ?? '')
    } else if (type === 'ask.approved') {
      if (!this.#asks.has(ask)) bad(`ask ${ask} does not wait`)
    } else if (!this.#asks.delete(ask)) {
      bad(`ask ${ask} does not wait`)
    }
  }
}
