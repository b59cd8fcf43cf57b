/**
 * A client's message, looked through once and not taken apart: what it is called and where its
 * `params` stand. Untrusted, so every byte is checked against the grammar of JSON; whatever is not
 * plain (a name with an escape, a name that comes twice) is left to `JSON.parse`.
 *
 * 1. What is found here is found by `JSON.parse` too, and by any other reader of JSON: there is no
 *    text that means one command here and another in the browser.
 * 2. What Chromium's own reader does not take, it answers without an id, so that nobody could tell
 *    whose it was: that is found here, and never passed on.
 */
export type Scanned = {
  readonly id: number
  readonly method: string
  readonly sessionId: string | undefined
  /** The bytes of an object, known to be JSON; null: there are none. */
  readonly params: Buffer | null
  /** How many values are in them, all levels together. */
  readonly values: number
  /** Why Chromium would not take it; there are no params then. */
  readonly unfit: Unfit | null
}

/** What Chromium calls it. */
export type Unfit = 'stack limit exceeded' | 'invalid number'

const [QUOTE, BACKSLASH, COMMA, COLON, MINUS, DOT, ZERO] = [
  0x22, 0x5c, 0x2c, 0x3a, 0x2d, 0x2e, 0x30,
]
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d]

/** Chromium takes no more; the message itself is at 0, its params at 1. */
export const DEPTH_MAX = 300
/** A number without an exponent is finite if it is no longer. */
const FINITE_CHARS = 300
/** An id is an int32. */
const ID_DIGITS_MAX = 10
/** A string of this length is looked through four bytes at a time from there on. */
const LONG_BYTES = 64
/** So long that no name of a method or a session is longer. */
const NAME_CHARS_MAX = 128

const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word))
const [ID, METHOD, SESSION_ID, PARAMS] = [
  Buffer.from('"id"'),
  Buffer.from('"method"'),
  Buffer.from('"sessionId"'),
  Buffer.from('"params"'),
]
const ESCAPED = new Set(Buffer.from('"\\/bfnrt'))

/** Null: it is no command, or not a plain one. */
export function scan(text: Buffer): Scanned | null {
  return new Scanner(text).command()
}

/** The methods give the place after what they looked at, or -1 if it is not there. */
class Scanner {
  readonly #text: Buffer
  #id: number | null = null
  #method: string | null = null
  #sessionId: string | null = null
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
    if (this.#id === null || this.#method === null) return null
    const [id, method, values, unfit] = [this.#id, this.#method, this.#values, this.#unfit]
    const params = unfit === null ? this.#params : null
    return { id, method, sessionId: this.#sessionId ?? undefined, params, values, unfit }
  }

  #field(at: number): number {
    const nameEnd = this.#plain(at)
    if (nameEnd === -1) return -1
    const colon = this.#space(nameEnd)
    if (this.#text[colon] !== COLON) return -1
    const start = this.#space(colon + 1)
    if (this.#isWord(ID, at)) return this.#takeId(start)
    if (this.#isWord(METHOD, at)) return this.#takeMethod(start)
    if (this.#isWord(SESSION_ID, at)) return this.#takeSession(start)
    return this.#isWord(PARAMS, at) ? this.#takeParams(start) : -1
  }

  #isWord(word: Buffer, at: number): boolean {
    for (let index = 0; index < word.length; index += 1) {
      if (this.#text[at + index] !== word[index]) return false
    }
    return true
  }

  #takeId(start: number): number {
    const text = this.#text
    const isNegative = text[start] === MINUS
    const first = isNegative ? start + 1 : start
    let [at, id] = [first, 0]
    for (; isDigit(text[at] ?? 0); at += 1) id = id * 10 + (text[at] ?? 0) - ZERO
    // Not 1.0, 1e3, 01 or -0: equal to an id, perhaps, but not written as one.
    const isPlain =
      at > first && at - first <= ID_DIGITS_MAX && !(text[first] === ZERO && at > start + 1)
    const signed = isNegative ? -id : id
    if (this.#id !== null || !isPlain || (signed | 0) !== signed) return -1
    this.#id = signed
    return at
  }

  #takeMethod(start: number): number {
    const end = this.#plain(start)
    if (end === -1 || this.#method !== null) return -1
    this.#method = this.#latin(start + 1, end - 1)
    return end
  }

  #takeSession(start: number): number {
    const end = this.#plain(start)
    if (end === -1 || this.#sessionId !== null) return -1
    this.#sessionId = this.#latin(start + 1, end - 1)
    return end
  }

  #takeParams(start: number): number {
    if (this.#params !== null || this.#text[start] !== OPEN) return -1
    const end = this.#value(start, 1)
    if (end !== -1) this.#params = this.#text.subarray(start, end)
    return end
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
    if (byte === OPEN) return this.#object(start, depth)
    if (byte === OPEN_LIST) return this.#list(start, depth)
    if (byte === MINUS || isDigit(byte)) return this.#number(start)
    for (const word of WORDS) if (this.#isWord(word, start)) return start + word.length
    return -1
  }

  /** Past a value that is too deep. It is refused, so its brackets are only counted. */
  #skip(start: number): number {
    const text = this.#text
    this.#unfit ??= 'stack limit exceeded'
    let [at, open] = [start, 0]
    for (; at !== -1 && at < text.length;) {
      const byte = text[at]
      if (byte === OPEN || byte === OPEN_LIST) open += 1
      else if (byte === CLOSE || byte === CLOSE_LIST) open -= 1
      // The end of what it is in.
      if (open < 0 || (open === 0 && byte === COMMA)) return at
      at = byte === QUOTE ? this.#string(at) : at + 1
    }
    return -1
  }

  #latin(start: number, end: number): string {
    return this.#text.toString('latin1', start, end)
  }

  #object(start: number, depth: number): number {
    const text = this.#text
    let at = this.#space(start + 1)
    if (text[at] === CLOSE) return at + 1
    for (;;) {
      if (text[at] !== QUOTE) return -1
      at = this.#string(at)
      if (at === -1) return -1
      at = this.#space(at)
      if (text[at] !== COLON) return -1
      at = this.#value(this.#space(at + 1), depth + 1)
      if (at === -1) return -1
      at = this.#space(at)
      if (text[at] === CLOSE) return at + 1
      if (text[at] !== COMMA) return -1
      at = this.#space(at + 1)
    }
  }

  #list(start: number, depth: number): number {
    const text = this.#text
    let at = this.#space(start + 1)
    if (text[at] === CLOSE_LIST) return at + 1
    for (;;) {
      at = this.#value(at, depth + 1)
      if (at === -1) return -1
      at = this.#space(at)
      if (text[at] === CLOSE_LIST) return at + 1
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

  /** The first four bytes, from here on, with one among them that may be special. */
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

  /** One at least. */
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
