/** Removes secrets from a child's output, which is kept for diagnosis. */

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
  return password === '' ? [] : [...new Set([password, decodeURIComponent(password)])]
}
