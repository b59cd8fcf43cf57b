/**
 * The events of a log. They stay readable: a field may be added, and is then absent in older
 * logs; none changes its meaning. `EVENT_TYPES` says which types an older reader may ignore.
 */
import { HoldfastError } from './errors.ts'
import type {
  Activity,
  Approval,
  Ask,
  AskOutcome,
  Grant,
  Input,
  Link,
  Note,
  Principal,
  Reply,
  RequestKey,
  Role,
  SessionOptions,
  Settings,
  Share,
  TurnError,
} from './state.ts'

/** An event before it has its position in the log. */
export type Draft = LifeEvent | TurnEvent | AskEvent | AttachmentEvent | LinkEvent

/** An event in the log: `seq` is its position, `at` its time in milliseconds since 1970. */
export type SessionEvent = Draft & { readonly seq: number; readonly at: number }

/** The events of these types. */
export type EventOf<Type extends SessionEvent['type']> = Extract<SessionEvent, { type: Type }>

export type LifeEvent = Readonly<
  /** `principal` is absent if it belongs to the default one, as in all older logs. */
  | ({ type: 'session.created'; by?: Principal; principal?: string } & SessionOptions)
  | { type: 'session.bound'; backend: string }
  /** All settings as they are from now on; `by` is absent if the agent changed them. */
  | { type: 'session.configured'; settings: Settings; by?: Principal }
  /** What an answer has allowed the agent until the session is closed, besides what it was. */
  | { type: 'session.granted'; ask: string; grants: readonly Grant[]; by: Principal }
  /** What a person has taken back of it. */
  | { type: 'session.ungranted'; grants: readonly Grant[]; by: Principal }
  /** Replaces what it was shared for with the same principal or group before. */
  | ({ type: 'session.shared'; by: Principal } & Share)
  | { type: 'session.unshared'; with: string; by: Principal }
  /** A fact that a door keeps with the session, outside of a turn. `kind` says what `data` is. */
  | ({ type: 'session.noted'; by: Principal } & Note)
  | { type: 'session.closed'; reason: string; by?: Principal }
>

/** Keys of the requests that were admitted with it, and its own settings. */
type Keys = { readonly keys?: readonly RequestKey[]; readonly settings?: Settings }

export type TurnEvent = Readonly<
  /** `queuedAt`: when it began to wait, if it waited outside the log before. */
  | ({ type: 'turn.queued'; turn: string; input: Input; by?: Principal } & Keys & {
        collect?: true
        expiresAt?: number
        queuedAt?: number
        /** The turn that was to take it (`turn.steering`), and did not. */
        refusedBy?: string
      })
  | ({ type: 'turn.joined'; turn: string; input: Input; by?: Principal } & Keys)
  /** It waits directly before `before`, or behind the others, of those that its principal moves. */
  | { type: 'turn.moved'; turn: string; before: string | null; by: Principal }
  /**
   * `by`: of a turn that was not in the queue before; `alsoBy`: the other principals whose requests
   * were collected in it; `queuedAt`: when it began to wait, if it had to wait outside the log.
   */
  | ({ type: 'turn.started'; turn: string; input: Input; by?: Principal } & Keys & {
        alsoBy?: readonly Principal[]
        queuedAt?: number
      })
  /** A further message for the running turn, before its agent is given it. */
  | ({ type: 'turn.steering'; turn: string; input: Input; by?: Principal } & Keys)
  /** The agent has taken that message; `steering`: the position of that event. */
  | { type: 'turn.steered'; turn: string; steering: number; input: Input; by?: Principal }
  | ({ type: 'message.added'; turn: string; role: 'assistant'; partial?: true } & Reply)
  /** Output of the running turn since the last of these, or since the last message. */
  | { type: 'turn.output'; turn: string; text: string }
  | ({ type: 'turn.activity'; turn: string } & Activity)
  | { type: 'turn.done'; turn: string }
  | { type: 'turn.failed'; turn: string; error: TurnError }
  | { type: 'turn.cancelled'; turn: string; reason: string; by?: Principal }
  | { type: 'turn.interrupted'; turn: string; reason: string }
  | { type: 'turn.expired'; turn: string }
>

export type AskEvent = Readonly<
  | ({ type: 'ask.opened'; ask: string; turn: string } & Omit<Ask, 'id'>)
  /** One of several people who have to allow it has; the last one settles it. */
  | ({ type: 'ask.approved'; ask: string; turn: string } & Approval)
  | ({ type: 'ask.settled'; ask: string; turn: string } & AskOutcome)
>

export type AttachmentEvent = Readonly<
  /** `use`: the use of the link that it had as a watcher, and now has itself. */
  | {
      type: 'attachment.opened'
      attachment: string
      role: Role
      answers: readonly string[]
      token?: string
      link?: string
      use?: string
      by?: Principal
    }
  /** `answersUntil` is absent in logs of 0.1.0. */
  | {
      type: 'attachment.detached'
      attachment: string
      graceUntil: number
      answersUntil?: number
    }
  /** `token` and `shown`: the new token's digest, and that of the one shown. */
  | {
      type: 'attachment.resumed'
      attachment: string
      epoch: number
      answers?: readonly string[]
      token?: string
      shown?: string
      by?: Principal
    }
  /** Confirmations of several clients are recorded together. */
  | { type: 'attachment.confirmed'; attachments: readonly string[] }
  | { type: 'attachment.ended'; attachment: string; reason: string }
>

export type LinkEvent = Readonly<
  | ({ type: 'link.created'; link: string; by?: Principal } & Omit<Link, 'id' | 'usedBy'>)
  /** A watcher came in by a link that counts its uses: all that is recorded of a watcher. */
  | { type: 'link.used'; link: string; use: string; by?: Principal }
  | { type: 'link.revoked'; link: string; reason?: 'expired'; by?: Principal }
>

type EventType = {
  readonly ignorable: boolean
  /** It says who else may come to the session: only readers that may manage it see it. */
  readonly managed?: true
}

/** All types of 0.1.0 are known to every reader, so that none of them has to be ignorable. */
export const EVENT_TYPES: Readonly<Record<Draft['type'], EventType>> = {
  'session.created': { ignorable: false },
  'session.bound': { ignorable: false },
  'session.configured': { ignorable: false },
  'session.granted': { ignorable: false },
  'session.ungranted': { ignorable: false },
  'session.shared': { ignorable: false, managed: true },
  'session.unshared': { ignorable: false, managed: true },
  // It changes nothing about the session: only the door that wrote it reads it.
  'session.noted': { ignorable: true },
  'session.closed': { ignorable: false },
  'turn.queued': { ignorable: false },
  'turn.joined': { ignorable: false },
  'turn.moved': { ignorable: false },
  'turn.started': { ignorable: false },
  'turn.steering': { ignorable: false },
  'turn.steered': { ignorable: false },
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
  'ask.approved': { ignorable: false },
  'ask.settled': { ignorable: false },
  'attachment.opened': { ignorable: false },
  'attachment.detached': { ignorable: false },
  'attachment.resumed': { ignorable: false },
  'attachment.confirmed': { ignorable: false },
  'attachment.ended': { ignorable: false },
  'link.created': { ignorable: false, managed: true },
  'link.used': { ignorable: false, managed: true },
  'link.revoked': { ignorable: false, managed: true },
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

/** Whether only readers that may manage the session see events of this type. */
export function isManaged(type: string): boolean {
  return isKnownType(type) && EVENT_TYPES[type].managed === true
}

/** False: the event is of a type that this version neither knows nor may ignore. */
export function isReadable({ type, ignorable }: LoggedEvent): boolean {
  return isKnownType(type) || ignorable === true
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
