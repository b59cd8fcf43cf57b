/**
 * The runner of programs that are started once for each turn, like `claude -p` and `codex exec`,
 * and that keep the conversation themselves under a session id.
 *
 * I2: a turn's program begins only when the one before it is gone, whatever became of its turn.
 * One id: a session's backend id is recorded before the program that may use it begins, or when it
 * first tells it; whatever fails then, the next turn goes on with the same one.
 */
import { randomUUID } from 'node:crypto'
import { access, constants } from 'node:fs/promises'
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
import { childEnvironment } from '../../platform/child.ts'
import { sessionFolder } from '../../platform/folders.ts'
import { killOrphans, killOwn, markOf } from '../../platform/processes.ts'
import { expandArguments, mentions } from './arguments.ts'
import { Attempt, type Bounds } from './attempt.ts'
import { claude } from './claude.ts'
import { codex } from './codex.ts'
import type { Dialect } from './dialect.ts'
import { PROCESS_DEFAULTS, type ProcessOptions } from './options.ts'
import { text } from './text.ts'

export type { ProcessOptions } from './options.ts'

export const DIALECTS: Readonly<Record<NonNullable<ProcessOptions['output']>, Dialect>> = {
  claude,
  codex,
  text,
}

/** Sessions whose backend is known to know them, remembered: the longest unused are forgotten. */
const KNOWN_MAX = 10_000

/** How a turn begins: with a new backend session, or with one that there is. */
type Begin = { readonly backend: string | null; readonly isFirst: boolean }

export class ProcessRunner implements Runner {
  readonly #options: ProcessOptions
  readonly #dialect: Dialect
  readonly #bounds: Bounds
  /** The last program of each session, until it is gone. */
  readonly #running = new Map<string, Attempt>()
  readonly #known = new Set<string>()
  readonly #reaped: Promise<unknown>
  #diagnose: Diagnose = () => undefined

  constructor(options: ProcessOptions) {
    this.#options = options
    this.#reaped = killOrphans(options.folder)
    this.#dialect = DIALECTS[options.output ?? 'text']
    const { turnMs, outputBytesMax, memoryBytesMax, killGraceMs } = options
    this.#bounds = {
      turnMs: turnMs ?? PROCESS_DEFAULTS.turnMs,
      outputBytesMax: outputBytesMax ?? PROCESS_DEFAULTS.outputBytesMax,
      memoryBytesMax: memoryBytesMax ?? PROCESS_DEFAULTS.memoryBytesMax,
      killGraceMs: killGraceMs ?? PROCESS_DEFAULTS.killGraceMs,
    }
  }

  reportTo(diagnose: Diagnose): void {
    this.#diagnose = diagnose
  }

  async *run(turn: RunnerTurn, context: RunnerContext): AsyncGenerator<RunnerOutput, RunnerResult> {
    const { id } = context.session
    await this.#clear(id)
    context.signal.throwIfAborted()
    let begin = await this.#begin(context)
    for (let starts = 1; ; starts += 1) {
      const outcome = yield* this.#attempt(turn, context, begin)
      if (outcome.type === 'done') {
        this.#remember(id)
        return outcome.text === null ? undefined : { text: outcome.text }
      }
      const { refusal, words } = outcome
      const { backend } = begin
      const isLost = refusal === 'unknown' && this.#known.delete(id)
      if (!this.#reserves) throw backendLost(backend, words)
      const kind = isLost ? 'context_lost' : 'backend_retried'
      yield { type: 'activity', kind, data: { backend, words } }
      if (starts === 2) throw new Error(`it refuses its session either way: ${words}`)
      begin = { backend, isFirst: refusal === 'unknown' }
    }
  }

  /** The session is over: its program too. Its folder stays, for it is the agent's work. */
  async release({ id }: RunnerSession): Promise<void> {
    this.#known.delete(id)
    await this.#running.get(id)?.child.stop(this.#bounds.killGraceMs)
  }

  lose(session: string | null): void {
    for (const [id, { child }] of this.#running) if (id === (session ?? id)) child.kill()
  }

  async close(): Promise<void> {
    const { killGraceMs } = this.#bounds
    const running = [...this.#running.values()]
    await Promise.all(running.map(({ child }) => child.stop(killGraceMs)))
    await killOwn(this.#options.folder)
  }

  /** I2: what an earlier turn, or an earlier server, left running is gone before this begins. */
  async #clear(session: string): Promise<void> {
    await this.#reaped
    const last = this.#running.get(session)
    if (last === undefined) return
    await last.child.stop(this.#bounds.killGraceMs)
    if (this.#running.get(session) === last) this.#running.delete(session)
  }

  /** Whether the backend's session id is ours to choose; else the backend tells it. */
  get #reserves(): boolean {
    const { args = [], firstArgs = [] } = this.#options
    return mentions([...args, ...firstArgs], 'sessionUuid')
  }

  /** Reserves the backend's session id, if it is ours to choose and there is none yet. */
  async #begin(context: RunnerContext): Promise<Begin> {
    const { id, backend } = context.session
    if (!this.#reserves && this.#dialect.tellsSession) return { backend, isFirst: backend === null }
    if (backend !== null || !this.#reserves) {
      return { backend, isFirst: !(await this.#hasAnswered(id, context)) }
    }
    const reserved = randomUUID()
    await context.bind(reserved)
    return { backend: reserved, isFirst: true }
  }

  /**
   * Whether the backend has answered in this session before. A first turn that died early may have
   * left it without a trace; if it did leave one, the backend says so.
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

  async *#attempt(turn: RunnerTurn, context: RunnerContext, { backend, isFirst }: Begin) {
    const { command, args = [], firstArgs = [], laterArgs = [] } = this.#options
    const all = [...args, ...(isFirst ? firstArgs : laterArgs)]
    const { id } = context.session
    const cwd = await this.#cwd(id)
    // I2: if the turn is over by now, another may have begun; nothing is awaited from here on.
    context.signal.throwIfAborted()
    const attempt = new Attempt(
      {
        child: {
          command,
          args: expandArguments(all, { sessionUuid: backend ?? '', text: turn.text }),
          cwd,
          diagnose: this.#diagnose,
          env: { ...childEnvironment(this.#options), ...markOf(this.#options.folder) },
        },
        stdin: mentions(all, 'text') ? '' : turn.text,
        dialect: this.#dialect,
        bounds: this.#bounds,
        backend,
      },
      context,
    )
    this.#running.set(id, attempt)
    try {
      return yield* attempt.run()
    } finally {
      if (this.#running.get(id) === attempt) this.#running.delete(id)
    }
  }

  async #cwd(session: string): Promise<string> {
    const { cwd, folder } = this.#options
    if (cwd === undefined) return sessionFolder(folder, session)
    await access(cwd, constants.X_OK)
    return cwd
  }
}

/** The program chooses its ids itself, so there is no going on with this one. */
function backendLost(backend: string | null, words: string): HoldfastError {
  const message = `the agent has lost its session ${backend}: ${words}`
  return new HoldfastError('backend_lost', message)
}

export function processRunner(options: ProcessOptions): Runner {
  return new ProcessRunner(options)
}
