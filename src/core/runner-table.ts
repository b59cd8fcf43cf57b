/** The runners of a node: which one an agent has, and their calls besides turns. */
import type { Clock } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { messageOf, type HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import type { ErasedSession, LeftFiles, Runner } from './runner.ts'
import type { Session } from './state.ts'

/** The runners by the names of their agents, and their calls besides turns. */
export class RunnerTable {
  readonly #runners: Readonly<Record<string, Runner>>
  /** Releases under way, by session: a runner is not closed before they are over. */
  readonly #releasing = new Map<string, Promise<unknown>>()
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
    if (closed !== null) this.#releaseLater(session)
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

  #releaseLater(session: Session): void {
    const { id } = session
    const runner = this.get(session.agent)
    if (runner !== null && runner.release === undefined && runner.erase === undefined) return
    const releasing = this.#release(session)
    this.#releasing.set(id, releasing)
    void releasing.then(() => this.#releasing.delete(id))
  }

  /** No client finds an internal session again: what its agent has written goes with it. */
  async #release({ internal, ...session }: Session): Promise<void> {
    const { id, agent, backend } = session
    await this.#attempt('release', () => this.get(agent)?.release?.({ id, backend }))
    if (internal) await this.#erase(session)
  }

  /**
   * Removes what the agent of a closed session has written, once it is released; returns what could
   * not be removed.
   */
  async erase(session: ErasedSession & Pick<Session, 'agent'>): Promise<readonly string[]> {
    await this.#releasing.get(session.id)
    return this.#erase(session)
  }

  async #erase({ id, agent, backend, origin }: ErasedSession & Pick<Session, 'agent'>) {
    const runner = this.get(agent)
    let left: readonly LeftFiles[] = [{ what: 'what its agent wrote' }]
    if (runner !== null) {
      await this.#attempt('erase', async () => {
        left = (await runner.erase?.({ id, backend, origin })) ?? []
      })
    }
    const [first] = left
    if (first !== undefined) {
      const facts = { session: id, agent, count: left.length, path: first.path ?? null }
      this.#diagnose('agent_files_left', `an erased session left ${first.what}`, facts)
    }
    return left.map(({ what }) => what)
  }

  /** Closes every runner, once, within a time limit; then those that still run are ended. */
  async close({ clock, limits }: { clock: Clock; limits: Limits }): Promise<void> {
    const runners = new Set(Object.values(this.#runners))
    const closing = async (): Promise<void> => {
      await Promise.all(this.#releasing.values())
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
  async #attempt(step: 'lose' | 'release' | 'erase' | 'close', work: () => unknown): Promise<void> {
    try {
      await work()
    } catch (error) {
      const facts = { reason: step, error: messageOf(error) }
      this.#diagnose('runner_failed', 'a runner failed to release, erase, lose or close', facts)
    }
  }
}

/** Whether another node may go on with what is no longer held here. */
function isLost({ code }: HoldfastError): boolean {
  return code === 'lease_lost' || code === 'stale_epoch'
}
