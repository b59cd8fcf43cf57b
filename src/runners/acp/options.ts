/** The options of an agent that speaks the Agent Client Protocol. */
import { Type, type Static } from '../../schema/typebox.ts'
import { EXACT, oneOf, optional } from '../../schema/contract.ts'
import { count, milliseconds, PROGRAM } from '../program-options.ts'

export const ACP_DEFAULTS = {
  perSession: true,
  childrenMax: 64,
  idleMs: 300_000,
  reopenMs: 0,
  startMs: 60_000,
  // Less than the grace time of a cancelled turn: the child has ended before the next turn starts.
  cancelMs: 3_000,
  memoryBytesMax: 4_294_967_296,
} as const

export const AcpAgent = Type.Object(
  {
    ...PROGRAM,
    ...optional({
      perSession: Type.Boolean({
        default: ACP_DEFAULTS.perSession,
        description:
          'one child for every session, or (`false`) one for all: lighter, but a crash affects ' +
          'all sessions',
      }),
      childrenMax: count(
        'the maximum number of children; beyond it the server stops the longest idle one, or ' +
          'refuses with `too_many`',
        ACP_DEFAULTS.childrenMax,
      ),
      idleMs: milliseconds(
        'how long the server keeps an idle child that can load its sessions again',
        ACP_DEFAULTS.idleMs,
      ),
      reopenMs: milliseconds(
        'how long after a session was opened in one child it can be opened in another; the turn ' +
          'waits; by default 0 (`gemini`: 60000)',
      ),
      startMs: milliseconds(
        'how long it may take to start, and to create or load a session',
        ACP_DEFAULTS.startMs,
      ),
      cancelMs: milliseconds(
        "the time between the cancel request and the kill; keep it under the server's 5 s; 0 " +
          "when a node's lease is lost",
        ACP_DEFAULTS.cancelMs,
      ),
      memoryBytesMax: count(
        'the maximum resident memory of its process group, checked every second during a turn; ' +
          'on Linux only',
        ACP_DEFAULTS.memoryBytesMax,
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

/** The largest message of an agent, in bytes. */
export const MESSAGE_BYTES_MAX = 8_388_608
/** Output that is not recorded yet, in characters; beyond it reading from the agent pauses. */
export const BACKLOG_CHARS_MAX = 1_048_576
/** The thoughts that one activity keeps, in characters. */
export const THOUGHT_CHARS_MAX = 16_384
/** How many unfinished tool calls of a turn are tracked. */
export const TOOL_CALLS_MAX = 256
/** A tool call as it is shown with a permission request, as JSON text. */
export const ASK_DATA_CHARS_MAX = 16_384
/** A permission request's question, and the label of an option, in characters. */
export const ASK_TEXT_CHARS_MAX = 2_000
/** How many options of it are passed on. */
export const ASK_OPTIONS_MAX = 16
/** The longest message of an agent's error that is shown, in characters. */
export const ERROR_CHARS_MAX = 500
/** The time between the end of a child's stdin, after which it should exit, and SIGTERM. */
export const GOODBYE_MS = 500
/** How much of a replay is compared with the log, in characters. */
export const REPLAY_CHARS_MAX = 4_096
/** The silence after which a replay is complete; and after its expected end was seen. */
export const REPLAY_QUIET_MS = 1_000
export const REPLAY_REST_MS = 20
