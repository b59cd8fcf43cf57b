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
