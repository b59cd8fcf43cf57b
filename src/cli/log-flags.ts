/**
 * What `serve` prints: a greeting for people, and diagnostics as lines. Information goes to stdout,
 * warnings and errors to stderr. The input of a request is never printed.
 */
import { diagnoseTo, type Diagnose } from '../core/index.ts'
import { DiagnosticPrinter, type DiagnosticLevel, type DiagnosticListener } from '../index.ts'
import { choice, showDefault, toggle, UsageError, type FlagValues } from './flags.ts'
import { note, say } from './output.ts'

const FORMATS = ['text', 'json'] as const
const LEVELS = ['debug', 'info', 'warn', 'error'] as const

export const LOG_FLAGS = {
  'log-format': showDefault(
    choice('WHAT', 'text, or json: one object per line, for programs', FORMATS),
    'text',
  ),
  'log-level': showDefault(
    choice('LEVEL', 'the lowest level that the server prints: debug, info, warn or error', LEVELS),
    'info',
  ),
  quiet: toggle('the same as --log-level error'),
  'json-log': toggle('the same as --log-format json'),
}

/** The bytes that may wait for a slow reader of a pipe; beyond them lines are dropped. */
const UNREAD_BYTES_MAX = 1_048_576
/** Diagnostics that the greeting replaces. */
const GREETED: ReadonlySet<string> = new Set(['listening', 'browser_listening', 'draining'])

export type ServeLog = {
  readonly onDiagnostic: DiagnosticListener
  readonly diagnose: Diagnose
  /** A line for people; nothing where programs read, or below the level. */
  readonly greet: (message: string) => void
  /** The line that says why the command ends. */
  readonly fail: Diagnose
  /** Prints the counts of repeated diagnostics. */
  readonly close: () => void
}

export function readServeLog(values: FlagValues<typeof LOG_FLAGS>): ServeLog {
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
  return {
    onDiagnostic,
    diagnose,
    greet: (message) => (isGreeting ? say(message) : undefined),
    fail: (code, message, facts) =>
      format === 'text' ? note(message) : diagnose(code, message, facts),
    close: () => printer.close(),
  }
}

/** Drops lines that the reader does not take, so that they do not fill the memory. */
function write(line: string, level: DiagnosticLevel): void {
  const stream = level === 'warn' || level === 'error' ? process.stderr : process.stdout
  if (stream.writableLength < UNREAD_BYTES_MAX) stream.write(line)
}
