/**
 * Redacts a browser's traffic for a recording: cookies, credentials, and what was typed or posted
 * are left out, and long texts are cut. The content of pages is kept.
 */
import type { Params } from './protocol.ts'

const REDACTED = '[redacted]'
const LONG_CHARS = 1_000
const SHOWN_CHARS = 200

/** Names of headers and fields whose value is a secret. */
const SECRET_NAME = /^(proxy-)?authorization$|cookie|token|secret|passw|api[-_]?key|^username$/i

/** Fields with input that was posted or passed to a page. */
const SECRET_FIELDS: ReadonlySet<string> = new Set(['postData', 'postDataEntries', 'arguments'])

/** Commands whose params are typed input. */
const TYPED = /^Input\.(insertText|dispatchKeyEvent|imeSetComposition)$/

const URL_SECRET = /([?&#][^=&#\s"]*(?:token|secret|passw|key|auth|sig|code)[^=&#\s"]*=)[^&#\s"]+/gi
const URL_USER = /\/\/[^/?#\s"@]+@/g

export function redacted(message: Params): Params {
  const { method, params } = message
  const typed = typeof method === 'string' && TYPED.test(method) && params !== undefined
  return fieldsOf(typed ? { ...message, params: REDACTED } : message)
}

function fieldsOf(fields: Params): Params {
  const { name, value } = fields
  // A cookie, or a header in a list, has its name in a field.
  const isSecret = typeof name === 'string' && typeof value === 'string'
  const isCookie = isSecret && ('domain' in fields || 'url' in fields || 'httpOnly' in fields)
  return Object.fromEntries(
    Object.entries(fields).map(([key, item]) => {
      const hides = key === 'value' && isSecret && (isCookie || SECRET_NAME.test(name))
      return [key, hides ? REDACTED : valueOf(key, item)]
    }),
  )
}

function valueOf(key: string, item: unknown): unknown {
  if (SECRET_FIELDS.has(key) && item !== undefined) return REDACTED
  if (typeof item === 'string') return SECRET_NAME.test(key) ? REDACTED : textOf(item)
  if (Array.isArray(item)) return item.map((each: unknown) => valueOf('', each))
  return typeof item === 'object' && item !== null ? fieldsOf(item as Params) : item
}

function textOf(text: string): string {
  const { length } = text
  const shown = length > LONG_CHARS ? `${text.slice(0, SHOWN_CHARS)}… [${length} characters]` : text
  return shown.replaceAll(URL_SECRET, `$1${REDACTED}`).replaceAll(URL_USER, `//${REDACTED}@`)
}
