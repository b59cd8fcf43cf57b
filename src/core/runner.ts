/** What carries out a turn: the seam between the authority and any backend. */
import type { SettingsChange } from './commands.ts'
import type { Diagnose } from './diagnostics.ts'
import type { Question } from './questions.ts'
import type { ClientTool } from './client-tools.ts'
import type { ClientAnswer } from './turn-clients.ts'
import type {
  Activity,
  AskOutcome,
  EarlierMessage,
  Grant,
  Input,
  Origin,
  Part,
  Reply,
  SettingName,
  Settings,
  TextPart,
} from './state.ts'

export interface Runner {
  /** Without it, it takes texts and no settings. */
  readonly capabilities?: Capabilities
  /**
   * Throws `invalid_field` unless turns can be run with these. They have only settings that
   * `capabilities` names.
   */
  checkSettings?(settings: Settings): void
  /**
   * The settings of a session have changed, perhaps while a turn runs: for a runner that can apply
   * them at once. The next turn gets them in its context.
   */
  configure?(session: RunnerSession, settings: Settings): void
  /**
   * A person has taken back a grant of the session, perhaps while a turn runs: from the next turn
   * on the agent must not act on it, although it may have been told of it.
   */
  revoke?(session: RunnerSession): void
  /**
   * Carries out one turn. The iterator's end is the turn's end, a throw its failure. Whatever is
   * said after that, or after `signal` and the grace time, is dropped and counted.
   */
  run(turn: RunnerTurn, context: RunnerContext): AsyncIterator<RunnerOutput, RunnerResult>
  /**
   * Gives the running turn another message, so that its result covers both. Resolves with whether
   * the agent has taken it; settles when the turn ends, at the latest.
   */
  steer?(session: RunnerSession, message: RunnerTurn): Promise<boolean>
  /**
   * A conversation that begins at the end of a turn of this session; returns the backend's id of
   * it, or null if the first turn makes it, from the `origin` of its session. Throws
   * `capability_missing` if it cannot be made at that turn.
   */
  fork?(source: ForkSource): Promise<string | null>
  /**
   * Reads a conversation of the agent that was begun without Holdfast, by the agent's own id.
   * Throws `invalid_field` if there is none, or if the operator does not allow it.
   */
  adopt?(backend: string, settings: Settings): Promise<AdoptedConversation>
  /**
   * How a person continues the conversation of a session in the agent's own program; null if that
   * program would not find it.
   */
  terminal?(session: OpenedSession, settings: Settings): TerminalCommand | null
  /**
   * What was written to the conversation of a session without Holdfast since its last turn, while
   * none runs: the agent's own program takes no lock. Null: not known.
   */
  writtenOutside?(
    session: OpenedSession,
    last: LastPosition,
  ): Promise<readonly EarlierMessage[] | null>
  /**
   * No turn runs: lets go of the session as far as nothing is lost, since agents may refuse to open
   * one that another process has open.
   */
  stopIdle?(session: RunnerSession): Promise<void>
  /**
   * The session is closed for good: what is kept for it (a child, a folder) may go. A turn that was
   * cut short by the closing may still be stopping. A failure is only reported.
   */
  release?(session: RunnerSession): void | Promise<void>
  /**
   * A session that was released is erased: removes what the agent has written for it here, and
   * nothing else. Returns what could not be removed. May be called again, and after a restart.
   */
  erase?(session: ErasedSession): Promise<readonly LeftFiles[]>
  /**
   * This node does not own the session any more; null: any session. Another node is about to go on
   * with it and does not wait (I2, I5): end what works for it here, or is kept for it, at once. The
   * signal of its turn is aborted besides.
   */
  lose?(session: string | null): void
  /** Called once, before any turn: where to report what no turn's end can tell. */
  reportTo?(diagnose: Diagnose): void
  /** Holdfast is being closed, no turn runs any more: end whatever still lives. */
  close?(): Promise<void>
}

/** What an agent can do, as `GET /v1/agents` shows it. */
export type Capabilities = {
  /** It asks for permissions, or asks questions. */
  readonly asks: boolean
  readonly images: boolean
  readonly files: boolean
  /** The running turn takes another message. */
  readonly steering: boolean
  readonly settings: readonly SettingName[]
  /** The values that are known before it runs. */
  readonly modes: readonly string[]
  readonly models: readonly string[]
  /** The names of those that the operator has configured, for the setting of that name. */
  readonly mcpServers: readonly string[]
  /** At which turns it can be forked; null: it cannot. */
  readonly fork: 'any' | 'head' | null
  /** It continues its sessions after it was stopped. */
  readonly load: boolean
  readonly plans: boolean
  readonly commands: boolean
  /** It may call tools that clients register, by asks of the kind `tool:NAME`. */
  readonly clientTools: boolean
}

export const NO_CAPABILITIES: Capabilities = {
  asks: false,
  images: false,
  files: false,
  steering: false,
  settings: [],
  modes: [],
  models: [],
  mcpServers: [],
  fork: null,
  load: false,
  plans: false,
  commands: false,
  clientTools: false,
}

/** A turn of a session, to begin another conversation at. */
export type ForkSource = RunnerSession & {
  readonly turn: string
  /** No turn has started after it. */
  readonly isHead: boolean
  /** What the runner has told of the turn's end, by an activity of the kind `position`. */
  readonly position: unknown
}

export type AdoptedConversation = {
  readonly messages: readonly EarlierMessage[]
  /** What the agent needs to continue it, as the working folder. */
  readonly settings?: Settings
  /** What the runner keeps about its end, as about that of a turn. */
  readonly position?: unknown
}

/** Where the conversation of a session was when Holdfast last knew all of it. */
export type LastPosition = {
  /** The last activity of the kind `position`; null: none is known. */
  readonly position: unknown
  /** What the session's clients have said since then. */
  readonly inputs: readonly string[]
}

/** Something of an erased session that is still there. */
export type LeftFiles = {
  /** For clients: without a path. */
  readonly what: string
  /** For the operator. */
  readonly path?: string
}

/** A session whose conversation is to be continued elsewhere. */
export type OpenedSession = {
  readonly id: string
  readonly backend: string
  readonly origin: Origin | null
}

export type TerminalCommand = {
  /** The program and its arguments. */
  readonly command: readonly string[]
  /** The working folder of the conversation. */
  readonly cwd: string
}

/** What a runner may keep something for. */
export type RunnerSession = { readonly id: string; readonly backend: string | null }
export type ErasedSession = RunnerSession & { readonly origin: Origin | null }

export type RunnerTurn = {
  readonly id: string
  readonly input: Input
  readonly text: string
  /** With their bytes, in order, if the input has parts; `text` is that of the texts among them. */
  readonly parts?: readonly RunnerPart[]
}

/** A part of an input as a runner gets it. */
export type RunnerPart =
  | TextPart
  | { readonly type: 'image'; readonly mediaType: string; readonly data: Uint8Array }
  | {
      readonly type: 'file'
      readonly name: string
      readonly mediaType: string
      readonly data: Uint8Array
    }

/**
 * A part of the answer as it comes (live only), a whole message that is recorded at once, or
 * something else worth recording: a tool that was used, what the turn cost.
 */
export type RunnerOutput =
  | { readonly type: 'delta'; readonly text: string }
  | ({ readonly type: 'message' } & Reply)
  | ({ readonly type: 'activity' } & Activity)

/** The turn's last message. Without one, what was said in deltas since the last message is it. */
export type RunnerResult = Reply | undefined

export type Message = {
  readonly seq: number
  /** Empty for a message from before the session (`Session.origin`). */
  readonly turn: string
  readonly role: 'user' | 'assistant'
  readonly text: string
  /** Of a user's message: what came with the text, without bytes. */
  readonly parts?: readonly Part[]
  readonly at: number
  readonly data?: unknown
  /** The turn ended before the message was complete. */
  readonly partial?: true
}

/** Its members need no `this`: an agent may take them apart. */
export type RunnerContext = {
  readonly session: {
    readonly id: string
    readonly key: string | null
    readonly agent: string
    readonly labels: Readonly<Record<string, string>>
    /** The backend's own session id, once `bind` recorded it. */
    readonly backend: string | null
    /** Where its conversation began, if not here. */
    readonly origin: Origin | null
    /** What people have allowed it until its end. */
    readonly grants: readonly Grant[]
  }
  /**
   * Aborted when the turn is cancelled, times out, or its session closes; and when the session is
   * this node's no more (`lease_lost`, `stale_epoch`): then the runner must stop at once.
   */
  readonly signal: AbortSignal
  /** Asks the session's clients; always settles (I8). */
  readonly ask: (question: Question) => Promise<AskOutcome>
  /** The session's settings, and the turn's own on top of them. */
  readonly settings: Settings
  /** Records settings that the agent has changed by itself; null takes one back. */
  readonly configure: (settings: SettingsChange) => Promise<void>
  /** The time by the session's log, which times of its messages are compared with. */
  readonly now: () => number
  /**
   * Records the backend's own session id, once; a second, different id is refused. Durable when it
   * resolves, so that an id may be reserved before the backend gets it.
   */
  readonly bind: (backend: string) => Promise<void>
  /** The conversation before this turn, oldest first. */
  readonly history: () => AsyncIterable<Message>
  /** Reads the end of the log: a runner that knows the position by itself need not ask. */
  readonly lastPosition: () => Promise<LastPosition>
  /** What the client whose request the turn is can be asked: methods of its protocol. */
  readonly clientOffers: () => ReadonlySet<string>
  /**
   * Asks that client, and no other; nothing of it is recorded. Rejects with `capability_missing` if
   * it does not offer this, or is not there, and with `cancelled` if it leaves before it answers.
   */
  readonly askClient: (method: string, params: object) => Promise<ClientAnswer>
  /** The tools of its clients that it may call now, by asks of the kind `tool:NAME`. */
  readonly clientTools: () => readonly ClientTool[]
  /** The bytes of a part of the conversation before, by its digest. */
  readonly readBlob: (digest: string) => Promise<Uint8Array>
}
