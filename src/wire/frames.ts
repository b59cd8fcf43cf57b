/**
 * Frames of a connection that survives the loss of its socket. Every message at `/v1/connect` is a
 * JSON object with a `type`, or an array of such objects; `docs/reference/wire.md` says what each
 * means. A connection to a browser has the same hello, welcome, ready, ping and bye; it confirms
 * messages (`replay.ts`) where this one names a position of the log.
 *
 * A frame with a `seq` is an event of the session's log, exactly as `GET …/events` shows it. It is
 * written once for all clients that follow.
 */
import type {
  Ask,
  BlobPart,
  Delta,
  Input,
  Message,
  Part,
  ResolveOptions,
  Role,
  SessionEvent,
  SettingsChange,
  TextPart,
  TurnOptions,
} from '../core/index.ts'
import type { ClientFrame, Hello } from './client-frames.ts'
import type { SessionView } from './views.ts'

export const WIRE_VERSION = 1

export type {
  Ask,
  BlobPart,
  ClientFrame,
  Delta,
  Hello,
  Input,
  Message,
  Part,
  Role,
  SessionEvent,
  SettingsChange,
  TextPart,
  TurnOptions,
}

/** What a session is created with. */
export type CreationOptions = Pick<
  ResolveOptions,
  'agent' | 'reconnect' | 'exclusive' | 'graceMs' | 'ttlMs' | 'labels' | 'settings'
>

/** Where a client stands: it has seen everything up to here. */
export type Seen = { readonly seq: number; readonly delta: number }

/** A lost attachment that comes back: its id, and the token of its last welcome. */
export type Resume = { readonly attachment: string; readonly token: string }

/** What a refused client can do about it. */
export type Hint = 'start_new' | 'take_over' | 'reload' | 'wait'

export type WelcomeBase = {
  readonly type: 'welcome'
  readonly v: number
  readonly session: SessionView
  readonly attachment: string
  readonly role: Role
  /** What this client may do: `watch`, `talk`, `answer`, `edit`, … Not sent by 0.1.0. */
  readonly scopes?: readonly string[]
  /** Grows with every connection of this attachment. */
  readonly epoch: number
  /** The token to come back with; null where the policy lets no client come back. */
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
  | {
      readonly type: 'reply'
      readonly id: string
      readonly turn?: string
      /** With `busy: "steer"`: whether the running turn has taken the message. */
      readonly steered?: boolean
    }
  | {
      readonly type: 'reply'
      readonly id: string
      readonly error: {
        readonly code: string
        readonly message: string
        readonly retry: boolean
        /** Of `quota_exceeded`: the quota, its limit, what is used, and when to try again. */
        readonly details?: Readonly<Record<string, unknown>>
      }
    }
  /** From a browser: so many messages have come. */
  | { readonly type: 'ack'; readonly received: number }
  | { readonly type: 'ping' }
  | { readonly type: 'pong' }
  /** Another connection has taken this attachment's place. */
  | { readonly type: 'superseded' }
  /** The connection is about to be closed by the server, which says why. */
  | { readonly type: 'ending'; readonly code: string; readonly reason: string }
