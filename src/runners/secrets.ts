/** What a child says about itself is kept for diagnosis; what it was trusted with is not. */

const SECRET_NAME = /key|token|secret|passw|credential|auth/i
/** A shorter value is no secret, and would be found everywhere. */
const SECRET_CHARS_MIN = 8

/** The text without the values of variables that are named like secrets. */
export function redact(text: string, env: Readonly<Record<string, string>>): string {
  let redacted = text
  for (const [name, value] of Object.entries(env)) {
    if (!SECRET_NAME.test(name) || value.length < SECRET_CHARS_MIN) continue
    redacted = redacted.replaceAll(value, `[${name}]`)
  }
  return redacted
}
