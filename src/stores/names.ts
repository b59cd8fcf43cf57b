/**
 * Names as a database can hold them. SQLite's driver cuts a text at U+0000, PostgreSQL refuses it,
 * and both replace a lone surrogate, so that two names could become one: such names are stored as
 * JSON strings instead, which begin with a quotation mark, and so are those that begin with one
 * themselves. Different names stay different.
 */
const UNSAFE = /^"|[\0\p{Surrogate}]/u

export function storedName(name: string): string {
  return UNSAFE.test(name) ? JSON.stringify(name) : name
}

export function nameFrom(stored: string): string {
  return stored.startsWith('"') ? (JSON.parse(stored) as string) : stored
}

/** A key as it is searched: in any case. What a database cannot hold is replaced. */
export function foldedKey(key: string): string {
  return key.toLowerCase().replaceAll(/[\0\p{Surrogate}]/gu, '\uFFFD')
}

/** The first text after all that begin so, in the order of code points; null: there is none. */
export function prefixEnd(prefix: string): string | null {
  const points = Array.from(prefix, (character) => character.codePointAt(0) ?? 0)
  for (;;) {
    const last = points.pop()
    if (last === undefined) return null
    // Surrogates are no characters.
    if (last < 0x10ffff) return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
  }
}
