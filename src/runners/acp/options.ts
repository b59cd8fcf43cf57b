/** How the operator describes an agent that speaks the Agent Client Protocol. */
import type { EnvironmentOptions } from '../../platform/child.ts'

export type AcpOptions = EnvironmentOptions & {
  readonly command: string
  readonly args?: readonly string[]
  /** Where it works; without it each session has a folder of its own in `folder`. */
  readonly cwd?: string
  /** Where the sessions' folders are. Without either, all work where this process does. */
  readonly folder?: string
  /** A child for every session (the default), or one for all: it is lighter, and falls as one. */
  readonly perSession?: boolean
  /** How many children there may be at once; beyond it the longest idle one is stopped. */
  readonly childrenMax?: number
  /** How long a child without a turn is kept, if it can load its sessions again. */
  readonly idleMs?: number
  /** How long after a session was opened in a child it may be opened in another. */
  readonly reopenMs?: number
  /** How long a child may take to start, and to make or load a session. */
  readonly startMs?: number
  /** Between asking an agent to cancel its turn and killing it. */
  readonly cancelMs?: number
  /** The resident memory of a child and what it started, sampled while it works (Linux only). */
  readonly memoryBytesMax?: number
  /** How long a permission request waits for an answer; unless given, as long as any ask. */
  readonly askMs?: number
  /** When no client is there that answers permissions: wait for one (the default), or refuse. */
  readonly onNobody?: 'wait' | 'deny'
}

/** What is not given. */
export const ACP_DEFAULTS = {
  perSession: true,
  childrenMax: 64,
  idleMs: 300_000,
  reopenMs: 0,
  startMs: 60_000,
  // Less than the grace time of a cancelled turn: the child is gone before the next one starts.
  cancelMs: 3_000,
  memoryBytesMax: 4_294_967_296,
} as const

/** How often a child's memory is looked at. */
export const MEMORY_SAMPLE_MS = 2_000
/** One message of an agent, in bytes. */
export const MESSAGE_BYTES_MAX = 8_388_608
/** Output that waits to be recorded, in characters: beyond it the agent is not read any further. */
export const BACKLOG_CHARS_MAX = 1_048_576
/** What is kept of an agent's thoughts in one activity, in characters. */
export const THOUGHT_CHARS_MAX = 16_384
/** Tool calls of one turn that are under way at once, as far as they are followed. */
export const TOOL_CALLS_MAX = 256
/** A tool call as it is shown with a permission request, as JSON text. */
export const ASK_DATA_CHARS_MAX = 16_384
/** A permission request's question, and the label of an option, in characters. */
export const ASK_TEXT_CHARS_MAX = 2_000
/** How many options of it are passed on. */
export const ASK_OPTIONS_MAX = 16
/** What is told of an agent's error, in characters. */
export const ERROR_CHARS_MAX = 500
/** Between the end of a child's input, at which it should end, and SIGTERM. */
export const GOODBYE_MS = 500
/** How much of what a session replays is compared with the log, in characters. */
export const REPLAY_CHARS_MAX = 4_096
/** How long an agent must be quiet before its replay counts as over; and once its end was heard. */
export const REPLAY_QUIET_MS = 1_000
export const REPLAY_REST_MS = 20
