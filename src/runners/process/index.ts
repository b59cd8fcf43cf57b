/**
 * The runner of programs that are started for each turn, like `claude -p` and `codex exec`, and
 * that store the conversation themselves under a session id.
 *
 * I2: the program of a turn starts only when the one before it has ended.
 * One id: a session's backend id is recorded before a program that may use it starts, or when the
 * program first prints it. After any failure the next turn uses the same id.
 */
import { randomUUID } from 'node:crypto'
import {
  HoldfastError,
  type Diagnose,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerResult,
  type RunnerSession,
  type RunnerTurn,
} from '../../core/index.ts'
import { Workplace } from '../../platform/workplace.ts'
import { expandArguments, mentions } from './arguments.ts'
import { ProgramRun, type ProgramLimits } from './program-run.ts'
import { claude } from './claude.ts'
import { codex } from './codex.ts'
import type { OutputFormat } from './output-format.ts'
import { PROCESS_DEFAULTS, type ProcessOptions } from './options.ts'
import { text } from './text.ts'

export type { ProcessOptions } from './options.ts'

export const OUTPUT_FORMATS: Readonly<Record<NonNullable<ProcessOptions['output']>, OutputFormat>> =
  {
    claude,
    codex,
    text,
  }

/** How many sessions are remembered whose backend has answered; the oldest are forgotten. */
const KNOWN_MAX = 10_000

/** How the program is started: with a new backend session, or with an existing one. */
type Start = { readonly backend: string | null; readonly isFirst: boolean }

export class ProcessRunner implements Runner {
  readonly #options: ProcessOptions
  readonly #format: OutputFormat
  readonly #limits: ProgramLimits
  readonly #workplace: Workplace
  /** The last program of each session, until it has ended. */
  readonly #running = new Map<string, ProgramRun>()
  readonly #known = new Set<string>()
  #diagnose: Diagnose = () => undefined

  constructor(options: ProcessOptions) {
    this.#options = options
    this.#workplace = new Workplace(options)
    this.#format = OUTPUT_FORMATS[options.output ?? 'text']
    this.#limits = withDefaults(PROCESS_DEFAULTS, options)
  }

  reportTo(diagnose: Diagnose): void {
    this.#diagnose = diagnose
  }

  async *run(turn: RunnerTurn, context: RunnerContext): AsyncGenerator<RunnerOutput, RunnerResult> {
    const { id } = context.session
    await this.#clear(id)
    context.signal.throwIfAborted()
    let start = await this.#chooseStart(context)
    for (let starts = 1; ; starts += 1) {
      const outcome = yield* this.#runProgram(turn, context, start)
      if (outcome.type === 'done') {
        this.#remember(id)
        return outcome.text === null ? undefined : { text: outcome.text }
      }
      const { refusal, message: words } = outcome
      const { backend } = start
      const isLost = refusal === 'unknown' && this.#known.delete(id)
      if (!this.#reserves) throw backendLost(backend, words)
      const kind = isLost ? 'context_lost' : 'backend_retried'
      yield { type: 'activity', kind, data: { backend, words } }
      if (starts === 2)
        throw new Error(`it refuses its session as a new one and as an existing one: ${words}`)
      start = { backend, isFirst: refusal === 'unknown' }
    }
  }

  /**
   * Stops the program of a closed session. The session's folder remains: it has the agent's work.
   */
  async release({ id }: RunnerSession): Promise<void> {
    this.#known.delete(id)
    await this.#running.get(id)?.child.stop(this.#limits.killGraceMs)
  }

  lose(session: string | null): void {
    for (const [id, { child }] of this.#running) if (id === (session ?? id)) child.kill()
  }

  async close(): Promise<void> {
    const { killGraceMs } = this.#limits
    const running = [...this.#running.values()]
    await Promise.all(running.map(({ child }) => child.stop(killGraceMs)))
    await this.#workplace.close()
  }

  /** I2: the program of an earlier turn has ended before this one starts. */
  async #clear(session: string): Promise<void> {
    const last = this.#running.get(session)
    if (last === undefined) return
    await last.child.stop(this.#limits.killGraceMs)
    if (this.#running.get(session) === last) this.#running.delete(session)
  }

  /** Whether this runner chooses the backend's session id; else the backend does. */
  get #reserves(): boolean {
    const { args = [], firstArgs = [] } = this.#options
    return mentions([...args, ...firstArgs], 'sessionUuid')
  }

  /** Reserves the backend's session id, if this runner chooses it and there is none yet. */
  async #chooseStart(context: RunnerContext): Promise<Start> {
    const { id, backend } = context.session
    if (!this.#reserves && this.#format.hasSession) return { backend, isFirst: backend === null }
    if (backend !== null || !this.#reserves) {
      return { backend, isFirst: !(await this.#hasAnswered(id, context)) }
    }
    const reserved = randomUUID()
    await context.bind(reserved)
    return { backend: reserved, isFirst: true }
  }

  /**
   * Whether the backend has answered in this session before. A first turn that ended early may not
   * have created the backend's session; if it has, the backend refuses to create it again.
   */
  async #hasAnswered(session: string, context: RunnerContext): Promise<boolean> {
    if (this.#known.has(session)) return true
    for await (const { role } of context.history()) {
      if (role !== 'assistant') continue
      this.#remember(session)
      return true
    }
    return false
  }

  #remember(session: string): void {
    this.#known.delete(session)
    this.#known.add(session)
    const [oldest] = this.#known
    if (this.#known.size > KNOWN_MAX && oldest !== undefined) this.#known.delete(oldest)
  }

  async *#runProgram(turn: RunnerTurn, context: RunnerContext, { backend, isFirst }: Start) {
    const { command, args = [], firstArgs = [], laterArgs = [] } = this.#options
    const all = [...args, ...(isFirst ? firstArgs : laterArgs)]
    const { id } = context.session
    const cwd = await this.#workplace.folderOf(id)
    // I2: if the turn has ended meanwhile, another may have started. No `await` from here on.
    context.signal.throwIfAborted()
    const run = new ProgramRun(
      {
        child: {
          command,
          args: expandArguments(all, { sessionUuid: backend ?? '', text: turn.text }),
          cwd,
          diagnose: this.#diagnose,
          env: this.#workplace.environment(),
        },
        stdin: mentions(all, 'text') ? '' : turn.text,
        format: this.#format,
        limits: this.#limits,
        backend,
      },
      context,
    )
    this.#running.set(id, run)
    try {
      return yield* run.run()
    } finally {
      if (this.#running.get(id) === run) this.#running.delete(id)
    }
  }
}

/** The limits that the options set, and the defaults of the others. */
function withDefaults(defaults: ProgramLimits, options: Partial<ProgramLimits>): ProgramLimits {
  const names = Object.keys(defaults) as (keyof ProgramLimits)[]
  const set = names.map((name) => [name, options[name] ?? defaults[name]])
  return Object.fromEntries(set) as ProgramLimits
}

/** The program chooses its ids, so no turn can continue with this one. */
function backendLost(backend: string | null, words: string): HoldfastError {
  const message = `the agent has lost its session ${backend}: ${words}`
  return new HoldfastError('backend_lost', message)
}

export function processRunner(options: ProcessOptions): Runner {
  return new ProcessRunner(options)
}
