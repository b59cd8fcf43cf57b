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
import { randomUUID } from 'node:crypto'
import {
  invalid,
  type AdoptedConversation,
  type Capabilities,
  type ForkSource,
  type Message,
  type OpenedSession,
  type Runner,
  type RunnerContext,
  type RunnerSession,
  type Settings,
  type TerminalCommand,
} from '../../core/index.ts'
import { systemClock, unlessAborted, wait } from '../../platform/clock.ts'
import { cannotAdopt, cannotFork } from '../agent-gone.ts'
import { assertAdopts, checkChoices, folderOf, namedServers, placesOf } from '../agent-settings.ts'
import { asObject, asText } from '../json.ts'
import { activity, type Outbox } from '../outbox.ts'
import { terminalCommand } from '../conversation-files.ts'
import { PooledRunner, type TurnWork } from '../pooled-runner.ts'
import { withDefaults } from '../program-options.ts'
import { capabilitiesOf, type KnownAgent } from './abilities.ts'
import { AcpAgent, AgentError, type SessionBasis } from './agent.ts'
import { NO_OFFERS, offersFor, sameOffers, type ClientOffers } from './client-access.ts'
import { loadSdk } from './connection.ts'
import { AcpAgent as AcpSchema, type AcpOptions, type AcpSettings } from './options.ts'
import { PromptRun } from './prompt.ts'

export type { AcpOptions } from './options.ts'

export function acpRunner(options: AcpOptions): Runner {
  return new AcpRunner(options)
}

class AcpRunner extends PooledRunner<AcpAgent> {
  readonly #settings: AcpSettings
  #known: KnownAgent = { abilities: null, modes: [], models: [] }
  /** Whether the agent deletes its sessions; null: not known yet. */
  #deletes: boolean | null = null
  /** When each session was last opened in a child (monotonic), within `reopenMs`. */
  readonly #openedAt = new Map<string, number>()

  constructor(options: AcpOptions) {
    const settings = withDefaults(AcpSchema, options) as AcpSettings
    super(settings, null)
    this.#settings = settings
  }

  get capabilities(): Capabilities {
    return capabilitiesOf(this.#known, this.#settings)
  }

  checkSettings(settings: Settings): void {
    checkChoices(settings, this.#settings, this.#known.modes)
  }

  override async release(session: RunnerSession): Promise<void> {
    this.#openedAt.delete(session.id)
    await super.release(session)
  }

  /** Copies the agent's session with all its turns. */
  async fork({ id, backend, position }: ForkSource): Promise<string> {
    if (backend === null) throw cannotFork('does not keep this session')
    const folders = await this.workplace.foldersOf(id)
    const cwd = asText(asObject(position)['cwd']) || folders.cwd
    await this.workplace.keep(cwd)
    const basis = await this.#basis({}, cwd)
    return this.#aside(`fork of ${id}`, folders, (agent) => agent.fork(backend, basis))
  }

  protected override async deleteIt({ id }: RunnerSession, backend: string): Promise<boolean> {
    if (this.#deletes === false) return false
    const folders = await this.workplace.foldersOf(id)
    return this.#aside(`erasure of ${id}`, folders, (agent) => {
      this.#deletes = agent.abilities.delete
      return agent.delete(backend)
    })
  }

  /** In a child of its own, which ends then: some agents open a session in one process only. */
  async #aside<Result>(
    session: string,
    folders: TurnWork['folders'],
    work: (agent: AcpAgent) => Promise<Result>,
  ): Promise<Result> {
    const { signal } = new AbortController()
    const sdk = await loadSdk()
    const how = { settings: this.#settings, folders, offers: NO_OFFERS }
    const start = (): AcpAgent => new AcpAgent(sdk, this.workplace, how)
    try {
      return await this.use({ session, signal, start }, work)
    } finally {
      await super.release({ id: session, backend: null })
    }
  }

  /** Loads the agent's session once, for what was said in it. */
  async adopt(backend: string, settings: Settings): Promise<AdoptedConversation> {
    assertAdopts(this.#settings)
    const session = `adoption ${randomUUID()}`
    const folders = await this.workplace.foldersOf(session)
    const { signal } = new AbortController()
    const how = { folders, signal, offers: NO_OFFERS }
    const { start } = await this.#usage(session, await this.#basis({}, ''), how)
    try {
      return await this.use({ session, signal, start }, (agent) =>
        this.#read(agent, backend, settings),
      )
    } finally {
      await super.release({ id: session, backend: null })
      await this.workplace.erase(session)
    }
  }

  async #read(agent: AcpAgent, backend: string, settings: Settings): Promise<AdoptedConversation> {
    if (!agent.abilities.load) throw cannotAdopt('does not tell what was said in its sessions')
    const cwd = settings.cwd ?? (await agent.folderOf(backend))
    if (cwd === null) {
      const isListed = agent.abilities.list
      const hint = 'name the folder that it was begun in, if there is such a conversation'
      throw invalid(
        'settings.cwd',
        `is needed: ${isListed ? 'the agent does not list it; ' : ''}${hint}`,
      )
    }
    this.checkSettings({ ...settings, cwd })
    const basis = await this.#basis({ ...settings, cwd }, '')
    try {
      const messages = await agent.read(backend, basis, systemClock.now())
      return { messages, settings: { cwd } }
    } catch (error) {
      throw error instanceof AgentError ? invalid('backend', `is unknown: ${error.message}`) : error
    }
  }

  override terminal(session: OpenedSession, settings: Settings): TerminalCommand | null {
    const { terminalArgs } = this.#settings
    if (terminalArgs === undefined) return null
    const resumeArgs = (id: string): readonly string[] =>
      terminalArgs.map((argument) => argument.replaceAll('{sessionId}', id))
    return terminalCommand(this.workplace, session, { files: { resumeArgs }, settings })
  }

  protected async work(work: TurnWork): Promise<void> {
    const { context, folders } = work
    const { signal, session, settings } = context
    const basis = await this.#basis(settings, folderOf(session, folders.cwd))
    const offers = offersFor(context, this.#settings)
    const use = await this.#usage(session.id, basis, { folders, signal, offers })
    await this.use(use, (agent) => this.#prompt(agent, basis, work))
  }

  async #basis(settings: Settings, own: string): Promise<SessionBasis> {
    const places = await placesOf(settings, this.#settings, own)
    const { instructions } = settings
    return { ...places, servers: namedServers(settings, this.#settings), instructions }
  }

  /** A session keeps the basis that it was opened with: another needs another child. */
  async #usage(
    session: string,
    basis: SessionBasis,
    {
      folders,
      signal,
      offers,
    }: Pick<TurnWork, 'folders'> & { readonly signal: AbortSignal; readonly offers: ClientOffers },
  ) {
    const sdk = await loadSdk()
    const settings = this.#settings
    const start = (): AcpAgent => new AcpAgent(sdk, this.workplace, { settings, folders, offers })
    const fits = (agent: AcpAgent): boolean =>
      !settings.perSession ||
      !agent.isRestorable ||
      (agent.fits(session, basis) && sameOffers(agent.offers, offers))
    return { session, signal, start, fits }
  }

  async #prompt(
    agent: AcpAgent,
    basis: SessionBasis,
    { turn, context, outbox, accept, keep }: TurnWork,
  ): Promise<void> {
    const { settings, signal } = context
    const { id, backend } = context.session
    this.#known = { ...this.#known, abilities: agent.abilities }
    this.#deletes = agent.abilities.delete
    await this.#reportLoss(agent, context, outbox)
    if (!agent.has(id)) await this.#waitToReopen(context, outbox)
    const lastAnswer = async () => (await lastMessage(context, 'assistant'))?.text ?? ''
    const session = await unlessAborted(agent.open(id, { backend, basis, lastAnswer }), signal)
    this.#known = {
      abilities: agent.abilities,
      modes: session.valuesOf('mode'),
      models: session.valuesOf('model'),
    }
    this.checkSettings(settings)
    await unlessAborted(agent.configure(session, settings), signal)
    const { isRestorable } = agent
    const say = (text: string): void =>
      void agent.steer(session, { id: turn.id, input: text, text })
    const run = new PromptRun({
      ...{ context, outbox, session, isRestorable, say },
      settings: this.#settings,
    })
    try {
      const prompting = agent.prompt(session, turn, { run, signal })
      accept((message) => agent.steer(session, message))
      await run.end(await prompting)
      if (agent.abilities.fork) keep({ cwd: basis.cwd })
    } catch (error) {
      // The next turn opens it again.
      if (error instanceof AgentError && error.isUnknownSession) await agent.forget(id)
      throw error
    }
  }

  async #reportLoss(agent: AcpAgent, context: RunnerContext, outbox: Outbox): Promise<void> {
    const { id, backend } = context.session
    const hasNoContext = backend === null && !agent.isRestorable && !agent.has(id)
    if (!hasNoContext || (await lastMessage(context)) === null) return
    const reason = 'the agent has ended meanwhile and cannot load its sessions: the context is lost'
    outbox.push(activity('context_lost', { reason }))
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
