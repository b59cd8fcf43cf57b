/**
 * The runner of Claude Code: one long-lived child for each session, over its own control protocol.
 * Its permission requests and questions become asks.
 *
 * I10: a cancelled turn is interrupted in the agent; an agent that continues is killed.
 *
 * One id: the session id is recorded before a child that may use it starts, and every later child
 * resumes it. A child that continues another session fails its turn.
 */
import {
  NO_CAPABILITIES,
  type AdoptedConversation,
  type Capabilities,
  type ForkSource,
  type Runner,
  type RunnerContext,
  type RunnerSession,
  type RunnerTurn,
  type Settings,
} from '../../core/index.ts'
import { unlessAborted } from '../../platform/clock.ts'
import type { ChildFolders } from '../../platform/isolation.ts'
import { backendLost, cannotFork } from '../agent-gone.ts'
import {
  assertAdopts,
  assertAmong,
  checkChoices,
  folderOf,
  mayFork,
  namedServers,
  placeSettings,
  placesOf,
  type Places,
} from '../agent-settings.ts'
import { asObject, asText } from '../json.ts'
import { activity } from '../outbox.ts'
import { adoptFrom } from '../adopting.ts'
import { CLAUDE_FILES } from '../conversation-files.ts'
import { PooledRunner, type TurnWork } from '../pooled-runner.ts'
import { withDefaults } from '../program-options.ts'
import { ReservedIds } from '../reserved-ids.ts'
import { ClaudeAgent, ClaudeGone } from './agent.ts'
import { contentOf } from './content.ts'
import { claudeRefusal } from './messages.ts'
import { allowedBefore, type Allowed } from './permission.ts'
import {
  ClaudeAgent as ClaudeSchema,
  MODE_NAMES,
  type ClaudeOptions,
  type ClaudeSettings,
} from './options.ts'
import {
  argumentsOf,
  findForked,
  findTranscript,
  LONG_LIVED_ENV,
  serversOf,
  sessionArguments,
  type ClaudeStart,
} from './start.ts'
import { claudeConversation } from './transcript.ts'
import { SessionMemory, TurnRun } from './turn.ts'

export type { ClaudeOptions } from './options.ts'

export function claudeRunner(options: ClaudeOptions): Runner {
  return new ClaudeRunner(options)
}

/** It did nothing, and may be started otherwise. */
type Refusal = { readonly refusal: 'in_use' | 'unknown'; readonly words: string }

/** Where a child works, and for which session of its own. */
type Basis = { readonly start: ClaudeStart; readonly places: Places }

/** The longest message of a refusal that is recorded. */
const WORDS_CHARS_MAX = 500

class ClaudeRunner extends PooledRunner<ClaudeAgent> {
  readonly #settings: ClaudeSettings
  readonly #ids = new ReservedIds()
  readonly #memories = new Map<string, SessionMemory>()

  constructor(options: ClaudeOptions) {
    const settings = withDefaults(ClaudeSchema, options) as ClaudeSettings
    super({ ...settings, env: { ...LONG_LIVED_ENV, ...settings.env } }, CLAUDE_FILES)
    this.#settings = settings
  }

  get capabilities(): Capabilities {
    const { modes, models = [] } = this.#settings
    return {
      ...NO_CAPABILITIES,
      ...{ asks: true, images: true, files: true, load: true, plans: true, commands: true },
      clientTools: true,
      settings: ['mode', 'model', 'instructions', ...placeSettings(this.#settings)],
      mcpServers: Object.keys(this.#settings.mcpServers ?? {}),
      modes,
      models,
      fork: mayFork(this.#settings) ? 'any' : null,
    }
  }

  checkSettings(settings: Settings): void {
    checkChoices(settings, this.#settings, MODE_NAMES)
    const { models } = this.#settings
    if (settings.model !== undefined && models !== undefined) {
      assertAmong('settings.model', settings.model, models)
    }
  }

  /** The mode and the model count at once, the rest from the next turn on. */
  configure({ id }: RunnerSession, settings: Settings): void {
    this.#memories.get(id)?.turn?.configure(settings)
  }

  /** The first turn of the new session makes the fork. */
  async fork({ backend, position }: ForkSource): Promise<null> {
    if (backend !== null && messageOf(position) !== '') {
      await this.workplace.keep(asText(asObject(position)['cwd']))
      return null
    }
    throw cannotFork('cannot be forked at a turn that an earlier version ran')
  }

  /** A conversation of this home, in a folder that sessions may work in. */
  async adopt(backend: string, settings: Settings): Promise<AdoptedConversation> {
    assertAdopts(this.#settings)
    const source = { workplace: this.workplace, files: CLAUDE_FILES }
    const adopted = await adoptFrom(source, backend, claudeConversation)
    this.checkSettings({ ...adopted.settings, ...settings })
    return adopted
  }

  override async release(session: RunnerSession): Promise<void> {
    this.#ids.forget(session.id)
    this.#memories.delete(session.id)
    await super.release(session)
  }

  override lose(session: string | null): void {
    if (session === null) this.#memories.clear()
    else this.#memories.delete(session)
    super.lose(session)
  }

  protected async work(work: TurnWork): Promise<void> {
    const { context, outbox, folders } = work
    const { id } = context.session
    const own = folderOf(context.session, folders.cwd)
    const places = await placesOf(context.settings, this.#settings, own)
    const reserved = await this.#ids.start(context)
    const { backend } = reserved
    const fork = reserved.isFirst ? await this.#forkOf(context, folders) : {}
    let start: ClaudeStart = { ...reserved, ...fork }
    for (let starts = 1; ; starts += 1) {
      const refused = await this.#tryTurn(work, { start, places })
      if (refused === null) break
      const { refusal, words } = refused
      if (starts === 3) {
        throw new Error(`it refuses its session as a new one and as an existing one: ${words}`)
      }
      const transcript = refusal === 'unknown' ? await this.#transcript(start, folders) : null
      const isFirst = refusal === 'unknown' && transcript === null
      start = { backend, isFirst, ...transcript, ...fork }
      if (transcript !== null) continue
      const isLost = refusal === 'unknown' && this.#ids.forget(id)
      outbox.push(activity(isLost ? 'context_lost' : 'backend_retried', { backend, words }))
    }
    this.#ids.remember(id)
  }

  /** Null if the turn is over. */
  async #tryTurn(work: TurnWork, { start, places }: Basis): Promise<Refusal | null> {
    const { turn, context, outbox, folders, keep, sent } = work
    const { session, signal, settings } = context
    const memory = this.#memoryOf(session.id)
    const run = new TurnRun({
      ...{ context, outbox, memory, settings: this.#settings },
      ...{ start, places, keep, sent },
    })
    const fixed = fixedOf(settings, places)
    const allowed = await allowedBefore(context, this.#settings, places)
    const basis = { start, places, allowed }
    const use = {
      session: session.id,
      signal,
      start: () => this.#startAgent(settings, basis, { folders, fixed }),
      fits: (agent: ClaudeAgent) => agent.fixed === fixed,
    }
    try {
      // A child that has ended meanwhile is replaced before anything is sent to it.
      while (!(await this.use(use, (agent) => this.#prompt(agent, turn, run)))) continue
      return null
    } catch (error) {
      const words = error instanceof ClaudeGone ? error.words : (error as Error).message
      const refusal = run.hasOutput ? null : claudeRefusal(words, start.backend)
      if (refusal === null) throw error
      // I2: it has ended before another starts.
      await super.release(session)
      return { refusal, words: words.slice(-WORDS_CHARS_MAX) }
    }
  }

  /** False: the agent has ended, and was sent nothing. */
  async #prompt(agent: ClaudeAgent, turn: RunnerTurn, run: TurnRun): Promise<boolean> {
    const { context, places, memory } = run.parts
    if (!(await unlessAborted(agent.answers(), context.signal))) return false
    const content = await contentOf(turn, places.cwd)
    await agent.configure(context.settings)
    await agent.offer(context.clientTools())
    memory.turn = {
      configure(settings) {
        const { mode, model } = context.settings
        // A turn with settings of its own keeps them.
        if (mode !== settings.mode || model !== settings.model) return
        // If it fails, the next turn tries again, and fails with the reason.
        agent.configure(settings).catch(() => undefined)
      },
    }
    try {
      run.begin(agent)
      await agent.prompt(content, run, context.signal)
      await run.end()
      return true
    } finally {
      memory.turn = null
    }
  }

  #startAgent(
    settings: Settings,
    { start, places, allowed }: Basis & { readonly allowed: Allowed },
    { folders, fixed }: { readonly folders: ChildFolders; readonly fixed: string },
  ): ClaudeAgent {
    const args = [...argumentsOf(this.#settings, places, allowed), ...sessionArguments(start)]
    const hasServers = this.#settings.mcpServers !== undefined
    const servers = serversOf(namedServers(settings, this.#settings))
    const started = this.workplace.start(args, { ...folders, cwd: places.cwd })
    return new ClaudeAgent(started, this.#settings, {
      fixed,
      instructions: settings.instructions,
      mcpServers: hasServers ? servers : undefined,
    })
  }

  /** The conversation that the session is a fork of. */
  async #forkOf(
    { session: { origin } }: RunnerContext,
    folders: ChildFolders,
  ): Promise<Pick<ClaudeStart, 'fork'>> {
    if (origin === null || origin.session === undefined || origin.backend === null) return {}
    const message = messageOf(origin.position)
    const env = this.workplace.environment(folders)
    const transcript = await findForked(origin.backend, message, env)
    if (transcript !== null) return { fork: { transcript, message } }
    throw backendLost(origin.backend, 'its transcript is not there')
  }

  /** Its transcript, if it is stored under another folder than it was looked for. */
  async #transcript({ backend, isFirst, transcript }: ClaudeStart, folders: ChildFolders) {
    if (isFirst || transcript !== undefined) return null
    const file = await findTranscript(backend, this.workplace.environment(folders))
    return file === null ? null : { transcript: file }
  }

  #memoryOf(session: string): SessionMemory {
    const known = this.#memories.get(session) ?? new SessionMemory()
    this.#memories.set(session, known)
    return known
  }
}

/** What a child cannot change while it runs. */
function fixedOf({ instructions, mcpServers }: Settings, places: Places): string {
  return JSON.stringify([instructions, mcpServers, places])
}

/** The message that a turn ended with, as it is kept with the turn. */
function messageOf(position: unknown): string {
  return asText(asObject(position)['message'])
}
