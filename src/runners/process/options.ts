/** How the operator describes a program that is started for each turn. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, list, oneOf, optional } from '../../schema/contract.ts'
import { count, milliseconds, PROGRAM, type Isolated } from '../program-options.ts'

export const ProcessAgent = Type.Object(
  {
    ...PROGRAM,
    ...optional({
      firstArgs: list({ default: [], description: "further arguments in a session's first turn" }),
      laterArgs: list({ default: [], description: 'further arguments in later turns' }),
      output: oneOf(['claude', 'codex', 'text'], {
        default: 'text',
        description: 'its output format: `claude` (stream-json), `codex` (`--json`), `text`',
      }),
      turnMs: milliseconds("how long one turn may take; by default the server's limit"),
      outputBytesMax: count('the maximum output of one turn, in bytes', 67_108_864),
      memoryBytesMax: count(
        'the maximum resident memory of its process group, checked once a second; on Linux only',
        4_294_967_296,
      ),
      killGraceMs: milliseconds(
        "the time between `SIGTERM` and `SIGKILL`; keep it under the server's 5 s " +
          "(`limits.cancelGraceMs`); 0 when a node's lease is lost",
        3_000,
      ),
    }),
  },
  EXACT,
)

export type ProcessOptions = Readonly<Static<typeof ProcessAgent>> & {
  /** Where the sessions' folders are. */
  readonly folder: string
}

export type ProcessSettings = ProcessOptions &
  Required<Omit<ProcessOptions, Isolated | 'cwd' | 'turnMs'>>

/** The placeholders in arguments. */
export type Placeholders = { readonly sessionUuid: string; readonly text: string }

/** No shell is involved: a value stays one argument, and placeholders in it are not replaced. */
export function expandArguments(args: readonly string[], values: Placeholders): string[] {
  assertNoFlag(args, values.text)
  return args.map((argument) =>
    argument.replace(/\{(sessionUuid|text)\}/g, (_, name: keyof Placeholders) => values[name]),
  )
}

export function mentions(args: readonly string[], name: keyof Placeholders): boolean {
  return args.some((argument) => argument.includes(`{${name}}`))
}

/** A caller's text must not become a flag of the command; after `--` it cannot. */
function assertNoFlag(args: readonly string[], text: string): void {
  const place = args.findIndex((argument) => argument.startsWith('{text}'))
  if (place < 0 || !text.startsWith('-') || args.slice(0, place).includes('--')) return
  throw new Error('the text begins with "-", which this agent would read as a flag')
}
