/**
 * Every type of event that a log may hold, and whether a reader that does not know the type may
 * ignore it. An ignorable event carries `ignorable: true` in its body, so that an older version can
 * tell. An event that is neither known nor ignorable makes its session unreadable: to fold it
 * wrongly would be worse.
 */
import { HoldfastError } from './errors.ts'
import type { Draft, SessionEvent } from './events.ts'

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
