/**
 * What `serve` prints: a greeting for people, and diagnostics as lines. Information goes to stdout,
 * warnings and errors to stderr. The input of a request is never printed.
 */
import { diagnoseTo, type Diagnose } from '../core/index.ts'
import { DiagnosticPrinter, type DiagnosticLevel, type DiagnosticListener } from '../index.ts'
import { UsageError } from './flags.ts'
import { note, say } from './output.ts'
import type { ServeValues } from './serve-flags.ts'

/** The bytes that may wait for a slow reader of a pipe; beyond them lines are dropped. */
const UNREAD_BYTES_MAX = 1_048_576
/** Diagnostics that the greeting replaces. */
const GREETED: ReadonlySet<string> = new Set(['listening', 'browser_listening', 'draining'])

export type ServeLog = ReturnType<typeof readServeLog>

export function readServeLog(values: ServeValues) {
  if (values['json-log'] && values['log-format'] !== null) {
    throw new UsageError('--json-log and --log-format exclude each other')
  }
  if (values.quiet && values['log-level'] !== null) {
    throw new UsageError('--quiet and --log-level exclude each other')
  }
  const format = values['json-log'] ? 'json' : (values['log-format'] ?? 'text')
  const level = values.quiet ? 'error' : (values['log-level'] ?? 'info')
  const printer = new DiagnosticPrinter({ write, format, level })
  const isGreeting = format === 'text' && (level === 'info' || level === 'debug')
  const onDiagnostic: DiagnosticListener = (diagnostic) => {
    if (!isGreeting || !GREETED.has(diagnostic.code)) printer.print(diagnostic)
  }
  const diagnose = diagnoseTo(onDiagnostic)
  /** The line that says why the command ends. */
  const fail: Diagnose = (code, message) =>
    format === 'text' ? note(message) : diagnose(code, message)
  return {
    onDiagnostic,
    diagnose,
    fail,
    /** A line for people; nothing where programs read, or below the level. */
    greet: (message: string) => (isGreeting ? say(message) : undefined),
    /** Prints the counts of repeated diagnostics. */
    close: () => printer.close(),
  }
}

/** Drops lines that the reader does not take, so that they do not fill the memory. */
function write(line: string, level: DiagnosticLevel): void {
  const stream = level === 'warn' || level === 'error' ? process.stderr : process.stdout
  if (stream.writableLength < UNREAD_BYTES_MAX) stream.write(line)
}
