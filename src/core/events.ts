/**
 * The events of a log. They are stored for ever: a field may be added, and is then absent in older
 * logs; none changes its meaning. `event-table.ts` says which types an older reader may ignore.
 */
import type {
  Principal,
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
import { HoldfastError } from './errors.ts'

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

/**
 * Every type of event that a log may hold, and whether a reader that does not know the type may
 * ignore it. An ignorable event carries `ignorable: true` in its body, so that an older version can
 * tell. An event that is neither known nor ignorable makes its session unreadable: to fold it
 * wrongly would be worse.
 */

type EventType = { readonly ignorable: boolean }

/** All types of 0.1.0 are known to every reader, so that none of them has to be ignorable. */
export const EVENT_TYPES: Readonly<Record<Draft['type'], EventType>> = {
  'session.created': { ignorable: false },
  'session.bound': { ignorable: false },
  'session.closed': { ignorable: false },
  'turn.queued': { ignorable: false },
  'turn.joined': { ignorable: false },
  'turn.started': { ignorable: false },
  'turn.activity': { ignorable: false },
  // Without it a turn that is interrupted loses what it had said, and nothing else.
  'turn.output': { ignorable: true },
  'turn.done': { ignorable: false },
  'turn.failed': { ignorable: false },
  'turn.cancelled': { ignorable: false },
  'turn.interrupted': { ignorable: false },
  'turn.expired': { ignorable: false },
  'message.added': { ignorable: false },
  'ask.opened': { ignorable: false },
  'ask.settled': { ignorable: false },
  'attachment.opened': { ignorable: false },
  'attachment.detached': { ignorable: false },
  'attachment.resumed': { ignorable: false },
  'attachment.confirmed': { ignorable: false },
  'attachment.ended': { ignorable: false },
  'link.created': { ignorable: false },
  'link.used': { ignorable: false },
  'link.revoked': { ignorable: false },
}

/** An event as anything may have written it. */
export type LoggedEvent = {
  readonly type: string
  readonly seq: number
  readonly ignorable?: unknown
}

export function isKnownType(type: unknown): type is Draft['type'] {
  return typeof type === 'string' && Object.hasOwn(EVENT_TYPES, type)
}

/** False: the event is of a type that this version neither knows nor may ignore. */
export function isReadable({ type, ignorable }: LoggedEvent): boolean {
  return isKnownType(type) || ignorable === true
}

export function isIgnorable(type: Draft['type']): boolean {
  return EVENT_TYPES[type].ignorable
}

/** Throws `session_unreadable` for an event that this version must not go on from. */
export function assertReadable(event: LoggedEvent, session: string): asserts event is SessionEvent {
  if (isReadable(event)) return
  const { type, seq } = event
  throw unreadable(session, `event ${seq} is of type ${type}, which this version does not know`, {
    seq,
    type,
  })
}

export function unreadable(
  session: string,
  why: string,
  facts: Readonly<Record<string, string | number>> = {},
): HoldfastError {
  return new HoldfastError('session_unreadable', `session ${session} cannot be read here: ${why}`, {
    session,
    ...facts,
  })
}
