/**
 * One diagnostic as one line. Facts may contain values from clients (an origin, a host, a key), so
 * they must not end the line, move a terminal's cursor, reorder its text or make it long.
 */
import type { Diagnostic, DiagnosticLevel, Facts } from './core/index.ts'

export const LINE_FORMATS = ['text', 'json'] as const
export type LineFormat = (typeof LINE_FORMATS)[number]

/** The lowest first. */
export const LOG_LEVELS: readonly DiagnosticLevel[] = ['debug', 'info', 'warn', 'error']

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
  const { level, code, message } = diagnostic
  const time = new Date(at).toISOString()
  const facts = Object.entries(diagnostic.facts)
  if (format === 'json') {
    // A fact must not replace a field of the line.
    const renamed = facts.map(([name, value]) => [FIELDS.has(name) ? `fact_${name}` : name, value])
    return quote({ time, level, code, message, ...Object.fromEntries(renamed) })
  }
  const pairs = facts.map(([name, value]) => ` ${name}=${written(value)}`)
  return `${time} ${level.padEnd(5)} ${code}: ${escape(message)}${pairs.join('')}`
}

function written(value: Facts[string]): string {
  return typeof value !== 'string' || PLAIN.test(value) ? String(value) : quote(value)
}

/** JSON in which every unsafe character is escaped too: it parses to the same value. */
function quote(value: unknown): string {
  return escape(JSON.stringify(value))
}

function escape(text: string): string {
  const unit = (code: string): string => `\\u${code.charCodeAt(0).toString(16).padStart(4, '0')}`
  return text.replace(UNSAFE, (character) => character.split('').map(unit).join(''))
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
