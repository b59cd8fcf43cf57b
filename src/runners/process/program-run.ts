/**
 * One run of an agent's program. It is bounded in time, output and memory, and stopped with its
 * turn. The program has ended when `run` is over, in every case.
 */
import { StringDecoder } from 'node:string_decoder'
import type { RunnerContext, RunnerOutput } from '../../core/index.ts'
import { Child, describeEnd, type ChildEnd, type ChildOptions } from '../../platform/child.ts'
import { redact } from '../../platform/secrets.ts'
import type { BackendRefusal, OutputFormat, ProgramOutput } from './output-format.ts'

export type ProgramLimits = {
  /** How long one turn may take, besides the server's own limit. */
  readonly turnMs: number
  /** How much the program may print in one turn. */
  readonly outputBytesMax: number
  /** The resident memory of the program and its descendants, sampled (Linux only). */
  readonly memoryBytesMax: number
  /** The time between SIGTERM and SIGKILL. */
  readonly killGraceMs: number
}

export type ProgramRunOptions = {
  readonly child: ChildOptions
  readonly stdin: string
  readonly format: OutputFormat
  readonly limits: ProgramLimits
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
  readonly child: Child
  readonly #options: ProgramRunOptions
  readonly #context: RunnerContext
  #timer: NodeJS.Timeout | undefined
  #endSampling: () => void = () => undefined
  readonly #stop = (): void => void this.child.stop(this.#options.limits.killGraceMs)
  /** The limit that it exceeded, if any. */
  #problem: string | null = null
  /** The failure that the program reported. */
  #failure: string | null = null
  #outputBytes = 0
  #hasOutput = false
  #lastMessage: string | null = null
  #result: string | null = null

  constructor(options: ProgramRunOptions, context: RunnerContext) {
    this.#options = options
    this.#context = context
    this.child = new Child(options.child)
  }

  async *run(): AsyncGenerator<RunnerOutput, RunOutcome> {
    const { signal } = this.#context
    this.#watch(signal)
    try {
      this.child.stdin.end(this.#options.stdin)
      for await (const item of this.#options.format.read(this.#output())) {
        const output = await this.#take(item)
        if (output !== null) yield output
      }
      const end = await this.child.ended
      signal.throwIfAborted()
      return yield* this.#conclude(end)
    } finally {
      signal.removeEventListener('abort', this.#stop)
      clearTimeout(this.#timer)
      this.#endSampling()
      await this.child.stop(this.#options.limits.killGraceMs)
    }
  }

  #watch(signal: AbortSignal): void {
    const { turnMs, memoryBytesMax } = this.#options.limits
    signal.addEventListener('abort', this.#stop, { once: true })
    if (signal.aborted) this.#stop()
    if (Number.isFinite(turnMs)) {
      this.#timer = setTimeout(() => this.#exceed(`ran longer than ${turnMs} ms`), turnMs)
    }
    this.#endSampling = this.child.limitMemory(memoryBytesMax, (problem) => this.#exceed(problem))
  }

  #exceed(problem: string): void {
    if (this.#problem === null) this.#reportLimit(problem)
    this.#problem ??= problem
    this.#stop()
  }

  #reportLimit(problem: string): void {
    const { diagnose } = this.#options.child
    const { id: session } = this.#context.session
    diagnose?.('limit_reached', `an agent ${problem}`, { reason: 'agent', session })
  }

  /** Its output as text, up to the limit. The output of a killed program just ends. */
  async *#output(): AsyncGenerator<string> {
    const decoder = new StringDecoder('utf8')
    const { outputBytesMax } = this.#options.limits
    try {
      for await (const chunk of this.child.stdout as AsyncIterable<Buffer>) {
        this.#outputBytes += chunk.length
        if (this.#outputBytes > outputBytesMax) {
          return this.#exceed(`printed more than ${outputBytesMax} bytes`)
        }
        yield decoder.write(chunk)
      }
    } catch (error) {
      if (!this.child.stdout.destroyed) throw error
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
    const { backend } = this.#options
    if (backend === null) return this.#context.bind(id)
    if (id === backend) return
    this.#failure = `it continued another session (${id}) instead of ${backend}`
    this.child.kill()
  }

  async *#conclude(end: ChildEnd): AsyncGenerator<RunnerOutput, RunOutcome> {
    const { child, format, backend } = this.#options
    const stderr = redact(this.child.stderr, child.env).trim()
    if (end.code === 0 && this.#problem === null && this.#failure === null) {
      return { type: 'done', text: this.#result === this.#lastMessage ? null : this.#result }
    }
    const message = [this.#failure ?? '', stderr].join('\n').trim()
    const refusal = backend === null || this.#hasOutput ? null : format.refusal(message, backend)
    if (refusal !== null) return { type: 'refused', refusal, message: shortened(message) }
    const { code, signal } = end
    const failure = redact(this.#failure ?? '', child.env)
    yield { type: 'activity', kind: 'diagnosis', data: { code, signal, failure, stderr } }
    const reason = shortened(failure === '' ? (stderr.split('\n').at(-1) ?? '') : failure)
    throw new Error([this.#problem ?? describeEnd(end), reason].filter(Boolean).join(': '))
  }
}

function shortened(text: string): string {
  return text.length > MESSAGE_CHARS_MAX ? `${text.slice(0, MESSAGE_CHARS_MAX)} …` : text
}
