/**
 * Reads a client's messages, which are not trusted: each is checked as Chrome checks it, and
 * written so that the browser cannot read another command in it.
 *
 * A scan proves that a message is JSON without parsing it; its `params` are copied as bytes unless
 * a rule reads them. Params that a rule has read are serialised again, so that the browser gets the
 * values that were checked, even if a name in them was escaped or repeated.
 */
import type { CdpLimits } from './limits.ts'
import { CDP_ERRORS, hasAt, type CdpError, type MessageParts, type Params } from './protocol.ts'

export class CdpCommand {
  readonly id: number
  readonly method: string
  readonly sessionId: string | undefined
  /** It has too many values to be parsed here: reading its params throws a RangeError. */
  readonly isVast: boolean
  #params: Buffer | Params | null | undefined

  constructor(
    { id, method, sessionId }: Pick<CdpCommand, 'id' | 'method' | 'sessionId'>,
    params: Buffer | Params | null | undefined,
    isVast = false,
  ) {
    this.id = id
    this.method = method
    this.sessionId = sessionId
    this.isVast = isVast
    this.#params = params
  }

  /** The bytes of its params, until they are parsed. */
  get raw(): Buffer | null {
    return Buffer.isBuffer(this.#params) ? this.#params : null
  }

  get params(): Params | undefined {
    if (this.isVast) throw new RangeError('the command has too many values')
    if (Buffer.isBuffer(this.#params)) this.#params = JSON.parse(this.#params.toString()) as Params
    return this.#params ?? undefined
  }
}

/** A message that is no command; with its id and session, if these could be read. */
type MalformedCommand = {
  readonly id?: number | undefined
  readonly sessionId?: string | undefined
  readonly error: CdpError
}

const KEYS: ReadonlySet<string> = new Set(['id', 'method', 'params', 'sessionId'])

function malformed(message: string, id?: number): MalformedCommand {
  return { id, error: { code: -32600, message } }
}

export function readCommand(data: Buffer, limits: CdpLimits): CdpCommand | MalformedCommand {
  const scanned = scan(data)
  if (scanned === null) return parsed(data, limits)
  const { id, sessionId, unfit, values } = scanned
  if (unfit !== null) return { id, sessionId, error: faultOf(unfit) }
  if (values > limits.valuesMax) return { id, sessionId, error: CDP_ERRORS.values }
  return new CdpCommand(scanned, scanned.params, values > limits.readValuesMax)
}

/** As Chromium words it, but with the id, so that the client knows which command it is. */
function faultOf(unfit: Unfit): CdpError {
  return { code: CDP_ERRORS.parse.code, message: `JSON: ${unfit}` }
}

/** Parses what the scan does not accept, and answers every error as Chrome does. */
function parsed(data: Buffer, { oddBytesMax }: CdpLimits): CdpCommand | MalformedCommand {
  // Parsed, a value of one byte may take fifty.
  if (data.length > oddBytesMax) return { error: CDP_ERRORS.odd }
  let value: unknown
  try {
    // ws has checked that it is UTF-8.
    value = JSON.parse(data.toString())
  } catch {
    // Like Chrome, without the position of the error.
    return { error: CDP_ERRORS.parse }
  }
  return isObject(value) ? check(value) : malformed('Message must be an object')
}

function check(value: Params): CdpCommand | MalformedCommand {
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
  if (params !== undefined && !isObject(params)) {
    return malformed("Message may have object 'params' property", id)
  }
  if (!Object.keys(value).every((key) => KEYS.has(key))) {
    return malformed("Message has property other than 'id', 'method', 'sessionId', 'params'", id)
  }
  const unfit = unfitOf(params, 1)
  if (unfit !== null) return { id, sessionId, error: faultOf(unfit) }
  return new CdpCommand({ id, method, sessionId }, params)
}

function unfitOf(value: unknown, depth: number): Unfit | null {
  if (depth > DEPTH_MAX) return 'stack limit exceeded'
  if (typeof value === 'number') return Number.isFinite(value) ? null : 'invalid number'
  if (typeof value !== 'object' || value === null) return null
  for (const item of Object.values(value)) {
    const unfit = unfitOf(item, depth + 1)
    if (unfit !== null) return unfit
  }
  return null
}

function isObject(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Params up to this size are sent as one text with the rest, which is faster than three parts. */
const TEXT_BYTES_MAX = 4_096

/** The command with another id and session; '' is the connection itself. */
export function rewritten(command: CdpCommand, id: number, session: string): MessageParts {
  const { method, raw } = command
  if (raw === null) return [written(id, method, command.params, session)]
  const suffix = session === '' ? '' : `,"sessionId":"${session}"`
  const head = `{"id":${id},"method":${JSON.stringify(method)}${suffix},"params":`
  if (raw.length <= TEXT_BYTES_MAX) return [`${head}${raw.toString()}}`]
  return [head, raw, '}']
}

export function written(id: number, method: string, params: Params | undefined, session: string) {
  return JSON.stringify({ id, method, params, sessionId: session === '' ? undefined : session })
}

/** In Chromium's words. */
type Unfit = 'stack limit exceeded' | 'invalid number'

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a]
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d]
const [MINUS, DOT, ZERO] = [0x2d, 0x2e, 0x30]

/** Chromium's limit; the message itself is at 0, its params at 1. */
const DEPTH_MAX = 300
/** A number without an exponent is finite if it is no longer. */
const FINITE_CHARS = 300
/** Not 1.0, 1e3, 01 or -0: equal to an id, perhaps, but not written as one. */
const PLAIN_ID = /^(0|-?[1-9]\d{0,9})$/
/** Printable ASCII without escapes. */
const PLAIN = /^[ -[\]-~]*$/
/** After this length a string is scanned four bytes at a time. */
const LONG_BYTES = 64
/** Names of methods and sessions are shorter. */
const NAME_CHARS_MAX = 128

const NAMES = ['id', 'method', 'sessionId', 'params'].map((name) => Buffer.from(`"${name}"`))
const [ID, METHOD, PARAMS] = [0, 1, 3]
const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word))
const ESCAPED = new Set(Buffer.from('"\\/bfnrt'))

/**
 * Scans a client's message once without parsing it: its id, method and session, and the position of
 * its `params`. Clients are not trusted, so every byte is checked against the grammar of JSON; what
 * is unusual (a name with an escape, a repeated name) is left to `JSON.parse`.
 *
 * 1. `JSON.parse` and every other reader of JSON find the same: no text is one command here and
 *    another in the browser.
 * 2. Chromium answers what its own reader refuses without an id, so that the client of the message
 *    would be unknown: such a message is found here, and never forwarded.
 *
 * Null: it is no command, or an unusual one.
 */
export function scan(text: Buffer): Scanned | null {
  const scanned = new Scanned(text)
  return scanned.isCommand() ? scanned : null
}

/** What was found. Methods return the position after what they have scanned; -1: malformed. */
class Scanned {
  id = NaN
  method = ''
  sessionId: string | undefined
  /** The bytes of an object, known to be JSON; null: there are none. */
  params: Buffer | null = null
  /** How many values are in them, all levels together. */
  values = 0
  /** Why Chromium would refuse it. */
  unfit: Unfit | null = null
  readonly #text: Buffer
  /** Names that have come, as bits. */
  #seen = 0
  #words: Int32Array | null = null

  constructor(text: Buffer) {
    this.#text = text
  }

  isCommand(): boolean {
    const text = this.#text
    let at = this.#space(0)
    if (text[at] !== OPEN) return false
    do {
      at = this.#field(this.#space(at + 1))
      if (at === -1) return false
      at = this.#space(at)
    } while (text[at] === COMMA)
    if (text[at] !== CLOSE || this.#space(at + 1) !== text.length) return false
    return (this.id | 0) === this.id && (this.#seen & (1 << METHOD)) !== 0
  }

  /** A name with its value: one of the four, and each of them once. */
  #field(at: number): number {
    const name = NAMES.findIndex((each) => hasAt(this.#text, at, each))
    const colon = this.#space(at + (NAMES[name]?.length ?? 0))
    if (name === -1 || this.#text[colon] !== COLON || (this.#seen & (1 << name)) !== 0) return -1
    this.#seen |= 1 << name
    const start = this.#space(colon + 1)
    if (name === PARAMS) {
      const end = this.#text[start] === OPEN ? this.#value(start, 1) : -1
      this.params = this.#text.subarray(start, end)
      return end
    }
    const isId = name === ID
    const end = isId ? this.#number(start) : this.#string(start)
    if (end === -1 || end - start > NAME_CHARS_MAX) return -1
    const value = isId ? this.#latin(start, end) : this.#latin(start + 1, end - 1)
    const isPlain = isId ? PLAIN_ID.test(value) : this.#text[start] === QUOTE && PLAIN.test(value)
    if (isId) this.id = Number(value)
    else if (name === METHOD) this.method = value
    else this.sessionId = value
    return isPlain ? end : -1
  }

  #space(from: number): number {
    const text = this.#text
    let at = from
    for (;;) {
      const byte = text[at]
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return at
      at += 1
    }
  }

  #value(start: number, depth: number): number {
    const byte = this.#text[start] ?? 0
    this.values += 1
    if (depth > DEPTH_MAX) return this.#skip(start)
    if (byte === QUOTE) return this.#string(start)
    if (byte === OPEN || byte === OPEN_LIST) return this.#items(start, depth)
    if (byte === MINUS || isDigit(byte)) return this.#number(start)
    for (const word of WORDS) if (hasAt(this.#text, start, word)) return start + word.length
    return -1
  }

  /** Skips a value that is nested too deeply; it is refused, so its brackets are only counted. */
  #skip(start: number): number {
    const text = this.#text
    this.unfit ??= 'stack limit exceeded'
    let [at, open] = [start, 0]
    for (; at !== -1 && at < text.length;) {
      const byte = text[at]
      if (byte === OPEN || byte === OPEN_LIST) open += 1
      else if (byte === CLOSE || byte === CLOSE_LIST) open -= 1
      // The end of the enclosing value.
      if (open < 0 || (open === 0 && byte === COMMA)) return at
      at = byte === QUOTE ? this.#string(at) : at + 1
    }
    return -1
  }

  #latin(start: number, end: number): string {
    return this.#text.toString('latin1', start, end)
  }

  /** An object or a list. */
  #items(start: number, depth: number): number {
    const text = this.#text
    const isObject = text[start] === OPEN
    const close = isObject ? CLOSE : CLOSE_LIST
    let at = this.#space(start + 1)
    if (text[at] === close) return at + 1
    for (;;) {
      if (isObject) {
        if (text[at] !== QUOTE) return -1
        at = this.#string(at)
        if (at === -1) return -1
        at = this.#space(at)
        if (text[at] !== COLON) return -1
        at = this.#space(at + 1)
      }
      at = this.#value(at, depth + 1)
      if (at === -1) return -1
      at = this.#space(at)
      if (text[at] === close) return at + 1
      if (text[at] !== COMMA) return -1
      at = this.#space(at + 1)
    }
  }

  #string(start: number): number {
    const text = this.#text
    let at = start + 1
    for (;;) {
      if (at - start > LONG_BYTES && (text.byteOffset + at) % 4 === 0) at = this.#skipPlain(at)
      const byte = text[at] ?? 0
      if (byte === QUOTE) return at + 1
      if (byte < 0x20) return -1
      at = byte === BACKSLASH ? this.#escape(at + 1) : at + 1
      if (at === -1) return -1
    }
  }

  /** The position of the next four bytes that may have a special one among them. */
  #skipPlain(at: number): number {
    const { buffer, byteOffset, length } = this.#text
    const words = (this.#words ??= new Int32Array(buffer, 0, buffer.byteLength >> 2))
    const first = (byteOffset + at) >> 2
    const end = Math.min(words.length, (byteOffset + length) >> 2)
    let word = first
    while (word < end && !hasSpecial(words[word] ?? 0)) word += 1
    return at + (word - first) * 4
  }

  #escape(at: number): number {
    const byte = this.#text[at] ?? 0
    if (ESCAPED.has(byte)) return at + 1
    if (byte !== 0x75) return -1
    for (let digit = at + 1; digit <= at + 4; digit += 1) {
      if (!isHexDigit(this.#text[digit] ?? 0)) return -1
    }
    return at + 5
  }

  #number(start: number): number {
    const text = this.#text
    const first = text[start] === MINUS ? start + 1 : start
    let at = text[first] === ZERO ? first + 1 : this.#digits(first)
    if (at !== -1 && text[at] === DOT) at = this.#digits(at + 1)
    if (at === -1) return -1
    const hasExponent = ((text[at] ?? 0) | 0x20) === 0x65
    if (hasExponent) {
      const sign = text[at + 1]
      at = this.#digits(sign === MINUS || sign === 0x2b ? at + 2 : at + 1)
    }
    const mayExceed = hasExponent ? at !== -1 : at - start > FINITE_CHARS
    const isFinite = !mayExceed || Number.isFinite(Number(this.#latin(start, at)))
    if (!isFinite) this.unfit ??= 'invalid number'
    return at
  }

  /** At least one. */
  #digits(start: number): number {
    let at = start
    while (isDigit(this.#text[at] ?? 0)) at += 1
    return at === start ? -1 : at
  }
}

/** Whether one of four bytes may be a quote, a backslash or a control character. */
function hasSpecial(word: number): boolean {
  const [quote, slash] = [word ^ 0x22222222, word ^ 0x5c5c5c5c]
  const control = ((word - 0x20202020) | 0) & ~word
  const isQuote = ((quote - 0x01010101) | 0) & ~quote
  const isSlash = ((slash - 0x01010101) | 0) & ~slash
  return ((control | isQuote | isSlash) & 0x80808080) !== 0
}

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39
}

function isHexDigit(byte: number): boolean {
  const lower = byte | 0x20
  return isDigit(byte) || (lower >= 0x61 && lower <= 0x66)
}
