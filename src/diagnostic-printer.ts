/**
 * Prints diagnostics as lines, at a limited rate: an attacker that is refused many times, each time
 * with another header, must not fill a disk. Facts may contain values from clients (an origin, a
 * host, a key): they must not end the line, move a terminal's cursor, reorder its text, or make it
 * long.
 *
 * Diagnostics of one code and one `reason` share a budget of lines, which refills with time. A new
 * diagnostic is printed at once if the budget allows it; equal ones and those beyond the budget are
 * counted, and the counts are printed at the end of a time window. While there are counts, the next
 * window is twice as long.
 */
import type { Clock, Diagnostic, DiagnosticLevel, DiagnosticListener, Facts } from './core/index.ts'
import { systemClock } from './platform/clock.ts'

export const LINE_FORMATS = ['text', 'json'] as const
export type LineFormat = (typeof LINE_FORMATS)[number]

/** The lowest first. */
export const LOG_LEVELS: readonly DiagnosticLevel[] = ['debug', 'info', 'warn', 'error']

export type PrinterOptions = {
  /** Gets a line with its end. */
  readonly write: (line: string, level: DiagnosticLevel) => void
  /** `text` by default. */
  readonly format?: LineFormat
  /** The lowest level that is printed: `info` by default. */
  readonly level?: DiagnosticLevel
  readonly clock?: Clock
}

const WINDOW_MS = 10_000
const WINDOW_MS_MAX = 600_000
/** The lines of a burst, and the time for one more. At the level debug an operator wants all. */
const BUDGET = { lines: 10, refillMs: 30_000 } as const
const DEBUG_BUDGET = { lines: 1_000, refillMs: 100 } as const
/** How many codes with reasons have their own window; beyond it windows are per code. */
const WINDOWS_MAX = 256

/** Where a client comes from: the audit keeps that, and forgets it after a time. */
const ADDRESS = 'address'
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

type Window = {
  readonly first: Diagnostic
  ms: number
  /** How many lines may be printed, at the time `at`. */
  left: number
  at: number
  /** The printed diagnostics by their text. */
  printed: Map<string, { readonly diagnostic: Diagnostic; repeated: number }>
  /** How many were beyond the budget. */
  more: number
  cancel: () => void
}

/** Its timers do not keep the process running. */
const backgroundClock: Clock = {
  ...systemClock,
  after(ms, run) {
    const timer = setTimeout(run, ms).unref()
    return () => clearTimeout(timer)
  },
}

export class DiagnosticPrinter {
  readonly #options: Required<PrinterOptions>
  readonly #windows = new Map<string, Window>()

  constructor(options: PrinterOptions) {
    const { write, format = 'text', level = 'info', clock = backgroundClock } = options
    this.#options = { write, format, level, clock }
  }

  /** A listener for `onDiagnostic`. */
  readonly print: DiagnosticListener = (whole) => {
    if (LOG_LEVELS.indexOf(whole.level) < LOG_LEVELS.indexOf(this.#options.level)) return
    const diagnostic = boundDiagnostic(whole)
    const window = this.#windowOf(diagnostic)
    const text = JSON.stringify([diagnostic.message, diagnostic.facts])
    const known = window.printed.get(text)
    if (known !== undefined) {
      known.repeated += 1
    } else if (this.#refill(window) >= 1) {
      window.left -= 1
      window.printed.set(text, { diagnostic, repeated: 0 })
      this.#line(diagnostic)
    } else {
      window.more += 1
    }
  }

  /** Prints the counts so far. */
  close(): void {
    for (const window of this.#windows.values()) {
      window.cancel()
      this.#printCounts(window)
    }
    this.#windows.clear()
  }

  #windowOf(diagnostic: Diagnostic): Window {
    const { code, facts } = diagnostic
    const byReason = `${code} ${typeof facts['reason'] === 'string' ? facts['reason'] : ''}`
    const isRoom = this.#windows.size < WINDOWS_MAX || this.#windows.has(byReason)
    const name = isRoom ? byReason : code
    const known = this.#windows.get(name)
    if (known !== undefined) return known
    const window: Window = {
      first: diagnostic,
      ms: WINDOW_MS,
      left: budgetOf(diagnostic).lines,
      at: this.#options.clock.monotonic(),
      printed: new Map(),
      more: 0,
      cancel: () => undefined,
    }
    this.#windows.set(name, window)
    this.#endLater(name, window)
    return window
  }

  #endLater(name: string, window: Window): void {
    window.cancel = this.#options.clock.after(window.ms, () => {
      const hasCounted = this.#printCounts(window)
      const isFull = this.#refill(window) === budgetOf(window.first).lines
      if (!hasCounted && isFull) return void this.#windows.delete(name)
      window.ms = hasCounted ? Math.min(window.ms * 2, WINDOW_MS_MAX) : WINDOW_MS
      this.#endLater(name, window)
    })
  }

  /** Returns how many lines may be printed now. */
  #refill(window: Window): number {
    const { lines, refillMs } = budgetOf(window.first)
    const now = this.#options.clock.monotonic()
    window.left = Math.min(lines, window.left + (now - window.at) / refillMs)
    window.at = now
    return window.left
  }

  /** False if there were no counts. Repeated diagnostics stay known, and are only counted. */
  #printCounts(window: Window): boolean {
    const repeated = [...window.printed].filter(([, printed]) => printed.repeated > 0)
    for (const [, printed] of repeated) {
      this.#line(counted(printed.diagnostic, printed.repeated, window.ms, 'more like this'))
      printed.repeated = 0
    }
    const { more } = window
    if (more > 0) this.#line(counted(summary(window.first), more, window.ms, 'others like this'))
    window.printed = new Map(repeated)
    window.more = 0
    return repeated.length > 0 || more > 0
  }

  #line(diagnostic: Diagnostic): void {
    const { clock, format, write } = this.#options
    write(`${diagnosticLine(clock.now(), diagnostic, format)}\n`, diagnostic.level)
  }
}

function budgetOf({ level }: Diagnostic) {
  return level === 'debug' ? DEBUG_BUDGET : BUDGET
}

/** The common part of diagnostics that were not printed. */
function summary({ code, level, message, facts: { reason } }: Diagnostic): Diagnostic {
  return { code, level, message, facts: reason === undefined ? {} : { reason } }
}

function counted(diagnostic: Diagnostic, count: number, ms: number, what: string): Diagnostic {
  const { message, facts } = diagnostic
  const seconds = Math.round(ms / 1_000)
  const text = `and ${count.toLocaleString('en')} ${what} within ${seconds} s: ${message}`
  return { ...diagnostic, message: text, facts: { ...facts, count } }
}

/** The same diagnostic within the limits of a line. */
function boundDiagnostic({ message, facts, ...rest }: Diagnostic): Diagnostic {
  const bounded = Object.entries(facts)
    .filter(([name]) => name !== ADDRESS)
    .slice(0, FACTS_MAX)
    .map(([name, value]) => [name, typeof value === 'string' ? clip(value, FACT_CHARS_MAX) : value])
  return {
    ...rest,
    message: clip(message, MESSAGE_CHARS_MAX),
    facts: Object.fromEntries(bounded) as Facts,
  }
}

/** The line, without its end, of a diagnostic within the limits. */
function diagnosticLine(at: number, diagnostic: Diagnostic, format: LineFormat): string {
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
