/** Lines of a stream. */

/**
 * The lines of UTF-8 bytes or texts, without their ends; the last one may have none. Throws if a
 * line is longer than `charsMax`.
 */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array | string>,
  charsMax: number,
): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of chunks) {
    const text = typeof chunk === 'string' ? chunk : decoder.decode(chunk, { stream: true })
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/)
    rest = lines.pop() ?? ''
    yield* lines
    if (rest.length > charsMax)
      throw new Error(`a line of more than ${charsMax} characters was sent`)
  }
  if (rest !== '') yield rest
}
