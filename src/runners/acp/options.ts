/** The options of an agent that speaks the Agent Client Protocol. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, list, optional } from '../../schema/contract.ts'
import { CHOICES, type Unstated } from '../agent-options.ts'
import { LONG_LIVED, milliseconds, PROGRAM, type Isolated } from '../program-options.ts'

export const AcpAgent = Type.Object(
  {
    ...PROGRAM,
    ...optional({
      perSession: Type.Boolean({
        default: true,
        description:
          'one child for every session, or (`false`) one for all: lighter, but a crash affects ' +
          'all sessions',
      }),
      clientAccess: Type.Boolean({
        default: true,
        description:
          'requests of the agent for files and terminals go to the client whose prompt runs, if ' +
          'it offers them (an editor); otherwise it works with those of the server only',
      }),
      ...LONG_LIVED,
      reopenMs: milliseconds(
        'how long after a session was opened in one child it can be opened in another; the turn ' +
          'waits; by default 0 (`gemini`: 60000)',
      ),
      terminalArgs: list({
        description:
          'the arguments with which its program continues a session in a terminal; ' +
          "`{sessionId}` is the agent's own id of it; by default unknown",
      }),
      ...CHOICES,
    }),
  },
  EXACT,
)

export type AcpOptions = Readonly<Static<typeof AcpAgent>> & {
  /**
   * The parent of the sessions' folders. Without it and `cwd`, all work where this process does.
   */
  readonly folder?: string
}

export type AcpSettings = AcpOptions &
  Required<Omit<AcpOptions, Isolated | Unstated | 'cwd' | 'folder' | 'reopenMs' | 'terminalArgs'>>
