/**
 * A runner of agents that outlive a turn: long-lived children from a pool, one per session or one
 * for all. What an agent says during a turn goes to the turn's outbox.
 *
 * I2: the work of a turn begins after the end of the one before it in the same session.
 */
import type {
  Diagnose,
  ErasedSession,
  LeftFiles,
  OpenedSession,
  Runner,
  RunnerContext,
  RunnerOutput,
  RunnerSession,
  RunnerTurn,
  Settings,
  TerminalCommand,
} from '../core/index.ts'
import { Workplace } from '../platform/child.ts'
import type { ChildFolders } from '../platform/isolation.ts'
import { AgentPool, type PooledAgent, type PoolSettings } from './agent-pool.ts'
import { AgentGone } from './agent-gone.ts'
import { eraseFiles, terminalCommand, type ConversationFiles } from './conversation-files.ts'
import { Outbox } from './outbox.ts'
import { Steering, type TakeMessage } from './steering.ts'

/** What the work of one turn needs. */
export type TurnWork = {
  readonly turn: RunnerTurn
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly folders: ChildFolders
  /** Called when the agent has accepted the turn: from then on it takes messages. */
  readonly accept: (take: TakeMessage) => void
}

type WorkplaceOptions = ConstructorParameters<typeof Workplace>[0]

export abstract class PooledRunner<Agent extends PooledAgent> implements Runner {
  readonly workplace: Workplace
  /** Where the agent keeps its conversations; null: not known. */
  protected readonly files: ConversationFiles | null = null
  readonly #pool: AgentPool<Agent>
  /** The last turn of each session, until its work has ended. */
  readonly #working = new Map<string, Promise<void>>()
  readonly #steering = new Steering()

  constructor(settings: WorkplaceOptions & PoolSettings) {
    this.workplace = new Workplace(settings)
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
    const { id } = context.session
    const before = this.#working.get(id) ?? Promise.resolve()
    const work = before.then(() => this.#runTurn(turn, context, outbox))
    this.#working.set(id, work)
    void work.then(() => {
      if (this.#working.get(id) === work) this.#working.delete(id)
    })
    return outbox.read()
  }

  steer(session: RunnerSession, message: RunnerTurn): Promise<boolean> {
    return this.#steering.steer(session, message)
  }

  terminal(session: OpenedSession, settings: Settings): TerminalCommand | null {
    return terminalCommand(this.workplace, session, { files: this.files, settings })
  }

  async release({ id }: RunnerSession): Promise<void> {
    await this.#pool.release(id)
  }

  async erase(session: ErasedSession): Promise<readonly LeftFiles[]> {
    await this.#working.get(session.id)
    const deleteIt = this.deleteIt.bind(this)
    return eraseFiles(this.workplace, session, { files: this.files, deleteIt })
  }

  lose(session: string | null): void {
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
    try {
      const folders = await this.workplace.foldersOf(id)
      await this.work({ turn, context, outbox, folders, accept: steered.accept })
      outbox.end()
    } catch (error) {
      if (error instanceof AgentGone) outbox.push(error.diagnosis)
      outbox.end(error)
    } finally {
      this.#steering.end(id, steered)
    }
  }
}
