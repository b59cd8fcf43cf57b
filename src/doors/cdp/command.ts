/**
 * What a client sends, read with distrust: checked as Chrome checks it, and passed on so that no
 * byte of it can be taken for something else.
 *
 * A large message is not written anew. It is parsed once, which proves it to be JSON; then the
 * places of its top-level values are found and only `id` and `sessionId` are replaced.
 */
import { CDP_LIMITS } from './limits.ts'

export type Params = Readonly<Record<string, unknown>>

export type Command = {
  readonly id: number
  readonly method: string
  readonly params: Params | undefined
  readonly sessionId: string | undefined
  /** The message itself, if it is large. */
  readonly raw: Buffer | null
}

/** Why a message is refused, as the protocol's error. */
export type Fault = { readonly code: number; readonly message: string }

/** A message that is no command; its id, if at least that could be read. */
export type Refusal = { readonly id?: number; readonly error: Fault }

export const FAULTS = {
  parse: { code: -32700, message: 'JSON: syntax error' },
  session: { code: -32001, message: 'Session with given id not found.' },
  target: { code: -32602, message: 'No target with given id found' },
  context: { code: -32602, message: 'Failed to find browser context with given id' },
} as const

const KEYS: ReadonlySet<string> = new Set(['id', 'method', 'params', 'sessionId'])

function malformed(message: string, id?: number): Refusal {
  const error = { code: -32600, message }
  return id === undefined ? { error } : { id, error }
}

export function readCommand(data: Buffer | string): Command | Refusal {
  let value: unknown
  try {
    // ws has checked that it is UTF-8.
    value = JSON.parse(data.toString())
  } catch {
    return { error: FAULTS.parse }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return malformed('Message must be an object')
  }
  const raw = Buffer.isBuffer(data) && data.length > CDP_LIMITS.smallBytes ? data : null
  return check(value as Readonly<Record<string, unknown>>, raw)
}

function check(value: Readonly<Record<string, unknown>>, raw: Buffer | null): Command | Refusal {
  const { id, method, params, sessionId } = value
  if (typeof id !== 'number' || (id | 0) !== id) {
    return malformed("Message must have integer 'id' property")
  }
  if (typeof method !== 'string') {
    return malformed("Message must have string 'method' property", id)
  }
  if (sessionId !== undefined && typeof sessionId !== 'string') {
    return malformed("Message may have string 'sessionId' property", id)
  }
  if (params !== undefined && !isParams(params)) {
    return malformed("Message may have object 'params' property", id)
  }
  for (const key in value) {
    if (KEYS.has(key)) continue
    return malformed("Message has property other than 'id', 'method', 'sessionId', 'params'", id)
  }
  return { id, method, params, sessionId, raw }
}

function isParams(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isRefusal(read: Command | Refusal): read is Refusal {
  return 'error' in read
}

/** The message under another id and session; '' is the connection itself. */
export function rewritten(
  { method, params, raw }: Command,
  id: number,
  session: string,
): readonly (string | Uint8Array)[] {
  if (raw !== null) {
    const span = paramsSpan(raw)
    if (span !== null) {
      const head = `{"id":${id},"method":${JSON.stringify(method)}${suffix(session)},"params":`
      return [head, raw.subarray(span.start, span.end), '}']
    }
  }
  return [written(id, method, params, session)]
}

export function written(
  id: number,
  method: string,
  params: Params | undefined,
  session: string,
): string {
  const body = params === undefined ? '' : `,"params":${JSON.stringify(params)}`
  return `{"id":${id},"method":${JSON.stringify(method)}${body}${suffix(session)}}`
}

function suffix(session: string): string {
  return session === '' ? '' : `,"sessionId":"${session}"`
}

type Span = { readonly start: number; readonly end: number }

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a]
const PARAMS = Buffer.from('"params"')

/**
 * Where the value of the top-level `params` stands in a text that is known to be a JSON object;
 * null if there is none, or more than one, or it is not plain which.
 */
export function paramsSpan(text: Buffer): Span | null {
  let found: Span | null = null
  let at = skipSpace(text, 0) + 1
  for (;;) {
    const key = skipSpace(text, at)
    if (text[key] !== QUOTE) return found
    const keyEnd = stringEnd(text, key)
    // A name that is spelled with escapes may be one of ours, and then the last of them counts.
    if (text.subarray(key, keyEnd).includes(BACKSLASH)) return null
    const colon = skipSpace(text, keyEnd)
    if (text[colon] !== COLON) return null
    const start = skipSpace(text, colon + 1)
    const end = valueEnd(text, start)
    if (PARAMS.equals(text.subarray(key, keyEnd))) {
      if (found !== null) return null
      found = { start, end }
    }
    at = skipSpace(text, end)
    if (text[at] !== COMMA) return found
    at += 1
  }
}

function skipSpace(text: Buffer, from: number): number {
  let at = from
  while (at < text.length && (text[at] ?? 0) <= 0x20) at += 1
  return at
}

/** After the closing quote of the string that begins here. */
function stringEnd(text: Buffer, from: number): number {
  let quote = text.indexOf(QUOTE, from + 1)
  while (quote !== -1) {
    let before = quote - 1
    while (text[before] === BACKSLASH) before -= 1
    // An even number of backslashes escape each other.
    if ((quote - 1 - before) % 2 === 0) return quote + 1
    quote = text.indexOf(QUOTE, quote + 1)
  }
  return text.length
}

function valueEnd(text: Buffer, from: number): number {
  let depth = 0
  let at = from
  while (at < text.length) {
    const byte = text[at] ?? 0
    if (byte === QUOTE) {
      at = stringEnd(text, at)
      if (depth === 0) return at
      continue
    }
    const isOpening = byte === 0x7b || byte === 0x5b
    const isClosing = byte === 0x7d || byte === 0x5d
    if (isOpening) depth += 1
    // A number or a word at the top ends before what follows it.
    if (depth === 0 && (byte === COMMA || isClosing)) return at
    at += 1
    if (isClosing) {
      depth -= 1
      if (depth === 0) return at
    }
  }
  return at
}
