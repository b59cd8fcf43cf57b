/**
 * Prints diagnostics as lines, a bounded number of them: an attacker that is refused again and
 * again, each time with another header, must not fill a disk.
 *
 * Diagnostics of one code and one `reason` share a budget of lines, which time fills again. A new
 * one is printed at once if the budget allows it; equal ones and those beyond the budget are
 * counted, and the counts printed when a window of time ends. While there is something to count,
 * the next window is twice as long.
 */
import type { Clock, Diagnostic, DiagnosticLevel, DiagnosticListener } from './core/index.ts'
import { boundDiagnostic, diagnosticLine, isPrinted, type LineFormat } from './diagnostic-line.ts'
import { systemClock } from './platform/clock.ts'

export type PrinterOptions = {
  /** Takes a line with its end. */
  readonly write: (line: string, level: DiagnosticLevel) => void
  /** `text` by default. */
  readonly format?: LineFormat
  /** The lowest level that is printed: `info` by default. */
  readonly level?: DiagnosticLevel
  readonly clock?: Clock
}

const WINDOW_MS = 10_000
const WINDOW_MS_MAX = 600_000
/** Lines at once, and between two more of them. At the level debug an operator wants to see all. */
const BUDGET = { lines: 10, refillMs: 30_000 } as const
const DEBUG_BUDGET = { lines: 1_000, refillMs: 100 } as const
/** Codes and reasons with a window of their own; beyond it the windows are by code alone. */
const WINDOWS_MAX = 256

type Printed = { readonly diagnostic: Diagnostic; repeated: number }

type Window = {
  readonly first: Diagnostic
  ms: number
  /** Lines that may be printed, as of this time. */
  left: number
  at: number
  /** What was printed, by its text. */
  printed: Map<string, Printed>
  /** Those beyond the budget. */
  more: number
  cancel: () => void
}

/** A process may end although a count is still to be printed. */
const backgroundClock: Clock = {
  ...systemClock,
  after(ms, run) {
    const timer = setTimeout(run, ms).unref()
    return () => clearTimeout(timer)
  },
}

export class DiagnosticPrinter {
  readonly #write: PrinterOptions['write']
  readonly #format: LineFormat
  readonly #level: DiagnosticLevel
  readonly #clock: Clock
  readonly #windows = new Map<string, Window>()

  constructor({ write, format, level, clock }: PrinterOptions) {
    this.#write = write
    this.#format = format ?? 'text'
    this.#level = level ?? 'info'
    this.#clock = clock ?? backgroundClock
  }

  /** A listener for `onDiagnostic`. */
  readonly print: DiagnosticListener = (whole) => {
    if (!isPrinted(whole.level, this.#level)) return
    const diagnostic = boundDiagnostic(whole)
    const window = this.#windowOf(diagnostic)
    const text = JSON.stringify([diagnostic.message, diagnostic.facts])
    const known = window.printed.get(text)
    if (known !== undefined) {
      known.repeated += 1
    } else if (this.#spend(window)) {
      window.printed.set(text, { diagnostic, repeated: 0 })
      this.#line(diagnostic)
    } else {
      window.more += 1
    }
  }

  /** Prints what was counted so far. */
  close(): void {
    for (const window of this.#windows.values()) {
      window.cancel()
      this.#tellCounts(window)
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
      at: this.#clock.monotonic(),
      printed: new Map(),
      more: 0,
      cancel: () => undefined,
    }
    this.#windows.set(name, window)
    this.#endLater(name, window)
    return window
  }

  #endLater(name: string, window: Window): void {
    window.cancel = this.#clock.after(window.ms, () => {
      const hasCounted = this.#tellCounts(window)
      this.#refill(window)
      if (!hasCounted && window.left === budgetOf(window.first).lines) {
        this.#windows.delete(name)
        return
      }
      window.ms = hasCounted ? Math.min(window.ms * 2, WINDOW_MS_MAX) : WINDOW_MS
      this.#endLater(name, window)
    })
  }

  #spend(window: Window): boolean {
    this.#refill(window)
    if (window.left < 1) return false
    window.left -= 1
    return true
  }

  #refill(window: Window): void {
    const { lines, refillMs } = budgetOf(window.first)
    const now = this.#clock.monotonic()
    window.left = Math.min(lines, window.left + (now - window.at) / refillMs)
    window.at = now
  }

  /** False if there was nothing to tell. What was repeated stays known, and is not printed anew. */
  #tellCounts(window: Window): boolean {
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
    const line = diagnosticLine(this.#clock.now(), diagnostic, this.#format)
    this.#write(`${line}\n`, diagnostic.level)
  }
}

function budgetOf({ level }: Diagnostic) {
  return level === 'debug' ? DEBUG_BUDGET : BUDGET
}

/** What those that were not printed have in common. */
function summary({ code, level, message, facts: { reason } }: Diagnostic): Diagnostic {
  return { code, level, message, facts: reason === undefined ? {} : { reason } }
}

function counted(diagnostic: Diagnostic, count: number, ms: number, what: string): Diagnostic {
  const { message, facts } = diagnostic
  const seconds = Math.round(ms / 1_000)
  const told = `and ${count.toLocaleString('en')} ${what} within ${seconds} s: ${message}`
  return { ...diagnostic, message: told, facts: { ...facts, count } }
}
