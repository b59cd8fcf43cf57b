/**
 * The runner of Codex by its app server: one long-lived child per session, whose approval requests
 * become asks.
 *
 * The id of a thread is bound when Codex has begun to work in it, and later turns resume the thread
 * by that id. If Codex cannot, turns fail with `backend_lost`: there is never a second id.
 */
import {
  NO_CAPABILITIES,
  type AdoptedConversation,
  type Capabilities,
  type ForkSource,
  type Runner,
  type RunnerTurn,
  type Settings,
} from '../../core/index.ts'
import { unlessAborted } from '../../platform/clock.ts'
import { cannotFork } from '../agent-gone.ts'
import {
  assertAdopts,
  checkChoices,
  folderOf,
  mayChooseMode,
  mayFork,
  namedServers,
  placeSettings,
  placesOf,
} from '../agent-settings.ts'
import { asObject, asText } from '../json.ts'
import { base64, partsOf, refusePart } from '../parts.ts'
import { adoptFrom } from '../adopting.ts'
import { CODEX_FILES } from '../conversation-files.ts'
import { PooledRunner, type TurnWork } from '../pooled-runner.ts'
import { withDefaults } from '../program-options.ts'
import { CodexAgent } from './agent.ts'
import {
  CodexAgent as CodexSchema,
  MODE_NAMES,
  type CodexOptions,
  type CodexSettings,
} from './options.ts'
import { FirstStart } from './first-start.ts'
import type { Workspace } from './params.ts'
import { codexConversation } from './rollout.ts'
import { TurnRun } from './turn.ts'

export type { CodexOptions } from './options.ts'

export function codexRunner(options: CodexOptions): Runner {
  return new CodexRunner(options)
}

class CodexRunner extends PooledRunner<CodexAgent> {
  readonly #settings: CodexSettings
  #models: readonly string[] = []
  readonly #firstStart = new FirstStart()

  constructor(options: CodexOptions) {
    const settings = withDefaults(CodexSchema, options) as CodexSettings
    super(settings, CODEX_FILES)
    this.#settings = settings
  }

  get capabilities(): Capabilities {
    const modes = MODE_NAMES.filter((mode) => mayChooseMode(mode, this.#settings))
    return {
      ...NO_CAPABILITIES,
      ...{ asks: true, images: true, steering: true, load: true, plans: true },
      settings: ['mode', 'model', 'instructions', ...placeSettings(this.#settings)],
      mcpServers: Object.keys(this.#settings.mcpServers ?? {}),
      modes,
      models: this.#models,
      fork: mayFork(this.#settings) ? 'any' : null,
    }
  }

  checkSettings(settings: Settings): void {
    checkChoices(settings, this.#settings, MODE_NAMES)
  }

  /**
   * The first turn of the fork copies the thread: a thread is open in one child only. A turn of an
   * earlier version has no id of Codex's, by which it could be found then.
   */
  async fork({ backend, position }: ForkSource): Promise<null> {
    if (backend !== null && turnOf(position) !== '') {
      await this.workplace.keep(asText(asObject(position)['cwd']))
      return null
    }
    throw cannotFork('cannot be forked at a turn that an earlier version ran')
  }

  /** A thread of this home, in a folder that sessions may work in. */
  async adopt(backend: string, settings: Settings): Promise<AdoptedConversation> {
    assertAdopts(this.#settings)
    const source = { workplace: this.workplace, files: CODEX_FILES }
    const adopted = await adoptFrom(source, backend, codexConversation)
    this.checkSettings({ ...adopted.settings, ...settings })
    return adopted
  }

  protected async work({
    turn,
    context,
    outbox,
    folders,
    accept,
    keep,
    sent,
  }: TurnWork): Promise<void> {
    const { signal, settings } = context
    const { id } = context.session
    const input = inputOf(turn)
    const cwd = folderOf(context.session, folders.cwd)
    const workspace = await this.#workspace(settings, cwd)
    const started = await this.#firstStart.enter(signal)
    const use = this.#usage(id, workspace, { folders, signal })
    const work = async (agent: CodexAgent): Promise<void> => {
      started(true)
      this.#models = agent.models
      const thread = await unlessAborted(agent.open(context.session, workspace), signal)
      const say = (text: string): void => void agent.steer(thread, run, [textInput(text)])
      const run = new TurnRun({ context, outbox, settings: this.#settings, thread: thread.id, say })
      const onAccepted = (): void => {
        sent(run.id ?? '')
        keep({ turn: run.id, cwd: workspace.cwd })
        accept(async (message) => agent.steer(thread, run, inputOf(message)))
      }
      const record = outbox.push.bind(outbox)
      await agent.turn(thread, { input, settings, workspace, run, signal, record, onAccepted })
    }
    await this.use(use, work).finally(() => started(false))
  }

  async #workspace(settings: Settings, own: string): Promise<Workspace> {
    const places = await placesOf(settings, this.#settings, own)
    return { ...places, servers: namedServers(settings, this.#settings) }
  }

  /** A thread has the MCP servers that it was opened with: others need another child. */
  #usage(
    session: string,
    { servers: named }: Workspace,
    { folders, signal }: Pick<TurnWork, 'folders'> & { readonly signal: AbortSignal },
  ) {
    const servers = JSON.stringify(named)
    const start = (): CodexAgent =>
      new CodexAgent(this.workplace, this.#settings, { folders, servers })
    const fits = (agent: CodexAgent): boolean => agent.servers === servers
    return { session, signal, start, fits }
  }
}

/** Codex's id of a turn, as it is kept with the turn. */
function turnOf(position: unknown): string {
  return asText(asObject(position)['turn'])
}

function inputOf(turn: RunnerTurn): readonly object[] {
  return partsOf(turn).map((part) => {
    if (part.type === 'text') return textInput(part.text)
    if (part.type === 'file') throw refusePart('file')
    return { type: 'image', url: `data:${part.mediaType};base64,${base64(part.data)}` }
  })
}

function textInput(text: string): object {
  return { type: 'text', text, text_elements: [] }
}
