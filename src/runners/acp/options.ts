/** The options of an agent that speaks the Agent Client Protocol. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, oneOf, optional } from '../../schema/contract.ts'
import { count, milliseconds, PROGRAM, type Isolated } from '../program-options.ts'

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
      childrenMax: count(
        'the maximum number of children; beyond it the server stops the longest idle one, or ' +
          'refuses with `too_many`',
        64,
      ),
      idleMs: milliseconds(
        'how long the server keeps an idle child that can load its sessions again',
        300_000,
      ),
      reopenMs: milliseconds(
        'how long after a session was opened in one child it can be opened in another; the turn ' +
          'waits; by default 0 (`gemini`: 60000)',
      ),
      startMs: milliseconds(
        'how long it may take to start, and to create or load a session',
        60_000,
      ),
      // Less than the grace time of a cancelled turn: the child ends before the next turn starts.
      cancelMs: milliseconds(
        "the time between the cancel request and the kill; keep it under the server's 5 s; 0 " +
          "when a node's lease is lost",
        3_000,
      ),
      memoryBytesMax: count(
        'the maximum resident memory of its process group, checked every second during a turn; ' +
          'on Linux only',
        4_294_967_296,
      ),
      askMs: milliseconds(
        "how long a permission request waits for an answer; by default the server's limit",
      ),
      onNobody: oneOf(['wait', 'deny'], {
        default: 'wait',
        description: 'what happens if no client can answer permissions: `wait` for one, or `deny`',
      }),
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
  Required<Omit<AcpOptions, Isolated | 'cwd' | 'folder' | 'reopenMs' | 'askMs'>>
