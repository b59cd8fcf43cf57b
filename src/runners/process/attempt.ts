/**
 * One start of an agent's program, from its first word to its end. It is bounded in time, output
 * and memory, told to stop when its turn is, and gone when this is over, however that comes about.
 */
import { StringDecoder } from 'node:string_decoder'
import type { RunnerContext, RunnerOutput } from '../../core/index.ts'
import { Child, describeEnd, type ChildEnd, type ChildOptions } from '../../platform/child.ts'
import { redact } from '../../platform/secrets.ts'
import { groupMemory } from '../../platform/processes.ts'
import type { Dialect, Refusal, Said } from './dialect.ts'

export type Bounds = {
  /** How long one turn may take; the server's own bound comes on top of it. */
  readonly turnMs: number
  /** What the program may print in one turn. */
  readonly outputBytesMax: number
  /** The resident memory of the program and what it started, sampled (Linux only). */
  readonly memoryBytesMax: number
  /** Between SIGTERM and SIGKILL. */
  readonly killGraceMs: number
}

export type AttemptOptions = {
  readonly child: ChildOptions
  readonly stdin: string
  readonly dialect: Dialect
  readonly bounds: Bounds
  /** The backend's session id, if it is known. */
  readonly backend: string | null
}

export type Outcome =
  | { readonly type: 'done'; readonly text: string | null }
  /** Nothing has happened: the other way to begin may be tried. */
  | { readonly type: 'refused'; readonly refusal: Refusal; readonly words: string }

const MEMORY_SAMPLE_MS = 1_000
/** How much of a failure's words its sentence has. */
const SENTENCE_CHARS_MAX = 500

export class Attempt {
  readonly child: Child
  readonly #options: AttemptOptions
  readonly #context: RunnerContext
  readonly #timers: NodeJS.Timeout[] = []
  readonly #stop = (): void => void this.child.stop(this.#options.bounds.killGraceMs)
  /** Which bound it was stopped by, if any. */
  #problem: string | null = null
  /** What the program itself called its failure. */
  #failure: string | null = null
  #outputBytes = 0
  #hasSpoken = false
  #last: string | null = null
  #result: string | null = null

  constructor(options: AttemptOptions, context: RunnerContext) {
    this.#options = options
    this.#context = context
    this.child = new Child(options.child)
  }

  async *run(): AsyncGenerator<RunnerOutput, Outcome> {
    const { signal } = this.#context
    this.#watch(signal)
    try {
      this.child.stdin.end(this.#options.stdin)
      for await (const said of this.#options.dialect.read(this.#output())) {
        const output = await this.#take(said)
        if (output !== null) yield output
      }
      const end = await this.child.ended
      signal.throwIfAborted()
      return yield* this.#conclude(end)
    } finally {
      signal.removeEventListener('abort', this.#stop)
      for (const timer of this.#timers) clearTimeout(timer)
      await this.child.stop(this.#options.bounds.killGraceMs)
    }
  }

  #watch(signal: AbortSignal): void {
    const { turnMs, memoryBytesMax } = this.#options.bounds
    signal.addEventListener('abort', this.#stop, { once: true })
    if (signal.aborted) this.#stop()
    if (Number.isFinite(turnMs)) {
      const timeOut = (): void => this.#exceed(`ran longer than ${turnMs} ms`)
      this.#timers.push(setTimeout(timeOut, turnMs))
    }
    if (!Number.isFinite(memoryBytesMax) || process.platform !== 'linux') return
    const sample = async (): Promise<void> => {
      const bytes = await groupMemory(this.child.pid ?? -1, this.child.mark)
      if (bytes !== null && bytes > memoryBytesMax) {
        this.#exceed(`used more than ${memoryBytesMax} bytes of memory`)
      }
    }
    this.#timers.push(setInterval(() => void sample(), MEMORY_SAMPLE_MS))
  }

  #exceed(problem: string): void {
    if (this.#problem === null) this.#tellLimit(problem)
    this.#problem ??= problem
    this.#stop()
  }

  #tellLimit(problem: string): void {
    const { diagnose } = this.#options.child
    const { id: session } = this.#context.session
    diagnose?.('limit_reached', `an agent ${problem}`, { reason: 'agent', session })
  }

  /** What it prints, as text and bounded. One that is killed just ends. */
  async *#output(): AsyncGenerator<string> {
    const decoder = new StringDecoder('utf8')
    const { outputBytesMax } = this.#options.bounds
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

  async #take(said: Said): Promise<RunnerOutput | null> {
    switch (said.type) {
      case 'session':
        await this.#bind(said.id)
        return null
      case 'result':
        this.#result = said.text
        return null
      case 'failure':
        this.#failure = said.message
        return null
      case 'delta':
        this.#hasSpoken = true
        return said
      case 'message':
        this.#hasSpoken = true
        this.#last = said.text
        return said.text === '' ? null : said
      case 'activity':
        if (said.kind === 'tool_use') this.#hasSpoken = true
        return said
    }
  }

  /** One session has one backend session, for ever: an answer from another is none. */
  async #bind(id: string): Promise<void> {
    const { backend } = this.#options
    if (backend === null) return this.#context.bind(id)
    if (id === backend) return
    this.#failure = `it went on in another session (${id}) than this one's (${backend})`
    this.child.kill()
  }

  async *#conclude(end: ChildEnd): AsyncGenerator<RunnerOutput, Outcome> {
    const { child, dialect, backend } = this.#options
    const stderr = redact(this.child.stderr, child.env).trim()
    if (end.code === 0 && this.#problem === null && this.#failure === null) {
      return { type: 'done', text: this.#result === this.#last ? null : this.#result }
    }
    const words = [this.#failure ?? '', stderr].join('\n').trim()
    const refusal = backend === null || this.#hasSpoken ? null : dialect.refusal(words, backend)
    if (refusal !== null) return { type: 'refused', refusal, words: sentence(words) }
    const { code, signal } = end
    const failure = redact(this.#failure ?? '', child.env)
    yield { type: 'activity', kind: 'diagnosis', data: { code, signal, failure, stderr } }
    const said = sentence(failure === '' ? (stderr.split('\n').at(-1) ?? '') : failure)
    throw new Error([this.#problem ?? describeEnd(end), said].filter(Boolean).join(': '))
  }
}

function sentence(words: string): string {
  return words.length > SENTENCE_CHARS_MAX ? `${words.slice(0, SENTENCE_CHARS_MAX)} …` : words
}
