/** The runners of a node: which one an agent has, and their calls besides turns. */
import type { Clock } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { messageOf, type HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import type { Runner } from './runner.ts'
import type { Session } from './state.ts'

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
