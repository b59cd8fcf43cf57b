/**
 * What an agent says during one turn, on its way to the log. The agent speaks when it likes, the
 * log takes it when it can: `room` holds the reading back when too much waits in between.
 */
import type { RunnerOutput } from '../../core/index.ts'
import { BACKLOG_CHARS_MAX } from './options.ts'

export class Outbox {
  #outputs: RunnerOutput[] = []
  #chars = 0
  #end: { readonly error: unknown } | null = null
  #closed = false
  /** Those who wait for something to come or to go. */
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

  /** Nothing more comes. With an error, what came before it is still read first. */
  end(error: unknown = null): void {
    this.#end ??= { error }
    this.#wake()
  }

  /** Resolves when there is room for more, or when nobody reads any longer. */
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
