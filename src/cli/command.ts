/** A command: its words and flags, how it is run, and its help. */
import {
  flagUsage,
  parseArguments,
  readFlags,
  UsageError,
  type FlagTable,
  type FlagValues,
} from './flags.ts'

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
