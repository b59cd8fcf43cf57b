/**
 * What `serve` prints: a greeting for people, and diagnostics as lines. Information goes to stdout,
 * warnings and errors to stderr. Never a request's input.
 */
import { diagnoseTo, type Diagnose } from '../core/index.ts'
import { DiagnosticPrinter, type DiagnosticLevel, type DiagnosticListener } from '../index.ts'
import { choiceFlag, UsageError, type Flags, type Values } from './command.ts'

export const LOG_FLAGS: Flags = {
  'log-format': { type: 'string' },
  'log-level': { type: 'string' },
  quiet: { type: 'boolean' },
  'json-log': { type: 'boolean' },
}

export const LOG_HELP = [
  ['--log-format WHAT', 'text, or json: one object per line, for programs (text)'],
  ['--log-level LEVEL', 'the lowest level that is printed: debug, info, warn or error (info)'],
  ['--quiet', 'the same as --log-level error'],
  ['--json-log', 'the same as --log-format json'],
] as const

const FORMATS = ['text', 'json'] as const
const LEVELS = ['debug', 'info', 'warn', 'error'] as const
/** What waits for a reader of a pipe at most; beyond it lines are dropped. */
const UNREAD_BYTES_MAX = 1_048_576
/** What the greeting says already. */
const GREETED: ReadonlySet<string> = new Set(['listening', 'browser_listening', 'draining'])

/** Lines for people, of commands that have no diagnostics too. */
export const say = (message: string): void => console.log(`holdfast: ${message}`)
export const complain = (message: string): void => console.error(`holdfast: ${message}`)

export type Log = {
  readonly onDiagnostic: DiagnosticListener
  readonly diagnose: Diagnose
  /** A line for people alone: nothing where programs read, or below the level. */
  readonly greet: (message: string) => void
  /** One line that says why the command ends: for people as every command says it. */
  readonly fail: Diagnose
  /** Prints what was counted and not told yet. */
  readonly close: () => void
}

export function readLog(values: Values): Log {
  const format = alias(values, 'json-log', 'log-format', FORMATS, 'text', 'json')
  const level = alias(values, 'quiet', 'log-level', LEVELS, 'info', 'error')
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
      format === 'text' ? complain(message) : diagnose(code, message, facts),
    close: () => printer.close(),
  }
}

/** A flag with a choice, and the older flag without a value that means one of them. */
function alias<Choice extends string>(
  values: Values,
  older: string,
  name: string,
  choices: readonly Choice[],
  fallback: Choice,
  meant: Choice,
): Choice {
  if (values[older] !== true) return choiceFlag(values, name, choices) ?? fallback
  if (values[name] === undefined) return meant
  throw new UsageError(`--${older} and --${name} exclude each other`)
}

/** Lines that nobody reads must not fill the memory. */
function write(line: string, level: DiagnosticLevel): void {
  const stream = level === 'warn' || level === 'error' ? process.stderr : process.stdout
  if (stream.writableLength < UNREAD_BYTES_MAX) stream.write(line)
}
