/**
 * One diagnostic as one line. Facts may contain values from clients (an origin, a host, a key), so
 * they must not end the line, move a terminal's cursor, reorder its text or make it long.
 */
import type { Diagnostic, DiagnosticLevel, Facts } from './core/index.ts'

export type LineFormat = 'text' | 'json'

/** The characters of a message and of a fact after escaping, and the number of facts. */
const MESSAGE_CHARS_MAX = 2_048
const FACT_CHARS_MAX = 256
const FACTS_MAX = 24

/** Control, format (bidirectional, zero width), unassigned and surrogate characters, separators. */
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/gu
/** Characters that quoting makes longer. */
const LENGTHENED = /["\\\p{C}\p{Zl}\p{Zp}]/u
/** A fact that needs no quotes. */
const PLAIN = /^[\w.:/@+,~-]+$/

const FIELDS: ReadonlySet<string> = new Set(['time', 'level', 'code', 'message'])

const LEVELS: readonly DiagnosticLevel[] = ['debug', 'info', 'warn', 'error']

/** Whether a line of this level is printed if `least` is the lowest level. */
export function isPrinted(level: DiagnosticLevel, least: DiagnosticLevel): boolean {
  return LEVELS.indexOf(level) >= LEVELS.indexOf(least)
}

/** The same diagnostic within the limits of a line. */
export function boundDiagnostic({ message, facts, ...rest }: Diagnostic): Diagnostic {
  const bounded = Object.entries(facts)
    .slice(0, FACTS_MAX)
    .map(([name, value]) => [name, typeof value === 'string' ? clip(value, FACT_CHARS_MAX) : value])
  return {
    ...rest,
    message: clip(message, MESSAGE_CHARS_MAX),
    facts: Object.fromEntries(bounded) as Facts,
  }
}

/** The line, without its end, of a diagnostic within the limits. */
export function diagnosticLine(at: number, diagnostic: Diagnostic, format: LineFormat): string {
  const { level, code, message, facts } = diagnostic
  const time = new Date(at).toISOString()
  if (format === 'json') return quote({ time, level, code, message, ...besideFields(facts) })
  const pairs = Object.entries(facts).map(([name, value]) => ` ${name}=${written(value)}`)
  return `${time} ${level.padEnd(5)} ${code}: ${escape(message)}${pairs.join('')}`
}

function written(value: Facts[string]): string {
  if (typeof value !== 'string' || PLAIN.test(value)) return String(value)
  return quote(value)
}

/** A fact must not replace a field of the line. */
function besideFields(facts: Facts): Facts {
  const named = Object.entries(facts).map(([name, value]) => [
    FIELDS.has(name) ? `fact_${name}` : name,
    value,
  ])
  return Object.fromEntries(named) as Facts
}

/** JSON in which every unsafe character is escaped too: it parses to the same value. */
function quote(value: unknown): string {
  return escape(JSON.stringify(value))
}

function escape(text: string): string {
  return text.replace(UNSAFE, (character) =>
    Array.from({ length: character.length }, (_, index) => unit(character, index)).join(''),
  )
}

function unit(character: string, index: number): string {
  return `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`
}

/** The beginning of a text that has at most so many characters after escaping. */
function clip(text: string, charsMax: number): string {
  if (text.length <= charsMax && !LENGTHENED.test(text)) return text
  let length = 0
  let end = 0
  for (const character of text) {
    length += quote(character).length - 2
    if (length > charsMax) return `${text.slice(0, end)}…`
    end += character.length
  }
  return text
}
