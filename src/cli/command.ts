/**
 * A command: its flags as one table, its words, how it is run, and its help. Parsing, validation,
 * help and the tables in `docs/reference/cli.md` derive from the table.
 */
import { parseArgs } from 'node:util'

/** A wrong command line: printed as one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export class Flag<Value = unknown> {
  /** The name of its value in help; null for a flag without a value. */
  readonly valueName: string | null
  readonly meaning: string
  /** The value from the texts on the command line; throws if they are wrong. */
  readonly read: (texts: readonly string[], name: string) => Value
  /** The default as help shows it. */
  defaultText = ''
  isRequired = false

  constructor(valueName: string | null, meaning: string, read: Flag<Value>['read']) {
    this.valueName = valueName
    this.meaning = meaning
    this.read = read
  }

  /** The same flag with a default. */
  or(fallback: NonNullable<Value>): Flag<NonNullable<Value>> {
    return this.#ifMissing(() => fallback).showing(String(fallback))
  }

  /** A default that is set elsewhere: it only appears in help. */
  showing(defaultText: string | number): this {
    this.defaultText = String(defaultText)
    return this
  }

  required(): Flag<NonNullable<Value>> {
    const flag = this.#ifMissing((name) => {
      throw new UsageError(`--${name} ${this.valueName} is required`)
    })
    flag.isRequired = true
    return flag
  }

  #ifMissing(instead: (name: string) => NonNullable<Value>): Flag<NonNullable<Value>> {
    const read: Flag<NonNullable<Value>>['read'] = (texts, name) =>
      this.read(texts, name) ?? instead(name)
    return new Flag(this.valueName, this.meaning, read)
  }
}

export type FlagTable = Readonly<Record<string, Flag>>

export type FlagValues<Table extends FlagTable> = {
  readonly [Name in keyof Table]: Table[Name] extends Flag<infer Value> ? Value : never
}

/** A flag without a value. */
export function toggle(meaning: string): Flag<boolean> {
  return new Flag(null, meaning, (texts) => texts.length > 0)
}

/** A flag with a value; the last one counts. Null if it is missing. */
export function text(valueName: string, meaning: string): Flag<string | null> {
  return new Flag(valueName, meaning, (texts) => texts.at(-1) ?? null)
}

export function repeated(valueName: string, meaning: string): Flag<readonly string[]> {
  return new Flag(valueName, `${meaning}; may be repeated`, (texts) => texts)
}

/** A whole number: `number('N', 'the port').between(0, 65_535)`. */
export function number(valueName: string, meaning: string) {
  const between = (min: number, max: number): Flag<number | null> =>
    new Flag(valueName, meaning, (texts, name) => {
      const given = texts.at(-1)
      if (given === undefined) return null
      const value = /^\d{1,15}$/.test(given) ? Number(given) : Number.NaN
      if (value >= min && value <= max) return value
      throw new UsageError(`--${name} must be a whole number from ${min} to ${max}, not ${given}`)
    })
  return { between }
}

export function choice<Word extends string>(
  valueName: string,
  meaning: string,
  words: readonly Word[],
): Flag<Word | null> {
  return new Flag(valueName, meaning, (texts, name) => {
    const given = texts.at(-1)
    const word = words.find((candidate) => candidate === given)
    if (word !== undefined || given === undefined) return word ?? null
    const known = words.length === 2 ? words.join(' or ') : `one of ${words.join(', ')}`
    throw new UsageError(`--${name} must be ${known}, not ${given}`)
  })
}

/** `--port N`, as help shows it. */
export function flagUsage([name, { valueName }]: readonly [string, Flag]): string {
  return valueName === null ? `--${name}` : `--${name} ${valueName}`
}

/** The flags and words of a command line, not validated yet. */
export function parseArguments(table: FlagTable, args: readonly string[]) {
  const options = Object.entries(table).map(([name, { valueName }]) => {
    const type = valueName === null ? ('boolean' as const) : ('string' as const)
    return [name, { type, multiple: true }] as const
  })
  const help = { type: 'boolean' as const, short: 'h', multiple: true }
  checkNames(table, args)
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: { ...Object.fromEntries(options), help },
      allowPositionals: true,
    })
    const texts = Object.entries(values).map(([name, given]) => [name, [given].flat().map(String)])
    const flags: Readonly<Record<string, readonly string[]>> = Object.fromEntries(texts)
    return { flags, words: positionals }
  } catch (error) {
    const [line = ''] = (error as Error).message.split(/\n|\. /)
    throw new UsageError(line)
  }
}

export function readFlags<Table extends FlagTable>(
  table: Table,
  { flags }: ReturnType<typeof parseArguments>,
): FlagValues<Table> {
  const values = Object.entries(table).map(([name, flag]) => {
    const texts = flags[name] ?? []
    if (texts.includes('')) throw new UsageError(`--${name} must not be empty`)
    return [name, flag.read(texts, name)]
  })
  return Object.fromEntries(values) as FlagValues<Table>
}

/** Before `parseArgs` does it: its message for an unknown flag has three sentences. */
function checkNames(table: FlagTable, args: readonly string[]): void {
  const names = [...Object.keys(table), 'help'].map((name) => `--${name}`)
  for (const argument of args) {
    if (argument === '--') return
    const [name] = /^--[^=]+/.exec(argument) ?? []
    if (name !== undefined && !names.includes(name)) throw unknownName('flag', name, names)
  }
}

/** The error for an unknown name: with the name that was probably meant, or with `instead`. */
export function unknownName(kind: string, name: string, names: readonly string[], instead = '') {
  const [nearest] = names
    .map((known) => ({ known, letters: known.startsWith(name) ? 1 : distance(name, known) }))
    .filter(({ letters }) => letters <= 2)
    .toSorted((one, other) => one.letters - other.letters)
  const hint = nearest === undefined ? instead : `do you mean ${nearest.known}?`
  return new UsageError(`there is no ${kind} ${name}${hint && `: ${hint}`}`)
}

/** How many letters to add, drop or change (Levenshtein). */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (const [index, letter] of Array.from(from).entries()) {
    const next = [index + 1]
    for (let column = 1; column <= to.length; column += 1) {
      const change = (row[column - 1] ?? 0) + (letter === to[column - 1] ? 0 : 1)
      next.push(Math.min(change, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[to.length] ?? 0
}

/** The words of a command that are no flags. */
type Operands = {
  /** As the usage shows them. */
  readonly usage: string
  /** After "takes", in an error. */
  readonly takes: string
  readonly min: number
  readonly max: number
}

export type CliCommand = ReturnType<typeof defineCommand>

const NO_OPERANDS: Operands = { usage: '', takes: 'flags only', min: 0, max: 0 }
export const ONE_SESSION: Operands = { usage: 'ID|KEY', takes: 'one ID or KEY', min: 1, max: 1 }

export function defineCommand<Table extends FlagTable>(definition: {
  readonly name: string
  readonly operands?: Operands
  readonly summary: string
  readonly flags: Table
  /** Gets the values of the flags, and the operands; resolves with the exit code, if not 0. */
  readonly run: (values: FlagValues<Table>, operands: readonly string[]) => Promise<number | void>
}) {
  const { name, operands = NO_OPERANDS, summary, flags, run } = definition
  const demanded = Object.entries(flags).filter(([, flag]) => flag.isRequired)
  const parts = [name, operands.usage, ...demanded.map(flagUsage), '[flags]']
  const usage = parts.filter((part) => part !== '').join(' ')
  /** Parses the arguments and runs; resolves with the exit code. */
  const start = async (args: readonly string[]): Promise<number> => {
    const given = withHint(name, () => {
      const parsed = parseArguments(flags, args)
      if (parsed.flags['help'] !== undefined) return null
      const { length, 0: first } = parsed.words
      if (length < operands.min || length > operands.max || first === '') {
        throw new UsageError(`${name} takes ${operands.takes}`)
      }
      return { values: readFlags(flags, parsed), words: parsed.words }
    })
    if (given !== null) return (await run(given.values, given.words)) ?? 0
    console.log(commandHelp(usage, summary, flags))
    return 0
  }
  return { name, usage, summary, flags: flags as FlagTable, start }
}

function withHint<Result>(name: string, read: () => Result): Result {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof UsageError) || error.message.includes('do you mean')) throw error
    throw new UsageError(`${error.message} (see holdfast ${name} --help)`)
  }
}

const HELP_COLUMNS = 100

function commandHelp(usage: string, summary: string, flags: FlagTable): string {
  const all = Object.entries(flags)
  const indent = Math.max(...all.map((entry) => flagUsage(entry).length)) + 4
  const lines = all.map((entry) => {
    const { meaning, defaultText } = entry[1]
    const words = defaultText === '' ? meaning : `${meaning} (${defaultText})`
    const [first, ...rest] = wrap(words, HELP_COLUMNS - indent)
    const head = `  ${flagUsage(entry)}`.padEnd(indent)
    return [`${head}${first}`, ...rest.map((line) => ' '.repeat(indent) + line)].join('\n')
  })
  const about = wrap(summary, HELP_COLUMNS)
  return [`Usage: holdfast ${usage}`, '', ...about, '', ...lines].join('\n')
}

/** Lines of at most so many characters; a longer word has a line of its own. */
export function wrap(text: string, columns: number): readonly string[] {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const line = lines.at(-1)
    if (line === undefined || line.length + 1 + word.length > columns) lines.push(word)
    else lines[lines.length - 1] = `${line} ${word}`
  }
  return lines
}
