/** A program that prints its answer as it is. */
import type { Dialect } from './dialect.ts'

export const text: Dialect = {
  tellsSession: false,

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
