/** What carries out a turn: the seam between the authority and any backend. */
import type { Question } from './asks.ts'
import type { Diagnose } from './diagnostics.ts'
import type { Activity, AskOutcome, Input, Reply, Session } from './state.ts'
import type { Clock } from './clock.ts'
import { messageOf, type HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'

export interface Runner {
  /**
   * Carries out one turn. The iterator's end is the turn's end, a throw its failure. Whatever is
   * said after that, or after `signal` and the grace time, is dropped and counted.
   */
  run(turn: RunnerTurn, context: RunnerContext): AsyncIterator<RunnerOutput, RunnerResult>
  /**
   * The session is closed for good: what is kept for it (a child, a folder) may go. A turn that was
   * cut short by the closing may still be stopping. A failure is only reported.
   */
  release?(session: RunnerSession): void | Promise<void>
  /**
   * This node does not own the session any more; null: any session. Another node is about to go on
   * with it and does not wait (I2, I5): end what works for it here, or is kept for it, at once. The
   * signal of its turn is aborted besides.
   */
  lose?(session: string | null): void
  /** Called once, before any turn: where to report what no turn's end can tell. */
  reportTo?(diagnose: Diagnose): void
  /** Holdfast is being closed, no turn runs any more: end whatever still lives. */
  close?(): Promise<void>
}

/** What a runner may keep something for. */
export type RunnerSession = { readonly id: string; readonly backend: string | null }

export type RunnerTurn = {
  readonly id: string
  readonly input: Input
  readonly text: string
}

/**
 * A part of the answer as it comes (live only), a whole message that is recorded at once, or
 * something else worth recording: a tool that was used, what the turn cost.
 */
export type RunnerOutput =
  | { readonly type: 'delta'; readonly text: string }
  | ({ readonly type: 'message' } & Reply)
  | ({ readonly type: 'activity' } & Activity)

/** The turn's last message. Without one, what was said in deltas since the last message is it. */
export type RunnerResult = Reply | undefined

export type Message = {
  readonly seq: number
  readonly turn: string
  readonly role: 'user' | 'assistant'
  readonly text: string
  readonly at: number
  readonly data?: unknown
  /** The turn ended before the message was complete. */
  readonly partial?: true
}

/** Its members need no `this`: an agent may take them apart. */
export type RunnerContext = {
  readonly session: {
    readonly id: string
    readonly key: string | null
    readonly agent: string
    readonly labels: Readonly<Record<string, string>>
    /** The backend's own session id, once `bind` recorded it. */
    readonly backend: string | null
  }
  /**
   * Aborted when the turn is cancelled, times out, or its session closes; and when the session is
   * this node's no more (`lease_lost`, `stale_epoch`): then the runner must stop at once.
   */
  readonly signal: AbortSignal
  /** Asks the session's clients; always settles (I8). */
  readonly ask: (question: Question) => Promise<AskOutcome>
  /** The time by the session's log, which times of its messages are compared with. */
  readonly now: () => number
  /**
   * Records the backend's own session id, once; a second, different id is refused. Durable when it
   * resolves, so that an id may be reserved before the backend gets it.
   */
  readonly bind: (backend: string) => Promise<void>
  /** The conversation before this turn, oldest first. */
  readonly history: () => AsyncIterable<Message>
}

/** The runners by the names of their agents, and their calls besides turns. */
export class RunnerTable {
  readonly #runners: Readonly<Record<string, Runner>>
  /** Releases under way: a runner is not closed before they are over. */
  readonly #releasing = new Set<Promise<unknown>>()
  readonly #diagnose: Diagnose

  constructor(runners: Readonly<Record<string, Runner>>, diagnose: Diagnose) {
    this.#runners = runners
    this.#diagnose = diagnose
    for (const runner of new Set(Object.values(runners))) runner.reportTo?.(diagnose)
  }

  get agents(): readonly string[] {
    return Object.keys(this.#runners)
  }

  get(agent: string): Runner | null {
    return Object.hasOwn(this.#runners, agent) ? (this.#runners[agent] ?? null) : null
  }

  /** A hold is over: what its runner kept may go if the session is closed, and must if lost. */
  released(session: Session, why: HoldfastError): void {
    const { id, agent, closed } = session
    if (closed !== null) this.#release(session)
    else if (isLost(why)) void this.#attempt('lose', () => this.get(agent)?.lose?.(id))
  }

  /** All holds are over. Runners keep something for sessions that are not held, too. */
  releasedAll(why: HoldfastError): void {
    if (isLost(why)) this.#loseAll()
  }

  #loseAll(): void {
    const runners = new Set(Object.values(this.#runners))
    for (const runner of runners) void this.#attempt('lose', () => runner.lose?.(null))
  }

  #release({ id, agent, backend }: Session): void {
    const runner = this.get(agent)
    if (runner?.release === undefined) return
    const releasing = this.#attempt('release', () => runner.release?.({ id, backend }))
    this.#releasing.add(releasing)
    void releasing.then(() => this.#releasing.delete(releasing))
  }

  /** Closes every runner, once, within a time limit; then those that still run are ended. */
  async close({ clock, limits }: { clock: Clock; limits: Limits }): Promise<void> {
    const runners = new Set(Object.values(this.#runners))
    const closing = async (): Promise<void> => {
      await Promise.all(this.#releasing)
      await Promise.all(
        [...runners].map((runner) => this.#attempt('close', () => runner.close?.())),
      )
    }
    await new Promise<void>((resolve) => {
      const cancel = clock.after(limits.runnerCloseMs, () => (this.#loseAll(), resolve()))
      void closing().then(() => (cancel(), resolve()))
    })
  }

  /** Runs what may throw, reject or return nothing; always resolves. Nothing depends on it. */
  async #attempt(step: 'lose' | 'release' | 'close', work: () => unknown): Promise<void> {
    try {
      await work()
    } catch (error) {
      const facts = { reason: step, error: messageOf(error) }
      this.#diagnose('runner_failed', 'a runner failed to release, lose or close', facts)
    }
  }
}

/** Whether another node may go on with what is no longer held here. */
function isLost({ code }: HoldfastError): boolean {
  return code === 'lease_lost' || code === 'stale_epoch'
}
