/**
 * One run of an agent's program. It is bounded in time, output and memory, and stopped with its
 * turn. The program has ended when `run` is over, in every case.
 */
import { StringDecoder } from 'node:string_decoder'
import type { Diagnose, RunnerContext, RunnerOutput } from '../../core/index.ts'
import { onAbort } from '../../platform/abort.ts'
import type { Child } from '../../platform/child.ts'
import type { BackendRefusal, OutputFormat, ProgramOutput } from './formats.ts'
import type { ProcessSettings } from './options.ts'

export type ProgramRunParts = {
  readonly child: Child
  readonly stdin: string
  readonly format: OutputFormat
  readonly settings: ProcessSettings
  readonly context: RunnerContext
  readonly diagnose: Diagnose
  /** The backend's session id, if it is known. */
  readonly backend: string | null
}

export type RunOutcome =
  | { readonly type: 'done'; readonly text: string | null }
  /** The program did nothing: the runner may start it in the other way. */
  | { readonly type: 'refused'; readonly refusal: BackendRefusal; readonly message: string }

/** The longest message of a failure. */
const MESSAGE_CHARS_MAX = 500

export class ProgramRun {
  readonly #parts: ProgramRunParts
  /** The failure that the program reported. */
  #failure: string | null = null
  #hasOutput = false
  #lastMessage: string | null = null
  #result: string | null = null

  constructor(parts: ProgramRunParts) {
    this.#parts = parts
  }

  async *run(): AsyncGenerator<RunnerOutput, RunOutcome> {
    const { child, stdin, format, context } = this.#parts
    const endWatch = this.#watch()
    try {
      child.stdin.end(stdin)
      for await (const item of format.read(this.#output())) {
        const output = await this.#take(item)
        if (output !== null) yield output
      }
      const { code } = await child.ended
      context.signal.throwIfAborted()
      return yield* this.#conclude(code === 0)
    } finally {
      endWatch()
      await child.stop()
    }
  }

  /** Stops the program when its turn is cancelled, or when it exceeds a limit. */
  #watch(): () => void {
    const { child, context, settings } = this.#parts
    const { turnMs = Infinity, memoryBytesMax } = settings
    const exceed = (problem: string): void => this.#exceed(problem)
    const ignoreAbort = onAbort(context.signal, () => void child.stop())
    const endSampling = child.limitMemory(memoryBytesMax, exceed)
    const timer = Number.isFinite(turnMs)
      ? setTimeout(exceed, turnMs, `ran longer than ${turnMs} ms`)
      : undefined
    return () => {
      ignoreAbort()
      endSampling()
      clearTimeout(timer)
    }
  }

  #exceed(problem: string): void {
    const { child, context, diagnose } = this.#parts
    const facts = { reason: 'agent', session: context.session.id }
    if (child.problem === null) diagnose('limit_reached', `an agent ${problem}`, facts)
    child.problem ??= problem
    void child.stop()
  }

  /** Its output as text, up to the limit. */
  async *#output(): AsyncGenerator<string> {
    const { child, settings } = this.#parts
    const { outputBytesMax } = settings
    const decoder = new StringDecoder('utf8')
    let bytes = 0
    for await (const chunk of child.output()) {
      bytes += chunk.length
      if (bytes > outputBytesMax) return this.#exceed(`printed more than ${outputBytesMax} bytes`)
      yield decoder.write(chunk)
    }
    yield decoder.end()
  }

  async #take(item: ProgramOutput): Promise<RunnerOutput | null> {
    switch (item.type) {
      case 'session':
        await this.#bind(item.id)
        return null
      case 'result':
        this.#result = item.text
        return null
      case 'failure':
        this.#failure = item.message
        return null
      case 'delta':
        this.#hasOutput = true
        return item
      case 'message':
        this.#hasOutput = true
        this.#lastMessage = item.text
        return item.text === '' ? null : item
      case 'activity':
        if (item.kind === 'tool_use') this.#hasOutput = true
        return item
    }
  }

  /** A session has one backend session: an answer from another one is a failure. */
  async #bind(id: string): Promise<void> {
    const { backend, child, context } = this.#parts
    if (backend === null) return context.bind(id)
    if (id === backend) return
    this.#failure = `it continued another session (${id}) instead of ${backend}`
    child.kill()
  }

  async *#conclude(isSuccess: boolean): AsyncGenerator<RunnerOutput, RunOutcome> {
    const { child, format, backend } = this.#parts
    if (isSuccess && child.problem === null && this.#failure === null) {
      return { type: 'done', text: this.#result === this.#lastMessage ? null : this.#result }
    }
    const { stderr } = child
    const message = [this.#failure ?? '', stderr].join('\n').trim()
    const refusal = backend === null || this.#hasOutput ? null : format.refusal(message, backend)
    if (refusal !== null) return { type: 'refused', refusal, message: shortened(message) }
    const failure = child.redact(this.#failure ?? '')
    yield child.diagnosis(failure)
    const reason = shortened(failure === '' ? (stderr.split('\n').at(-1) ?? '') : failure)
    throw new Error([child.describeEnd(), reason].filter(Boolean).join(': '))
  }
}

function shortened(text: string): string {
  return text.length > MESSAGE_CHARS_MAX ? `${text.slice(0, MESSAGE_CHARS_MAX)} …` : text
}
