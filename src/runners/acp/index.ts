/**
 * The runner for agents that speak the Agent Client Protocol: long-lived children, one per session
 * or one for all, whose permission requests become asks.
 *
 * I2: a prompt is sent after the end of the one before it in the same session, or of its child.
 * I10: a cancelled turn is cancelled in the agent; an agent that continues is killed.
 *
 * The agent's session id is bound when the agent has started to work in the session, which is later
 * loaded by that id. If the agent cannot load it, turns fail with `backend_lost`: there is never a
 * second id. The ids of an agent that cannot load sessions end with its child: they are not bound,
 * idle children are not stopped, and after the loss of a child the log says that the context is
 * lost.
 */
import type {
  Diagnose,
  Message,
  Runner,
  RunnerContext,
  RunnerOutput,
  RunnerSession,
  RunnerTurn,
} from '../../core/index.ts'
import { unlessAborted, wait } from '../../platform/clock.ts'
import { Workplace } from '../../platform/child.ts'
import { AgentPool } from '../agent-pool.ts'
import { activity, Outbox } from '../outbox.ts'
import { withDefaults } from '../program-options.ts'
import { AcpAgent, AgentError, AgentGone } from './agent.ts'
import { loadSdk } from './connection.ts'
import { AcpAgent as AcpSchema, type AcpOptions, type AcpSettings } from './options.ts'
import { PromptRun } from './updates.ts'

export type { AcpOptions } from './options.ts'

export function acpRunner(options: AcpOptions): Runner {
  return new AcpRunner(options)
}

class AcpRunner implements Runner {
  readonly #settings: AcpSettings
  readonly #workplace: Workplace
  readonly #pool: AgentPool<AcpAgent>
  /** The last turn of each session, until its work has ended. */
  readonly #working = new Map<string, Promise<void>>()
  /** When each session was last opened in a child (monotonic), within `reopenMs`. */
  readonly #openedAt = new Map<string, number>()

  constructor(options: AcpOptions) {
    this.#settings = withDefaults(AcpSchema, options) as AcpSettings
    this.#workplace = new Workplace(this.#settings)
    this.#pool = new AgentPool(this.#settings)
  }

  reportTo(diagnose: Diagnose): void {
    this.#workplace.diagnose = diagnose
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

  async release({ id }: RunnerSession): Promise<void> {
    this.#openedAt.delete(id)
    await this.#pool.release(id)
  }

  lose(session: string | null): void {
    this.#pool.lose(session)
  }

  async close(): Promise<void> {
    await this.#pool.close()
    await Promise.all(this.#working.values())
    await this.#workplace.close()
  }

  /** Never rejects: the outbox ends with the error. */
  async #runTurn(turn: RunnerTurn, context: RunnerContext, outbox: Outbox): Promise<void> {
    const { signal, session } = context
    try {
      const folders = await this.#workplace.foldersOf(session.id)
      const { cwd } = folders
      const sdk = await loadSdk()
      const start = (): AcpAgent => new AcpAgent(sdk, this.#workplace, this.#settings, folders)
      await this.#pool.use({ session: session.id, signal, start }, (agent) =>
        this.#prompt(agent, turn, { context, outbox, cwd }),
      )
      outbox.end()
    } catch (error) {
      if (error instanceof AgentGone) outbox.push(error.diagnosis)
      outbox.end(error)
    }
  }

  async #prompt(
    agent: AcpAgent,
    turn: RunnerTurn,
    { context, outbox, cwd }: { context: RunnerContext; outbox: Outbox; cwd: string },
  ): Promise<void> {
    const { id, backend } = context.session
    const hasNoContext = backend === null && !agent.isRestorable && !agent.has(id)
    if (hasNoContext && (await lastMessage(context)) !== null) {
      const reason =
        'the agent has ended meanwhile and cannot load its sessions: the context is lost'
      outbox.push(activity('context_lost', { reason }))
    }
    if (!agent.has(id)) await this.#waitToReopen(context, outbox)
    const lastAnswer = async () => (await lastMessage(context, 'assistant'))?.text ?? ''
    const request = { backend, cwd, lastAnswer }
    const sessionId = await unlessAborted(agent.open(id, request), context.signal)
    const restorableId = agent.isRestorable ? sessionId : null
    const run = new PromptRun({ context, outbox, settings: this.#settings, restorableId })
    try {
      await run.end(await agent.prompt(sessionId, turn.text, { run, signal: context.signal }))
    } catch (error) {
      // The next turn opens it again.
      if (error instanceof AgentError && error.isUnknownSession) await agent.forget(id)
      throw error
    }
  }

  /** Some agents must not open a session again too soon; the log shows why the turn waits. */
  async #waitToReopen(context: RunnerContext, outbox: Outbox): Promise<void> {
    const { reopenMs = 0 } = this.#settings
    const { id, backend } = context.session
    if (reopenMs === 0) return
    const ms = reopenMs - (await this.#sinceOpened(id, context))
    if (backend !== null && ms > 0) {
      const reason = 'the agent cannot open a session again so soon'
      outbox.push(activity('waiting', { reason, ms }))
      await wait(ms, context.signal)
    }
    for (const [session, at] of this.#openedAt) {
      if (performance.now() - at >= reopenMs) this.#openedAt.delete(session)
    }
    this.#openedAt.set(id, performance.now())
  }

  /**
   * The time since it was opened: by the monotonic clock if that was here; else the time since its
   * last message, by the clock of the log, which all nodes share.
   */
  async #sinceOpened(id: string, context: RunnerContext): Promise<number> {
    const openedAt = this.#openedAt.get(id)
    if (openedAt !== undefined) return performance.now() - openedAt
    return context.now() - ((await lastMessage(context))?.at ?? 0)
  }
}

/** The last message before this turn, of this role or of any. */
async function lastMessage(
  context: RunnerContext,
  role?: Message['role'],
): Promise<Message | null> {
  let last: Message | null = null
  for await (const message of context.history()) {
    if (role === undefined || message.role === role) last = message
  }
  return last
}
