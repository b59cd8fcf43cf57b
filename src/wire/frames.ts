/**
 * Frames of a connection that survives the loss of its socket. Every message at `/v1/connect` is a
 * JSON object with a `type`, or an array of such objects; `docs/reference/wire.md` says what each
 * means. A connection to a browser has the same hello, welcome, ready, ping and bye; it confirms
 * messages (`replay.ts`) where this one names a position of the log.
 *
 * A frame with a `seq` is an event of the session's log, exactly as `GET …/events` shows it. It is
 * written once for all who follow.
 */
import type {
  Ask,
  BusyPolicy,
  Delta,
  Input,
  ReconnectPolicy,
  Role,
  SessionEvent,
} from '../core/index.ts'
import type { SessionView } from './views.ts'

export const WIRE_VERSION = 1

export type { Ask, Delta, Input, Role, SessionEvent }

/** Where a client stands: it has seen everything up to here. */
export type Seen = { readonly seq: number; readonly delta: number }

/** A lost attachment that comes back: who it was, and the token of its last welcome. */
export type Resume = { readonly attachment: string; readonly token: string }

export type Hello = {
  readonly type: 'hello'
  readonly v: number
  /** One of the two. A key finds its session or creates it. To a browser, only on coming back. */
  readonly session?: string
  readonly key?: string
  /** What the session is created with, if it has to be. */
  readonly options?: {
    readonly agent?: string
    readonly reconnect?: ReconnectPolicy
    readonly graceMs?: number
    readonly ttlMs?: number | null
    readonly exclusive?: boolean
    readonly labels?: Readonly<Record<string, string>>
  }
  readonly auth?: {
    readonly token?: string
    readonly link?: string
    readonly resume?: Resume
  }
  readonly role?: Role
  /** The kinds of ask that this client answers. */
  readonly answers?: readonly string[]
  /** What it has seen already; without it everything comes from the beginning. */
  readonly after?: Seen
  /** To a browser: how many messages of the server have come. */
  readonly received?: number
  /** A person has decided to take an exclusive session over from whoever has it. */
  readonly take?: boolean
  /** Events about attachments and links come too; most clients have no use for them. */
  readonly presence?: boolean
}

export type ClientFrame =
  | Hello
  /** The welcome arrived: the token before it is no longer needed. */
  | { readonly type: 'ready'; readonly epoch: number }
  | {
      readonly type: 'turn'
      readonly id: string
      readonly input: Input
      readonly busy?: BusyPolicy
      readonly waitMs?: number
      readonly onDisconnect?: 'continue' | 'cancel'
    }
  | { readonly type: 'cancel'; readonly id: string; readonly turn: string }
  | {
      readonly type: 'answer'
      readonly id: string
      readonly ask: string
      readonly answer: unknown
    }
  /** Closes the session, for everybody. */
  | { readonly type: 'close'; readonly id: string }
  /** To a browser: so many messages have come. */
  | { readonly type: 'ack'; readonly received: number }
  | { readonly type: 'ping' }
  | { readonly type: 'pong' }
  /** Leaves for good. */
  | { readonly type: 'bye' }

/** What a refused client can do about it. */
export type Hint = 'start_new' | 'take_over' | 'reload' | 'wait'

export type WelcomeBase = {
  readonly type: 'welcome'
  readonly v: number
  readonly session: SessionView
  readonly attachment: string
  readonly role: Role
  /** What this client may do: `watch`, `talk`, `answer`, `admin`. Not told by 0.1.0. */
  readonly scopes?: readonly string[]
  /** Grows with every connection of this attachment. */
  readonly epoch: number
  /** The token to come back with; null where the policy lets nobody come back. */
  readonly resume: string | null
  readonly isNew: boolean
  readonly asks: readonly Ask[]
  readonly pingMs: number
  readonly deadMs: number
}

/** What follows begins after this position of the log. */
export type Welcome = WelcomeBase & { readonly after: Seen }

/** From a browser: so many messages of the client have come. */
export type ReplayWelcome = WelcomeBase & { readonly received: number }

export type Refuse = {
  readonly type: 'refuse'
  readonly code: string
  readonly reason: string
  readonly retry: 'never' | 'now' | 'after'
  readonly afterMs?: number
  readonly hint?: Hint
}

export type ServerFrame =
  | Welcome
  | ReplayWelcome
  | Refuse
  | SessionEvent
  | Delta
  /** The answer to the client's request of that id: the turn it became, or why not. */
  | { readonly type: 'reply'; readonly id: string; readonly turn?: string }
  | {
      readonly type: 'reply'
      readonly id: string
      readonly error: { readonly code: string; readonly message: string; readonly retry: boolean }
    }
  /** From a browser: so many messages have come. */
  | { readonly type: 'ack'; readonly received: number }
  | { readonly type: 'ping' }
  | { readonly type: 'pong' }
  /** Another connection has taken this attachment's place. */
  | { readonly type: 'superseded' }
  /** The connection is about to be closed by the server, which says why. */
  | { readonly type: 'ending'; readonly code: string; readonly reason: string }
