/**
 * The flags of a command as one table. Parsing, validation, help and the tables in
 * `docs/reference/cli.md` derive from it.
 */
import { parseArgs } from 'node:util'

/** A wrong command line: printed as one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export type Flag<Value = unknown> = {
  /** The name of its value in help; null for a flag without a value. */
  readonly valueName: string | null
  readonly meaning: string
  /** The default as help shows it. */
  readonly defaultText: string
  readonly isRequired: boolean
  /** The value from the texts on the command line; throws if they are wrong. */
  readonly read: (texts: readonly string[], name: string) => Value
}

export type FlagTable = Readonly<Record<string, Flag>>

export type FlagValues<Table extends FlagTable> = {
  readonly [Name in keyof Table]: Table[Name] extends Flag<infer Value> ? Value : never
}

/** A flag without a value. */
export function toggle(meaning: string): Flag<boolean> {
  const read = (texts: readonly string[]): boolean => texts.length > 0
  return { valueName: null, meaning, defaultText: '', isRequired: false, read }
}

/** A flag with a value; the last one counts. Null if it is missing. */
export function text(valueName: string, meaning: string): Flag<string | null> {
  const read = (texts: readonly string[]): string | null => texts.at(-1) ?? null
  return { valueName, meaning, defaultText: '', isRequired: false, read }
}

/** A flag that may be repeated. */
export function repeated(valueName: string, meaning: string): Flag<readonly string[]> {
  const all = `${meaning}; may be repeated`
  return { ...text(valueName, all), read: (texts) => texts }
}

/** A whole number from `min` to `max`. */
export function number(
  valueName: string,
  meaning: string,
  { min, max }: { readonly min: number; readonly max: number },
): Flag<number | null> {
  return convert(text(valueName, meaning), (given, name) => {
    const value = /^\d{1,15}$/.test(given) ? Number(given) : Number.NaN
    if (value >= min && value <= max) return value
    throw new UsageError(`--${name} must be a whole number from ${min} to ${max}, not ${given}`)
  })
}

/** One of a few words. */
export function choice<Word extends string>(
  valueName: string,
  meaning: string,
  words: readonly Word[],
): Flag<Word | null> {
  return convert(text(valueName, meaning), (given, name) => {
    const word = words.find((candidate) => candidate === given)
    if (word !== undefined) return word
    const known = words.length === 2 ? words.join(' or ') : `one of ${words.join(', ')}`
    throw new UsageError(`--${name} must be ${known}, not ${given}`)
  })
}

function convert<Value>(
  flag: Flag<string | null>,
  valueOf: (given: string, name: string) => Value,
): Flag<Value | null> {
  const read = (texts: readonly string[], name: string): Value | null => {
    const given = texts.at(-1)
    return given === undefined ? null : valueOf(given, name)
  }
  return { ...flag, read }
}

/** The same flag with a default. */
export function orElse<Value>(flag: Flag<Value | null>, fallback: Value): Flag<Value> {
  const read: Flag<Value>['read'] = (texts, name) => flag.read(texts, name) ?? fallback
  return { ...flag, defaultText: String(fallback), read }
}

/** The same flag; its default, which is set elsewhere, only appears in help. */
export function showDefault<Value>(flag: Flag<Value>, defaultText: string | number): Flag<Value> {
  return { ...flag, defaultText: String(defaultText) }
}

/** The same flag, which must be given. */
export function required<Value>(flag: Flag<Value | null>): Flag<Value> {
  const read = (texts: readonly string[], name: string): Value => {
    const value = flag.read(texts, name)
    if (value !== null) return value
    throw new UsageError(`--${name} ${flag.valueName} is required`)
  }
  return { ...flag, isRequired: true, read }
}

/** `--port N`, as help shows it. */
export function flagUsage([name, { valueName }]: readonly [string, Flag]): string {
  return valueName === null ? `--${name}` : `--${name} ${valueName}`
}

/** What was written on a command line, not validated yet. */
export type ParsedArguments = {
  readonly flags: Readonly<Record<string, readonly string[]>>
  readonly words: readonly string[]
}

export function parseArguments(table: FlagTable, args: readonly string[]): ParsedArguments {
  const options = Object.entries(table).map(([name, { valueName }]) => {
    const type = valueName === null ? ('boolean' as const) : ('string' as const)
    return [name, { type, multiple: true }] as const
  })
  const help = { type: 'boolean' as const, short: 'h', multiple: true }
  checkNames([...Object.keys(table), 'help'], args)
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: { ...Object.fromEntries(options), help },
      allowPositionals: true,
    })
    const flags = Object.entries(values).map(([name, given]) => [name, [given].flat().map(String)])
    return { flags: Object.fromEntries(flags), words: positionals }
  } catch (error) {
    const [line = ''] = (error as Error).message.split(/\n|\. /)
    throw new UsageError(line)
  }
}

export function readFlags<Table extends FlagTable>(
  table: Table,
  { flags }: ParsedArguments,
): FlagValues<Table> {
  const values = Object.entries(table).map(([name, flag]) => {
    const texts = flags[name] ?? []
    if (texts.includes('')) throw new UsageError(`--${name} must not be empty`)
    return [name, flag.read(texts, name)]
  })
  return Object.fromEntries(values) as FlagValues<Table>
}

/** Before `parseArgs` does it: its message for an unknown flag has three sentences. */
function checkNames(names: readonly string[], args: readonly string[]): void {
  for (const argument of args) {
    if (argument === '--') return
    const [, name] = /^--([^=]+)/.exec(argument) ?? []
    if (name === undefined || names.includes(name)) continue
    const hint = suggestion(name, names)
    throw new UsageError(`there is no flag --${name}${hint && `: do you mean --${hint}?`}`)
  }
}

/** The name that was probably meant: at most two letters away, or with this beginning; or ''. */
export function suggestion(word: string, names: readonly string[]): string {
  const near = names
    .map((name) => ({ name, distance: name.startsWith(word) ? 1 : distance(word, name) }))
    .filter((candidate) => candidate.distance <= 2)
    .toSorted((one, other) => one.distance - other.distance)
  return near[0]?.name ?? ''
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
