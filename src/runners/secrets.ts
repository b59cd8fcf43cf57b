/** What a child says about itself is kept for diagnosis; what it was trusted with is not. */

const SECRET_NAME = /key|token|secret|passw|credential|auth/i
/** A shorter value is no secret, and would be found everywhere. */
const SECRET_CHARS_MIN = 8

/** The text without the values of variables that are named like secrets. */
export function redact(text: string, env: Readonly<Record<string, string>>): string {
  let redacted = text
  for (const [name, value] of Object.entries(env)) {
    for (const secret of secretsOf(name, value)) {
      redacted = redacted.replaceAll(secret, `[${name}]`)
    }
  }
  return redacted
}

/** The whole value, by its name; or the password in an address. */
function secretsOf(name: string, value: string): readonly string[] {
  if (SECRET_NAME.test(name) && value.length >= SECRET_CHARS_MIN) return [value]
  if (!value.includes('@') || !URL.canParse(value)) return []
  const { password } = new URL(value)
  return password === '' ? [] : [...new Set([password, decodeURIComponent(password)])]
}
