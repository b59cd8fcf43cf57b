/** The runners by the names of their agents, and what they are told besides turns. */
import type { Clock } from './clock.ts'
import type { Limits } from './limits.ts'
import type { Runner } from './runner.ts'
import type { Session } from './session.ts'

export class RunnerTable {
  readonly #runners: Readonly<Record<string, Runner>>
  /** Releases under way: a runner is not closed before they are over. */
  readonly #releasing = new Set<Promise<unknown>>()

  constructor(runners: Readonly<Record<string, Runner>>) {
    this.#runners = runners
  }

  get agents(): readonly string[] {
    return Object.keys(this.#runners)
  }

  get(agent: string): Runner | null {
    return Object.hasOwn(this.#runners, agent) ? (this.#runners[agent] ?? null) : null
  }

  /** The session is closed: what its runner kept for it may go. */
  release({ id, agent, backend }: Session): void {
    const runner = this.get(agent)
    if (runner?.release === undefined) return
    const releasing = attempt(() => runner.release?.({ id, backend }))
    this.#releasing.add(releasing)
    void releasing.then(() => this.#releasing.delete(releasing))
  }

  /** Closes every runner, once. One that fails or never ends holds nobody up. */
  async close({ clock, limits }: { clock: Clock; limits: Limits }): Promise<void> {
    const runners = new Set(Object.values(this.#runners))
    const closing = async (): Promise<void> => {
      await Promise.all(this.#releasing)
      await Promise.all([...runners].map((runner) => attempt(() => runner.close?.())))
    }
    await new Promise<void>((resolve) => {
      const cancel = clock.after(limits.runnerCloseMs, resolve)
      void closing().then(() => (cancel(), resolve()))
    })
  }
}

/** Runs what may throw, reject or return nothing; always resolves. */
async function attempt(work: () => unknown): Promise<void> {
  try {
    await work()
  } catch {
    // There is nobody left to tell, and nothing depends on it.
  }
}
