/**
 * The events of a log. They are stored for ever: a field may be added, and is then absent in older
 * logs; none changes its meaning. `event-table.ts` says which types an older reader may ignore.
 */
import type { Principal } from './principal.ts'
import type {
  Activity,
  Ask,
  AskOutcome,
  Input,
  Link,
  RequestKey,
  Role,
  SessionOptions,
  TurnError,
} from './state.ts'

/** An event before it has its position in the log. */
export type Draft = LifeEvent | TurnEvent | AskEvent | AttachmentEvent | LinkEvent

/** An event in the log: `seq` is its position, `at` its time in milliseconds since 1970. */
export type SessionEvent = Draft & { readonly seq: number; readonly at: number }

/** The events of these types. */
export type EventOf<Type extends SessionEvent['type']> = Extract<SessionEvent, { type: Type }>

export type LifeEvent =
  | ({ readonly type: 'session.created'; readonly by?: Principal } & SessionOptions)
  | { readonly type: 'session.bound'; readonly backend: string }
  | { readonly type: 'session.closed'; readonly reason: string; readonly by?: Principal }

export type TurnEvent =
  | {
      readonly type: 'turn.queued'
      readonly turn: string
      readonly input: Input
      readonly keys?: readonly RequestKey[]
      readonly collect?: true
      readonly expiresAt?: number
      /** When it began to wait, if it waited outside the log before. */
      readonly queuedAt?: number
      readonly by?: Principal
    }
  | {
      readonly type: 'turn.joined'
      readonly turn: string
      readonly input: Input
      readonly keys?: readonly RequestKey[]
      readonly by?: Principal
    }
  | {
      readonly type: 'turn.started'
      readonly turn: string
      readonly input: Input
      readonly keys?: readonly RequestKey[]
      /** Of a turn that was not in the queue before. */
      readonly by?: Principal
      /** The other principals whose requests were collected in it. */
      readonly alsoBy?: readonly Principal[]
      /** When it began to wait, if it had to wait outside the log. */
      readonly queuedAt?: number
    }
  | {
      readonly type: 'message.added'
      readonly turn: string
      readonly role: 'assistant'
      readonly text: string
      readonly data?: unknown
      readonly partial?: true
    }
  /** Output of the running turn since the last of these, or since the last message. */
  | { readonly type: 'turn.output'; readonly turn: string; readonly text: string }
  | ({ readonly type: 'turn.activity'; readonly turn: string } & Activity)
  | { readonly type: 'turn.done'; readonly turn: string }
  | { readonly type: 'turn.failed'; readonly turn: string; readonly error: TurnError }
  | {
      readonly type: 'turn.cancelled'
      readonly turn: string
      readonly reason: string
      readonly by?: Principal
    }
  | { readonly type: 'turn.interrupted'; readonly turn: string; readonly reason: string }
  | { readonly type: 'turn.expired'; readonly turn: string }

export type AskEvent =
  | ({ readonly type: 'ask.opened'; readonly ask: string; readonly turn: string } & Omit<Ask, 'id'>)
  | ({ readonly type: 'ask.settled'; readonly ask: string; readonly turn: string } & AskOutcome)

export type AttachmentEvent =
  | {
      readonly type: 'attachment.opened'
      readonly attachment: string
      readonly role: Role
      readonly answers: readonly string[]
      readonly token?: string
      readonly link?: string
      /** The use of the link that it had as a watcher, and now has itself. */
      readonly use?: string
      readonly by?: Principal
    }
  | {
      readonly type: 'attachment.detached'
      readonly attachment: string
      readonly graceUntil: number
      /** Absent in logs of 0.1.0. */
      readonly answersUntil?: number
    }
  | {
      readonly type: 'attachment.resumed'
      readonly attachment: string
      readonly epoch: number
      readonly answers?: readonly string[]
      /** The new token's digest, and that of the one shown. */
      readonly token?: string
      readonly shown?: string
      readonly by?: Principal
    }
  /** Confirmations of several clients are recorded together. */
  | { readonly type: 'attachment.confirmed'; readonly attachments: readonly string[] }
  | { readonly type: 'attachment.ended'; readonly attachment: string; readonly reason: string }

export type LinkEvent =
  | ({
      readonly type: 'link.created'
      readonly link: string
      readonly by?: Principal
    } & Omit<Link, 'id' | 'usedBy'>)
  /** A watcher came in by a link that counts its uses: all that is recorded of a watcher. */
  | {
      readonly type: 'link.used'
      readonly link: string
      readonly use: string
      readonly by?: Principal
    }
  | {
      readonly type: 'link.revoked'
      readonly link: string
      readonly reason?: 'expired'
      readonly by?: Principal
    }
