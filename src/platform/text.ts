/** The output of programs and servers as text: its lines, and without secrets. */

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
    const before = rest
    rest += text
    // A long line is not searched again with each of its parts.
    if (/[\r\n]/.test(text) || before.endsWith('\r')) {
      const lines = rest.split(/\r\n|\n|\r(?!$)/)
      rest = lines.pop() ?? ''
      yield* lines
    }
    if (rest.length > charsMax)
      throw new Error(`a line of more than ${charsMax} characters was sent`)
  }
  if (rest !== '') yield rest
}

const SECRET_NAME = /key|token|secret|passw|credential|auth/i
/** A shorter value is no secret, and would match ordinary text. */
const SECRET_CHARS_MIN = 8

/** The text without the values of variables whose names look like secrets. */
export function redact(text: string, env: Readonly<Record<string, string>>): string {
  let redacted = text
  for (const [name, value] of Object.entries(env)) {
    for (const secret of secretsOf(name, value)) {
      redacted = redacted.replaceAll(secret, `[${name}]`)
    }
  }
  return redacted
}

/** The whole value of a variable named like a secret; otherwise the password in a URL. */
function secretsOf(name: string, value: string): readonly string[] {
  if (SECRET_NAME.test(name) && value.length >= SECRET_CHARS_MIN) return [value]
  if (!value.includes('@') || !URL.canParse(value)) return []
  const { password } = new URL(value)
  return password === '' ? [] : [...new Set([password, decoded(password)])]
}

function decoded(password: string): string {
  try {
    return decodeURIComponent(password)
  } catch {
    // A `%` that encodes nothing.
    return password
  }
}
