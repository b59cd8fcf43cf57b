/**
 * Scans a client's message once without parsing it: its id, method and session, and the position of
 * its `params`. Clients are not trusted, so every byte is checked against the grammar of JSON; what
 * is unusual (a name with an escape, a repeated name) is left to `JSON.parse`.
 *
 * 1. `JSON.parse` and every other reader of JSON find the same: no text is one command here and
 *    another in the browser.
 * 2. Chromium answers what its own reader refuses without an id, so that the client of the message
 *    would be unknown: such a message is found here, and never forwarded.
 */
export type Scanned = {
  readonly id: number
  readonly method: string
  readonly sessionId: string | undefined
  /** The bytes of an object, known to be JSON; null: there are none. */
  readonly params: Buffer | null
  /** How many values are in them, all levels together. */
  readonly values: number
  /** Why Chromium would refuse it; there are no params then. */
  readonly unfit: Unfit | null
}

/** In Chromium's words. */
export type Unfit = 'stack limit exceeded' | 'invalid number'

const [QUOTE, BACKSLASH, COMMA, COLON, MINUS, DOT, ZERO] = [
  0x22, 0x5c, 0x2c, 0x3a, 0x2d, 0x2e, 0x30,
]
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d]

/** Chromium's limit; the message itself is at 0, its params at 1. */
export const DEPTH_MAX = 300
/** A number without an exponent is finite if it is no longer. */
const FINITE_CHARS = 300
/** Not 1.0, 1e3, 01 or -0: equal to an id, perhaps, but not written as one. */
const PLAIN_ID = /^(0|-?[1-9]\d{0,9})$/
/** After this length a string is scanned four bytes at a time. */
const LONG_BYTES = 64
/** Names of methods and sessions are shorter. */
const NAME_CHARS_MAX = 128

const NAMES = ['id', 'method', 'sessionId', 'params'].map((name) => Buffer.from(`"${name}"`))
const [ID, METHOD, PARAMS] = [0, 1, 3]
const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word))
const ESCAPED = new Set(Buffer.from('"\\/bfnrt'))

/** Null: it is no command, or an unusual one. */
export function scan(text: Buffer): Scanned | null {
  return new Scanner(text).command()
}

/** Methods return the position after what they have scanned, or -1 if it is malformed. */
class Scanner {
  readonly #text: Buffer
  /** Names that have come, as bits. */
  #seen = 0
  #id = ''
  #method: string | undefined
  #sessionId: string | undefined
  #params: Buffer | null = null
  #values = 0
  #unfit: Unfit | null = null
  #words: Int32Array | null = null

  constructor(text: Buffer) {
    this.#text = text
  }

  command(): Scanned | null {
    const text = this.#text
    let at = this.#space(0)
    if (text[at] !== OPEN) return null
    do {
      at = this.#field(this.#space(at + 1))
      if (at === -1) return null
      at = this.#space(at)
    } while (text[at] === COMMA)
    if (text[at] !== CLOSE || this.#space(at + 1) !== text.length) return null
    const [method, sessionId, values] = [this.#method, this.#sessionId, this.#values]
    const id = PLAIN_ID.test(this.#id) ? Number(this.#id) : NaN
    if ((id | 0) !== id || method === undefined) return null
    const [params, unfit] = [this.#params, this.#unfit]
    return { id, method, sessionId, params: unfit === null ? params : null, values, unfit }
  }

  /** A name with its value: one of the four, and each of them once. */
  #field(at: number): number {
    const name = NAMES.findIndex((each) => this.#isWord(each, at))
    const colon = this.#space(at + (NAMES[name]?.length ?? 0))
    if (name === -1 || this.#text[colon] !== COLON || (this.#seen & (1 << name)) !== 0) return -1
    this.#seen |= 1 << name
    const start = this.#space(colon + 1)
    if (name === PARAMS) {
      const end = this.#text[start] === OPEN ? this.#value(start, 1) : -1
      this.#params = this.#text.subarray(start, end)
      return end
    }
    const end = name === ID ? this.#number(start) : this.#plain(start)
    if (name === ID) this.#id = this.#latin(start, end)
    else if (name === METHOD) this.#method = this.#latin(start + 1, end - 1)
    else this.#sessionId = this.#latin(start + 1, end - 1)
    return end
  }

  #isWord(word: Buffer, at: number): boolean {
    for (let index = 0; index < word.length; index += 1) {
      if (this.#text[at + index] !== word[index]) return false
    }
    return true
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

  /** A short string of printable ASCII without escapes. */
  #plain(start: number): number {
    const text = this.#text
    if (text[start] !== QUOTE) return -1
    for (let at = start + 1; at <= start + NAME_CHARS_MAX; at += 1) {
      const byte = text[at] ?? 0
      if (byte === QUOTE) return at + 1
      if (byte < 0x20 || byte > 0x7e || byte === BACKSLASH) return -1
    }
    return -1
  }

  #value(start: number, depth: number): number {
    const byte = this.#text[start] ?? 0
    this.#values += 1
    if (depth > DEPTH_MAX) return this.#skip(start)
    if (byte === QUOTE) return this.#string(start)
    if (byte === OPEN || byte === OPEN_LIST) return this.#items(start, depth)
    if (byte === MINUS || isDigit(byte)) return this.#number(start)
    for (const word of WORDS) if (this.#isWord(word, start)) return start + word.length
    return -1
  }

  /** Skips a value that is nested too deeply; it is refused, so its brackets are only counted. */
  #skip(start: number): number {
    const text = this.#text
    this.#unfit ??= 'stack limit exceeded'
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
    if (((text[at] ?? 0) | 0x20) !== 0x65) {
      return at - start > FINITE_CHARS ? this.#finite(start, at) : at
    }
    const sign = text[at + 1]
    return this.#finite(start, this.#digits(sign === MINUS || sign === 0x2b ? at + 2 : at + 1))
  }

  #finite(start: number, end: number): number {
    if (end !== -1 && !Number.isFinite(Number(this.#latin(start, end)))) {
      this.#unfit ??= 'invalid number'
    }
    return end
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
