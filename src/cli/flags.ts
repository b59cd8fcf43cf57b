/**
 * The flags of a command as one table. Parsing, validation, help and the tables in
 * `docs/reference/cli.md` derive from it.
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

  /** The same flag, which must be given. */
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

/** A flag that may be repeated. */
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

/** One of a few words. */
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
  checkNames(
    [...Object.keys(table), 'help'].map((name) => `--${name}`),
    args,
  )
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
function checkNames(names: readonly string[], args: readonly string[]): void {
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
