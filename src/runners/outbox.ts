/**
 * The outputs of an agent during one turn that are not recorded yet. `room` delays reading from the
 * agent when too many wait.
 */
import type { RunnerOutput } from '../core/index.ts'

/** Output that is not recorded yet, in characters; beyond it reading from the agent pauses. */
const BACKLOG_CHARS_MAX = 1_048_576

export class Outbox {
  #outputs: RunnerOutput[] = []
  #chars = 0
  #end: { readonly error: unknown } | null = null
  #closed = false
  /** Called when an output was added or removed. */
  #waiting: (() => void)[] = []

  push(output: RunnerOutput): void {
    if (this.#closed || this.#end !== null) return
    this.#chars += size(output)
    const last = this.#outputs.at(-1)
    if (output.type === 'delta' && last?.type === 'delta') {
      this.#outputs[this.#outputs.length - 1] = { type: 'delta', text: last.text + output.text }
    } else {
      this.#outputs.push(output)
    }
    this.#wake()
  }

  /** Ends the outputs. Those before an error are still read first. */
  end(error: unknown = null): void {
    this.#end ??= { error }
    this.#wake()
  }

  /** Resolves when there is room for more, or when the reader has stopped. */
  async room(): Promise<void> {
    while (!this.#closed && this.#chars > BACKLOG_CHARS_MAX) await this.#change()
  }

  async *read(): AsyncGenerator<RunnerOutput, undefined> {
    try {
      for (;;) {
        const outputs = this.#take()
        yield* outputs
        if (outputs.length > 0) continue
        if (this.#end === null) await this.#change()
        else if (this.#end.error === null) return undefined
        else throw this.#end.error
      }
    } finally {
      this.#closed = true
      this.#take()
    }
  }

  #take(): readonly RunnerOutput[] {
    const outputs = this.#outputs
    this.#outputs = []
    this.#chars = 0
    this.#wake()
    return outputs
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }
}

function size(output: RunnerOutput): number {
  return output.type === 'activity'
    ? (JSON.stringify(output.data)?.length ?? 0)
    : output.text.length
}

export function activity(kind: string, data: unknown): RunnerOutput {
  return { type: 'activity', kind, data }
}
