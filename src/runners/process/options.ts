/** How the operator describes a program that is started for each turn. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, list, oneOf, optional } from '../../schema/contract.ts'
import { count, milliseconds, PROGRAM } from '../program-options.ts'

export const PROCESS_DEFAULTS = {
  turnMs: Number.POSITIVE_INFINITY,
  outputBytesMax: 67_108_864,
  memoryBytesMax: 4_294_967_296,
  killGraceMs: 3_000,
}

export const ProcessAgent = Type.Object(
  {
    ...PROGRAM,
    ...optional({
      firstArgs: list({
        default: [],
        description: "further arguments in a session's first turn",
      }),
      laterArgs: list({ default: [], description: 'further arguments in later turns' }),
      output: oneOf(['claude', 'codex', 'text'], {
        default: 'text',
        description: 'its output format: `claude` (stream-json), `codex` (`--json`), `text`',
      }),
      turnMs: milliseconds("how long one turn may take; by default the server's limit"),
      outputBytesMax: count(
        'the maximum output of one turn, in bytes',
        PROCESS_DEFAULTS.outputBytesMax,
      ),
      memoryBytesMax: count(
        'the maximum resident memory of its process group, checked once a second; on Linux only',
        PROCESS_DEFAULTS.memoryBytesMax,
      ),
      killGraceMs: milliseconds(
        "the time between `SIGTERM` and `SIGKILL`; keep it under the server's 5 s " +
          "(`limits.cancelGraceMs`); 0 when a node's lease is lost",
        PROCESS_DEFAULTS.killGraceMs,
      ),
    }),
  },
  EXACT,
)

export type ProcessOptions = Readonly<Static<typeof ProcessAgent>> & {
  /** Where the sessions' folders are. */
  readonly folder: string
}
