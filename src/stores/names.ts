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

const LAST_CODE_POINT = 0x10ffff

/**
 * The stored names of all names that begin with `prefix`, as two ranges in the order of UTF-8:
 * those stored as they are, and those stored as JSON. Each is its first name and the first after
 * it, which is null if there is none.
 */
export function storedRanges(prefix: string): readonly [string, string | null, string, string] {
  const quoted = JSON.stringify(prefix).slice(0, -1)
  const plain = UNSAFE.test(prefix) ? quoted : prefix
  // Begins with a quotation mark: something comes after it.
  return [plain, nameAfter(plain), quoted, nameAfter(quoted) ?? '']
}

/** The first text after all those that begin with `prefix`. */
function nameAfter(prefix: string): string | null {
  const characters = Array.from(prefix)
  for (let last = characters.pop(); last !== undefined; last = characters.pop()) {
    const point = last.codePointAt(0) ?? 0
    if (point === LAST_CODE_POINT) continue
    const next = point === 0xd7ff ? 0xe000 : point + 1
    return characters.join('') + String.fromCodePoint(next)
  }
  return null
}
