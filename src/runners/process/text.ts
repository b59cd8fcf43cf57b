/** A program that prints its answer as plain text. */
import type { OutputFormat } from './output-format.ts'

export const text: OutputFormat = {
  hasSession: false,

  async *read(output) {
    let whole = ''
    for await (const chunk of output) {
      whole += chunk
      yield { type: 'delta', text: chunk }
    }
    yield { type: 'result', text: whole.trimEnd() }
  },

  refusal: () => null,
}
