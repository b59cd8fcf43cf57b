/** The lines of a stream, of a bounded length. */
import type { Readable } from 'node:stream'

/**
 * Null in place of a line that is longer: it is skipped. `isFile`: the end of the input ends its
 * last line; a stream that is cut has not sent all of it.
 */
export async function* linesIn(
  input: Readable,
  bytesMax: number,
  { isFile = false } = {},
): AsyncGenerator<string | null, void> {
  let parts: Buffer[] = []
  let bytes = 0
  let isSkipped = false
  for await (const chunk of input) {
    let rest: Buffer = typeof chunk === 'string' ? Buffer.from(chunk) : (chunk as Buffer)
    for (let end = rest.indexOf(NEWLINE); end >= 0; end = rest.indexOf(NEWLINE)) {
      if (!isSkipped) yield Buffer.concat([...parts, rest.subarray(0, end)]).toString()
      rest = rest.subarray(end + 1)
      parts = []
      bytes = 0
      isSkipped = false
    }
    if (isSkipped) continue
    parts.push(rest)
    bytes += rest.length
    if (bytes <= bytesMax) continue
    yield null
    parts = []
    bytes = 0
    isSkipped = true
  }
  if (isFile && bytes > 0) yield Buffer.concat(parts).toString()
}

const NEWLINE = 10
