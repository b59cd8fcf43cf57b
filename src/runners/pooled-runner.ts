/**
 * A runner of agents that outlive a turn: long-lived children from a pool, one per session or one
 * for all. What an agent says during a turn goes to the turn's outbox.
 *
 * I2: the work of a turn begins after the end of the one before it in the same session.
 */
import {
  POSITION_KIND,
  type Diagnose,
  type EarlierMessage,
  type ErasedSession,
  type LastPosition,
  type LeftFiles,
  type OpenedSession,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerSession,
  type RunnerTurn,
  type Settings,
  type TerminalCommand,
} from '../core/index.ts'
import { Workplace } from '../platform/child.ts'
import type { ChildFolders } from '../platform/isolation.ts'
import { AgentPool, type PooledAgent, type PoolSettings } from './agent-pool.ts'
import { AgentGone } from './agent-gone.ts'
import { eraseFiles, terminalCommand, type ConversationFiles } from './conversation-files.ts'
import { activity, Outbox } from './outbox.ts'
import { OutsideMessages } from './outside-messages.ts'
import { Steering, type TakeMessage } from './steering.ts'

/** What the work of one turn needs. */
export type TurnWork = {
  readonly turn: RunnerTurn
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly folders: ChildFolders
  /** Called when the agent has accepted the turn: from then on it takes messages. */
  readonly accept: (take: TakeMessage) => void
  /** The agent's own id of the turn, or of its input: its files have the input by it. */
  readonly sent: (id: string) => void
  /** Is kept about the end of the turn, as its position. */
  readonly keep: (facts: object) => void
}

type WorkplaceOptions = ConstructorParameters<typeof Workplace>[0]

export abstract class PooledRunner<Agent extends PooledAgent> implements Runner {
  readonly workplace: Workplace
  readonly #files: ConversationFiles | null
  readonly #outside: OutsideMessages
  readonly #pool: AgentPool<Agent>
  /** The last work for each session, until it has ended. */
  readonly #working = new Map<string, Promise<void>>()
  readonly #steering = new Steering()

  /** `files`: where the agent keeps its conversations; null: not known. */
  constructor(settings: WorkplaceOptions & PoolSettings, files: ConversationFiles | null) {
    this.workplace = new Workplace(settings)
    this.#files = files
    this.#outside = new OutsideMessages(this.workplace, files)
    this.#pool = new AgentPool(settings)
  }

  /** Has the agent delete a conversation that it keeps; false: it cannot. */
  protected deleteIt(_session: ErasedSession, _backend: string): Promise<boolean> {
    return Promise.resolve(false)
  }

  /** Carries out a turn; a throw is its failure. */
  protected abstract work(work: TurnWork): Promise<void>

  reportTo(diagnose: Diagnose): void {
    this.workplace.diagnose = diagnose
  }

  run(turn: RunnerTurn, context: RunnerContext): AsyncGenerator<RunnerOutput, undefined> {
    const outbox = new Outbox()
    this.#afterWork(context.session.id, () => this.#runTurn(turn, context, outbox))
    return outbox.read()
  }

  /** Works for a session after the work for it before. */
  #afterWork(session: string, run: () => Promise<void>): void {
    const before = this.#working.get(session) ?? Promise.resolve()
    const work = before.then(run)
    this.#working.set(session, work)
    void work.then(() => {
      if (this.#working.get(session) === work) this.#working.delete(session)
    })
  }

  steer(session: RunnerSession, message: RunnerTurn): Promise<boolean> {
    return this.#steering.steer(session, message)
  }

  terminal(session: OpenedSession, settings: Settings): TerminalCommand | null {
    return terminalCommand(this.workplace, session, { files: this.#files, settings })
  }

  writtenOutside(
    session: OpenedSession,
    last: LastPosition,
  ): Promise<readonly EarlierMessage[] | null> {
    return this.#outside.since(session, last)
  }

  async stopIdle({ id }: RunnerSession): Promise<void> {
    await this.#pool.stopIdle(id)
  }

  /** The agent keeps what it was allowed: the next turn has another, or opens its session anew. */
  revoke({ id }: RunnerSession): void {
    this.#afterWork(id, () => this.#pool.stopIdle(id))
  }

  async release({ id }: RunnerSession): Promise<void> {
    this.#outside.forget(id)
    await this.#pool.release(id)
  }

  async erase(session: ErasedSession): Promise<readonly LeftFiles[]> {
    await this.#working.get(session.id)
    const deleteIt = this.deleteIt.bind(this)
    return eraseFiles(this.workplace, session, { files: this.#files, deleteIt })
  }

  lose(session: string | null): void {
    this.#outside.forget(session)
    this.#pool.lose(session)
  }

  async close(): Promise<void> {
    await this.#pool.close()
    await Promise.all(this.#working.values())
    await this.workplace.close()
  }

  /** Works with the agent of a session, which is started if necessary. */
  protected use<Result>(
    use: Parameters<AgentPool<Agent>['use']>[0],
    work: (agent: Agent) => Promise<Result>,
  ): Promise<Result> {
    return this.#pool.use(use, work)
  }

  /** Never rejects: the outbox ends with the error. */
  async #runTurn(turn: RunnerTurn, context: RunnerContext, outbox: Outbox): Promise<void> {
    const { id } = context.session
    const steered = this.#steering.begin(id)
    let facts: object = {}
    let input: string | null = null
    const keep = (more: object): void => void (facts = { ...facts, ...more })
    const sent = (id: string): void => void (input = id)
    let failure: unknown = null
    try {
      const folders = await this.workplace.foldersOf(id)
      await this.#reportOutside(context, outbox)
      await this.work({ turn, context, outbox, folders, accept: steered.accept, sent, keep })
    } catch (error) {
      if (error instanceof AgentGone) outbox.push(error.diagnosis)
      failure = error
    }
    const position = await this.#outside.after(context, input, facts)
    if (Object.keys(position).length > 0) outbox.push(activity(POSITION_KIND, position))
    outbox.end(failure)
    this.#steering.end(id, steered)
  }

  /** Tells what was written elsewhere, and lets another child read it. */
  async #reportOutside(context: RunnerContext, outbox: Outbox): Promise<void> {
    const written = await this.#outside.report(context)
    if (written === null) return
    outbox.push(written)
    await this.#pool.release(context.session.id)
  }
}
