/**
 * The runner of programs that are started for each turn, like `claude -p` and `codex exec`, and
 * that store the conversation themselves under a session id.
 *
 * I2: the program of a turn starts only when the one before it has ended.
 * One id: a session's backend id is recorded before a program that may use it starts, or when the
 * program first prints it. After any failure the next turn uses the same id.
 */
import { StringDecoder } from 'node:string_decoder'
import {
  HoldfastError,
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
  type RunnerResult,
  type RunnerSession,
  type RunnerTurn,
  type Settings,
  type TerminalCommand,
} from '../../core/index.ts'
import { onAbort } from '../../platform/clock.ts'
import { Workplace, type Child } from '../../platform/child.ts'
import { eraseFiles, terminalCommand } from '../conversation-files.ts'
import { activity } from '../outbox.ts'
import { OutsideMessages } from '../outside-messages.ts'
import { withDefaults } from '../program-options.ts'
import { ReservedIds } from '../reserved-ids.ts'
import { OUTPUT_FORMATS, type OutputFormat } from './formats.ts'
import {
  expandArguments,
  mentions,
  ProcessAgent,
  type ProcessOptions,
  type ProcessSettings,
} from './options.ts'

export type { ProcessOptions } from './options.ts'

/** The longest message of a failure. */
const MESSAGE_CHARS_MAX = 500

/** How the program is started: with a new backend session, or with an existing one. */
type Start = { readonly backend: string | null; readonly isFirst: boolean }

/** What the program has reported in its output. */
type Report = {
  failure: string | null
  result: string | null
  lastMessage: string | null
  hasOutput: boolean
}

export function processRunner(options: ProcessOptions): Runner {
  return new ProcessRunner(options)
}

export class ProcessRunner implements Runner {
  readonly #settings: ProcessSettings
  readonly #format: OutputFormat
  /** Whether this runner chooses the backend's session id; else the backend does. */
  readonly #reserves: boolean
  readonly #workplace: Workplace
  /** The last program of each session, until it has ended. */
  readonly #running = new Map<string, Child>()
  readonly #ids = new ReservedIds()
  readonly #outside: OutsideMessages

  constructor(options: ProcessOptions) {
    this.#settings = withDefaults(ProcessAgent, options) as ProcessSettings
    const { output, args, firstArgs } = this.#settings
    this.#format = OUTPUT_FORMATS[output]
    this.#reserves = mentions([...args, ...firstArgs], 'sessionUuid')
    this.#workplace = new Workplace(this.#settings)
    this.#outside = new OutsideMessages(this.#workplace, this.#format.files)
  }

  reportTo(diagnose: Diagnose): void {
    this.#workplace.diagnose = diagnose
  }

  async *run(turn: RunnerTurn, context: RunnerContext): AsyncGenerator<RunnerOutput, RunnerResult> {
    // I2: the program of an earlier turn has ended before this one starts.
    await this.#running.get(context.session.id)?.stop()
    context.signal.throwIfAborted()
    const written = await this.#outside.report(context)
    if (written !== null) yield written
    let failure: { readonly error: unknown } | null = null
    let result: RunnerResult
    try {
      result = yield* this.#runTurn(turn, context)
    } catch (error) {
      failure = { error }
    }
    const position = await this.#outside.after(context, null, {})
    if (Object.keys(position).length > 0) yield activity(POSITION_KIND, position)
    if (failure !== null) throw failure.error
    return result
  }

  async *#runTurn(
    turn: RunnerTurn,
    context: RunnerContext,
  ): AsyncGenerator<RunnerOutput, RunnerResult> {
    const { id } = context.session
    let start = await this.#chooseStart(context)
    for (let starts = 1; ; starts += 1) {
      const outcome = yield* this.#runProgram(turn, context, start)
      if (outcome.type === 'done') {
        this.#ids.remember(id)
        return outcome.text === null ? undefined : { text: outcome.text }
      }
      const { refusal, words } = outcome
      const { backend } = start
      const isLost = refusal === 'unknown' && this.#ids.forget(id)
      if (!this.#reserves) {
        // The program chooses its ids, so no turn can continue with this one.
        const message = `the agent has lost its session ${backend}: ${words}`
        throw new HoldfastError('backend_lost', message)
      }
      yield activity(isLost ? 'context_lost' : 'backend_retried', { backend, words })
      if (starts === 2)
        throw new Error(`it refuses its session as a new one and as an existing one: ${words}`)
      start = { backend, isFirst: refusal === 'unknown' }
    }
  }

  terminal(session: OpenedSession, settings: Settings): TerminalCommand | null {
    return terminalCommand(this.#workplace, session, { files: this.#format.files, settings })
  }

  writtenOutside(
    session: OpenedSession,
    last: LastPosition,
  ): Promise<readonly EarlierMessage[] | null> {
    return this.#outside.since(session, last)
  }

  /** Stops the program of a closed session. The session's folder remains until it is erased. */
  async release({ id }: RunnerSession): Promise<void> {
    this.#ids.forget(id)
    this.#outside.forget(id)
    await this.#running.get(id)?.stop()
  }

  erase(session: ErasedSession): Promise<readonly LeftFiles[]> {
    return eraseFiles(this.#workplace, session, { files: this.#format.files })
  }

  lose(session: string | null): void {
    this.#outside.forget(session)
    for (const [id, child] of this.#running) if (id === (session ?? id)) child.kill()
  }

  async close(): Promise<void> {
    await Promise.all([...this.#running.values()].map((child) => child.stop()))
    await this.#workplace.close()
  }

  /** Reserves the backend's session id, if this runner chooses it and there is none yet. */
  async #chooseStart(context: RunnerContext): Promise<Start> {
    const { id, backend } = context.session
    if (!this.#reserves && this.#format.hasSession) return { backend, isFirst: backend === null }
    if (this.#reserves) return this.#ids.start(context)
    return { backend, isFirst: !(await this.#ids.hasAnswered(id, context)) }
  }

  async *#runProgram(turn: RunnerTurn, context: RunnerContext, { backend, isFirst }: Start) {
    const { args, firstArgs, laterArgs } = this.#settings
    const all = [...args, ...(isFirst ? firstArgs : laterArgs)]
    const { session, signal } = context
    const folders = await this.#workplace.foldersOf(session.id)
    // I2: if the turn has ended meanwhile, another may have started. No `await` from here on.
    signal.throwIfAborted()
    const expanded = expandArguments(all, { sessionUuid: backend ?? '', text: turn.text })
    const child = this.#workplace.start(expanded, folders)
    this.#running.set(session.id, child)
    const endWatch = this.#watch(child, context)
    try {
      child.stdin.end(mentions(all, 'text') ? '' : turn.text)
      const report = yield* this.#read(child, context, backend)
      await child.ended
      signal.throwIfAborted()
      const denied = this.#format.denials?.(child.stderr) ?? []
      if (denied.length > 0) yield activity('permission_denied', denied)
      return yield* this.#conclude(child, backend, report)
    } finally {
      endWatch()
      // The program has ended when the run is over, in every case.
      await child.stop()
      if (this.#running.get(session.id) === child) this.#running.delete(session.id)
    }
  }

  /** Stops the program when its turn is cancelled, or when it exceeds a limit. */
  #watch(child: Child, { signal, session }: RunnerContext): () => void {
    const { turnMs = Infinity, memoryBytesMax } = this.#settings
    const exceed = (problem: string): void => this.#exceed(child, session.id, problem)
    const ignoreAbort = onAbort(signal, () => void child.stop())
    const endSampling = child.limitMemory(memoryBytesMax, exceed)
    const tooLong = `ran longer than ${turnMs} ms`
    const timer = Number.isFinite(turnMs) ? setTimeout(exceed, turnMs, tooLong) : undefined
    return () => {
      ignoreAbort()
      endSampling()
      clearTimeout(timer)
    }
  }

  #exceed(child: Child, session: string, problem: string): void {
    const facts = { reason: 'agent', session }
    if (child.problem === null)
      this.#workplace.diagnose('limit_reached', `an agent ${problem}`, facts)
    child.problem ??= problem
    void child.stop()
  }

  /** Its output as text, up to the limit. */
  async *#text(child: Child, session: string): AsyncGenerator<string> {
    const { outputBytesMax } = this.#settings
    const decoder = new StringDecoder('utf8')
    let bytes = 0
    for await (const chunk of child.output()) {
      bytes += chunk.length
      if (bytes > outputBytesMax)
        return this.#exceed(child, session, `printed more than ${outputBytesMax} bytes`)
      yield decoder.write(chunk)
    }
    yield decoder.end()
  }

  async *#read(child: Child, context: RunnerContext, backend: string | null) {
    const report: Report = { failure: null, result: null, lastMessage: null, hasOutput: false }
    for await (const item of this.#format.read(this.#text(child, context.session.id))) {
      if (item.type === 'result') report.result = item.text
      else if (item.type === 'failure') report.failure = item.message
      else if (item.type === 'session') {
        if (backend === null) await context.bind(item.id)
        else if (item.id !== backend) {
          // A session has one backend session: an answer from another one is a failure.
          report.failure = `it continued another session (${item.id}) instead of ${backend}`
          child.kill()
        }
      } else {
        report.hasOutput ||= item.type !== 'activity' || /^tool(_use)?$/.test(item.kind)
        if (item.type === 'message') report.lastMessage = item.text
        if (item.type !== 'message' || item.text !== '') yield item
      }
    }
    return report
  }

  /** How the run has ended. A program that refused did nothing: it may be started otherwise. */
  async *#conclude(child: Child, backend: string | null, report: Report) {
    const { failure: reported, result, lastMessage, hasOutput } = report
    if (child.end?.code === 0 && child.problem === null && reported === null) {
      return { type: 'done', text: result === lastMessage ? null : result } as const
    }
    const { stderr } = child
    const message = `${reported ?? ''}\n${stderr}`.trim()
    const refusal = backend === null || hasOutput ? null : this.#format.refusal(message, backend)
    if (refusal !== null) return { type: 'refused', refusal, words: shortened(message) } as const
    const failure = child.redact(reported ?? '')
    yield child.diagnosis(failure)
    const reason = shortened(failure === '' ? (stderr.split('\n').at(-1) ?? '') : failure)
    throw new Error([child.describeEnd(), reason].filter(Boolean).join(': '))
  }
}

function shortened(text: string): string {
  return text.length > MESSAGE_CHARS_MAX ? `${text.slice(0, MESSAGE_CHARS_MAX)} …` : text
}
