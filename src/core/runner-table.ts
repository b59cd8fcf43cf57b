/** The runners of a node: which one an agent has, and their calls besides turns. */
import type { Clock } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { HoldfastError, messageOf } from './errors.ts'
import type { Limits } from './limits.ts'
import type { ErasedSession, LeftFiles, Runner } from './runner.ts'
import type { Session } from './state.ts'

/** A runner that its agents do not have any more, while its turns go on. */
type Retired = { readonly runner: Runner; readonly agents: readonly string[] }

/** The runners by the names of their agents, and their calls besides turns. */
export class RunnerTable {
  #runners: Readonly<Record<string, Runner>>
  readonly #retired = new Set<Retired>()
  /** How many turns each carries out. */
  readonly #turns = new Map<Runner, number>()
  /** Releases under way, by session: a runner is not closed before they are over. */
  readonly #releasing = new Map<string, Promise<unknown>>()
  /** Of runners that agents do not have any more. */
  readonly #closing = new Set<Promise<void>>()
  readonly #diagnose: Diagnose

  constructor(runners: Readonly<Record<string, Runner>>, diagnose: Diagnose) {
    this.#runners = runners
    this.#diagnose = diagnose
    for (const runner of new Set(Object.values(runners))) runner.reportTo?.(diagnose)
  }

  /** For new turns. A runner that is not among them is closed when its turns are over. */
  replace(runners: Readonly<Record<string, Runner>>): void {
    const before = Object.entries(this.#runners)
    const known = new Set(before.map(([, runner]) => runner))
    const now = new Set(Object.values(runners))
    for (const runner of now) if (!known.has(runner)) runner.reportTo?.(this.#diagnose)
    this.#runners = runners
    for (const runner of known) {
      if (now.has(runner)) continue
      const agents = before.filter(([, one]) => one === runner).map(([name]) => name)
      this.#retired.add({ runner, agents })
    }
    this.#closeRetired()
  }

  /** The runner for a turn, until that is given back. */
  take(agent: string): Runner | null {
    const runner = this.get(agent)
    if (runner !== null) this.#turns.set(runner, (this.#turns.get(runner) ?? 0) + 1)
    return runner
  }

  giveBack(runner: Runner | null): void {
    if (runner === null) return
    const left = (this.#turns.get(runner) ?? 1) - 1
    if (left > 0) return void this.#turns.set(runner, left)
    this.#turns.delete(runner)
    if (this.#retired.size > 0) this.#closeRetired()
  }

  /**
   * Before a turn: what the agent's former runners still have of the session must be gone (I2).
   * Null: nothing has to be waited for.
   */
  handingOver({ id, agent, backend }: Session): Promise<unknown> | null {
    const former = [...this.#retired].filter(({ agents }) => agents.includes(agent))
    if (former.length === 0) return null
    return Promise.all(
      former.map(async ({ runner }) => {
        await this.#attempt('lose', () => runner.stopIdle?.({ id, backend }))
        await this.#attempt('lose', () => runner.lose?.(id))
      }),
    )
  }

  #closeRetired(): void {
    for (const retired of this.#retired) {
      if (this.#turns.has(retired.runner)) continue
      this.#retired.delete(retired)
      void this.#closeOne(retired.runner)
    }
  }

  #closeOne(runner: Runner): Promise<void> {
    const closing = this.#attempt('close', () => runner.close?.()).finally(() => {
      this.#closing.delete(closing)
    })
    this.#closing.add(closing)
    return closing
  }

  /** Also those that agents do not have any more. */
  get #all(): ReadonlySet<Runner> {
    const former = [...this.#retired].map(({ runner }) => runner)
    return new Set([...Object.values(this.#runners), ...former])
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
    else if (isLost(why)) {
      for (const runner of this.#of(agent)) void this.#attempt('lose', () => runner.lose?.(id))
    }
  }

  /** An agent's runner, and those that it had before and that are not closed yet. */
  #of(agent: string): readonly Runner[] {
    const former = [...this.#retired].filter(({ agents }) => agents.includes(agent))
    const runner = this.get(agent)
    return [...(runner === null ? [] : [runner]), ...former.map((retired) => retired.runner)]
  }

  /** All holds are over. Runners keep something for sessions that are not held, too. */
  releasedAll(why: HoldfastError): void {
    if (isLost(why)) this.#loseAll()
  }

  #loseAll(): void {
    for (const runner of this.#all) void this.#attempt('lose', () => runner.lose?.(null))
  }

  #releaseLater(session: Session): void {
    const { id } = session
    const runners = this.#of(session.agent)
    const hasNone = runners.every((one) => one.release === undefined && one.erase === undefined)
    if (runners.length > 0 && hasNone) return
    const releasing = this.#release(session)
    this.#releasing.set(id, releasing)
    void releasing.then(() => this.#releasing.delete(id))
  }

  /** No client finds an internal session again: what its agent has written goes with it. */
  async #release({ internal, ...session }: Session): Promise<void> {
    const { id, agent, backend } = session
    for (const runner of this.#of(agent)) {
      await this.#attempt('release', () => runner.release?.({ id, backend }))
    }
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
    const closing = async (): Promise<void> => {
      await Promise.all(this.#releasing.values())
      await Promise.all([
        ...[...this.#all].map((runner) => this.#closeOne(runner)),
        ...this.#closing,
      ])
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

export function assertAgent(agent: string, agents: readonly string[]): void {
  if (agents.includes(agent)) return
  const names = agents.join(', ')
  throw new HoldfastError('agent_unknown', `there is no agent ${agent}; there are: ${names}`)
}
