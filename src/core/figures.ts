/**
 * What a node has counted and measured since it started: how often things happened, how long they
 * took, and what its agents have used. Read by `/metrics` and `/v1/stats`; nothing decides by it.
 * To observe a value allocates nothing, and what is kept does not grow with the number of sessions.
 */
import type { Clock } from './clock.ts'
import type { SessionEvent } from './events.ts'
import type { AskOutcome, Session, Usage } from './state.ts'

export class Counters {
  sessionsCreated = 0
  sessionsClosed = 0
  /** Erased by retention, and those of them that went into the archive first. */
  sessionsRetired = 0
  sessionsArchived = 0
  sessionsLoaded = 0
  sessionsEvicted = 0
  /** Holds given up because the store refused or failed an append. */
  sessionsLost = 0
  /** Taken over from a node whose lease ended: each one a failover. */
  sessionsTakenOver = 0
  /** How often this node could not prove its lease in time, and let go of everything. */
  leasesLost = 0
  turnsStarted = 0
  turnsEnded = 0
  turnsDone = 0
  turnsFailed = 0
  turnsCancelled = 0
  turnsInterrupted = 0
  turnsExpired = 0
  /** Requests refused with 429. */
  turnsRefused = 0
  /** Requests refused because their principal had reached a quota. */
  quotaRefusals = 0
  /** Requests refused because their principal had used up a budget, and turns ended for that. */
  budgetRefusals = 0
  budgetEnds = 0
  asksOpened = 0
  asksSettled = 0
  /** What runners said after their turn was over: dropped. */
  outputsLate = 0
  /** Activities of turns beyond the limit: dropped. */
  activitiesDropped = 0
  commits = 0
  appends = 0
  events = 0
}

/** Upper bounds of buckets, in seconds: from a commit to a turn that runs for hours. */
export const SECONDS: readonly number[] = [
  ...[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5],
  ...[1, 2, 5, 10, 20, 60, 120, 300, 600, 1_800, 3_600],
]
const SIZES: readonly number[] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000]

/** How many agents have figures of their own; all others share those of `other`. */
export const AGENTS_MAX = 32
export const OTHER_AGENTS = 'other'

/** How often values came between two bounds, and their sum. */
export class Histogram {
  readonly bounds: readonly number[]
  /** How many were at most their bound and above the one before; the last: above all bounds. */
  readonly counts: Float64Array
  sum = 0

  constructor(bounds = SECONDS) {
    this.bounds = bounds
    this.counts = new Float64Array(bounds.length + 1)
  }

  observe(value: number): void {
    const { bounds, counts } = this
    let bucket = 0
    while (bucket < bounds.length && value > (bounds[bucket] as number)) bucket += 1
    counts[bucket] = (counts[bucket] as number) + 1
    this.sum += value
  }

  observeMs(ms: number): void {
    this.observe(ms / 1_000)
  }
}

/** The ends of a turn that has run. */
export type RunEnd = 'done' | 'failed' | 'cancelled' | 'interrupted'

export class AgentFigures {
  /** From the start of a turn to the first text of its answer. */
  readonly firstOutput = new Histogram()
  readonly #durations = new Map<RunEnd, Histogram>()
  readonly used = { inputTokens: 0, outputTokens: 0, cachedTokens: 0, costUsd: 0 }

  /** From the start of turns to this end. */
  duration(end: RunEnd): Histogram {
    return kept(this.#durations, end, () => new Histogram())
  }

  /** Of the ends that there were. */
  get durations(): Iterable<readonly [RunEnd, Histogram]> {
    return this.#durations
  }

  use({ inputTokens, outputTokens, cachedTokens, costUsd }: Usage): void {
    this.used.inputTokens += inputTokens
    this.used.outputTokens += outputTokens
    this.used.cachedTokens += cachedTokens
    this.used.costUsd += costUsd
  }
}

export class Figures {
  /** From the request of a turn to its start; 0 for one that did not have to wait. */
  readonly queueWait = new Histogram()
  readonly commit = new Histogram()
  readonly commitAppends = new Histogram(SIZES)
  /** From the hello of a client that comes back to its welcome. */
  readonly resume = new Histogram()
  readonly #asks = new Map<AskOutcome['outcome'], Histogram>()
  readonly #agents = new Map<string, AgentFigures>()

  /** From an ask to this outcome. */
  ask(outcome: AskOutcome['outcome']): Histogram {
    return kept(this.#asks, outcome, () => new Histogram())
  }

  get asks(): Iterable<readonly [AskOutcome['outcome'], Histogram]> {
    return this.#asks
  }

  agent(name: string): AgentFigures {
    const isKnown = this.#agents.has(name) || this.#agents.size < AGENTS_MAX
    return kept(this.#agents, isKnown ? name : OTHER_AGENTS, () => new AgentFigures())
  }

  get agents(): Iterable<readonly [string, AgentFigures]> {
    return this.#agents
  }
}

/** How each end is counted, and what it is called of a turn that has run. */
const ENDS = {
  'turn.done': { counter: 'turnsDone', end: 'done' },
  'turn.failed': { counter: 'turnsFailed', end: 'failed' },
  'turn.cancelled': { counter: 'turnsCancelled', end: 'cancelled' },
  'turn.interrupted': { counter: 'turnsInterrupted', end: 'interrupted' },
  'turn.expired': { counter: 'turnsExpired', end: null },
} as const satisfies Partial<
  Record<SessionEvent['type'], { counter: keyof Counters; end: RunEnd | null }>
>

export type EndType = keyof typeof ENDS

/** Counts the end of a turn; `run`: of one that has run here. */
export function countEnd(
  { counters, figures, clock }: { counters: Counters; figures: Figures; clock: Clock },
  type: EndType,
  run: { readonly agent: string; readonly startedAt: number } | null,
): void {
  const { counter, end } = ENDS[type]
  counters.turnsEnded += 1
  counters[counter] += 1
  if (run === null || end === null) return
  figures
    .agent(run.agent)
    .duration(end)
    .observeMs(clock.monotonic() - run.startedAt)
}

/** What is kept under this name, made when it is first asked for. */
function kept<Name, Value>(map: Map<Name, Value>, name: Name, make: () => Value): Value {
  const known = map.get(name)
  if (known !== undefined) return known
  const made = make()
  map.set(name, made)
  return made
}

/** What the sessions that a node holds do now. */
export type Load = {
  /** Sessions by what they do; `waiting`: a turn waits for an answer to an ask. */
  readonly sessions: Record<'idle' | 'queued' | 'running' | 'waiting', number>
  readonly turns: Record<'queued' | 'running', number>
  readonly attachments: Record<'live' | 'detached', number>
  watchers: number
  /** Asks that wait for an answer. */
  asks: number
}

export function noLoad(): Load {
  return {
    sessions: { idle: 0, queued: 0, running: 0, waiting: 0 },
    turns: { queued: 0, running: 0 },
    attachments: { live: 0, detached: 0 },
    watchers: 0,
    asks: 0,
  }
}

/** Adds one more session. */
export function addLoad(
  load: Load,
  held: {
    readonly session: Session
    readonly queue: { readonly length: number }
    readonly watchers: { readonly count: number }
  },
): void {
  const { asks, running, attachments } = held.session
  const { length: queued } = held.queue
  const undecided = running !== null ? 'running' : queued > 0 ? 'queued' : 'idle'
  load.sessions[asks.length > 0 ? 'waiting' : undecided] += 1
  load.turns.running += running === null ? 0 : 1
  load.turns.queued += queued
  for (const { state } of attachments) load.attachments[state] += 1
  load.watchers += held.watchers.count
  load.asks += asks.length
}
