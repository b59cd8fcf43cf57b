/** What a command is, and reading its arguments: one clear line when they are wrong. */
import { parseArgs, type ParseArgsConfig } from 'node:util'

export type Flags = NonNullable<ParseArgsConfig['options']>
export type Values = Readonly<Record<string, string | boolean | readonly string[] | undefined>>

export type Command = {
  readonly name: string
  readonly usage: string
  readonly summary: string
  readonly flags: Flags
  /** One line for each flag. */
  readonly help: readonly (readonly [flag: string, meaning: string])[]
  /** Resolves with the exit code. */
  readonly run: (values: Values, words: readonly string[]) => Promise<number>
}

/** The command line is wrong: told in one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export function readArguments(command: Command, args: readonly string[]) {
  const options: Flags = { ...command.flags, help: { type: 'boolean', short: 'h' } }
  checkFlags(command, options, args)
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options,
      allowPositionals: true,
    })
    return { values: values as Values, words: positionals }
  } catch (error) {
    const [line = ''] = (error as Error).message.split(/\n|\. /)
    throw new UsageError(`${line} (see holdfast ${command.name} --help)`)
  }
}

/** Before `parseArgs` does: its own message for an unknown flag is three sentences long. */
function checkFlags(command: Command, options: Flags, args: readonly string[]): void {
  for (const argument of args) {
    if (argument === '--') return
    const [, name] = /^--([^=]+)/.exec(argument) ?? []
    if (name === undefined || Object.hasOwn(options, name)) continue
    const hint = suggestion(name, Object.keys(options))
    const instead = hint === null ? `see holdfast ${command.name} --help` : `do you mean --${hint}?`
    throw new UsageError(`there is no flag --${name}: ${instead}`)
  }
}

/** A whole number between bounds, or `fallback` if the flag is not there. */
export function numberFlag(
  values: Values,
  name: string,
  { fallback, min, max }: { readonly fallback: number; readonly min: number; readonly max: number },
): number {
  const text = textFlag(values, name)
  if (text === null) return fallback
  const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new UsageError(`--${name} must be a whole number from ${min} to ${max}, not ${text}`)
}

export function textFlag(values: Values, name: string): string | null {
  const text = values[name]
  if (text === '') throw new UsageError(`--${name} must not be empty`)
  return typeof text === 'string' ? text : null
}

/** One of a few words, or null if the flag is not there. */
export function choiceFlag<Choice extends string>(
  values: Values,
  name: string,
  choices: readonly Choice[],
): Choice | null {
  const text = textFlag(values, name)
  if (text === null) return null
  const choice = choices.find((candidate) => candidate === text)
  if (choice !== undefined) return choice
  throw new UsageError(`--${name} must be one of ${choices.join(', ')}, not ${text}`)
}

/** Every value of a flag that may be repeated. */
export function listFlag(values: Values, name: string): readonly string[] {
  const texts = values[name]
  if (!Array.isArray(texts)) return []
  if (texts.includes('')) throw new UsageError(`--${name} must not be empty`)
  return texts as readonly string[]
}

export function commandHelp({ usage, summary, help }: Command): string {
  const width = Math.max(...help.map(([flag]) => flag.length))
  const flags = help.map(([flag, meaning]) => `  ${flag.padEnd(width)}  ${meaning}`)
  return [`Usage: holdfast ${usage}`, '', summary, '', ...flags].join('\n')
}

/** The name that was probably meant: at most two letters away, or a beginning. */
export function suggestion(word: string, names: readonly string[]): string | null {
  const near = names
    .map((name) => ({ name, distance: name.startsWith(word) ? 1 : distance(word, name) }))
    .filter((candidate) => candidate.distance <= 2)
    .toSorted((one, other) => one.distance - other.distance)
  return near[0]?.name ?? null
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
