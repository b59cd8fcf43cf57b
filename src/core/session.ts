/**
 * What a session is: its state, folded from its log, and what may happen to it.
 *
 * `decide(session, command)` says which events a command makes, or refuses; `evolve(session,
 * event)` says what an event does to the state. Both are pure: no clock, no I/O, no identity but
 * what they are given. Everything else in Holdfast exists to call these two in the right order.
 *
 * I2 a turn starts only if none runs. I4 nothing follows `session.closed`. I8 an ask that ends
 * does so once. I9 closing settles all that is pending, in one step.
 */
import { decideActivity, type ActivityCommand, type ActivityEvent } from './activities.ts'
import {
  decideAsk,
  foldAsk,
  withdrawAsks,
  type Ask,
  type AskCommand,
  type AskEvent,
} from './asks.ts'
import {
  decideAttachment,
  endAttachments,
  foldAttachment,
  loseConnections,
  type Attachment,
  type AttachmentCommand,
  type AttachmentEvent,
  type ReconnectPolicy,
  type Tombstone,
} from './attachments.ts'
import { Crowd } from './crowd.ts'
import { HoldfastError } from './errors.ts'
import { assertReadable } from './event-table.ts'
import { decideLink, foldLink, type Link, type LinkCommand, type LinkEvent } from './links.ts'
import { recordedBy, type Principal } from './principal.ts'
import {
  decideTurn,
  foldTurn,
  partialMessage,
  turnCancelled,
  type Turn,
  type TurnCommand,
  type TurnEvent,
} from './turns.ts'

export type Session = {
  readonly id: string
  readonly key: string | null
  readonly agent: string
  readonly internal: boolean
  readonly reconnect: ReconnectPolicy
  /** At most one driver at a time. */
  readonly exclusive: boolean
  readonly graceMs: number
  /** How long it may be idle, or null for ever. */
  readonly ttlMs: number | null
  readonly labels: Readonly<Record<string, string>>
  readonly createdAt: number
  readonly updatedAt: number
  /** When it was last used, if only watchers have come since: they do not keep it open. */
  readonly usedAt?: number
  /** The position of the last event in the log. */
  readonly seq: number
  readonly closed: { readonly at: number; readonly reason: string } | null
  /** The backend's own session id; written once. */
  readonly backend: string | null
  readonly running: Turn | null
  /** Admitted turns that wait, oldest first. */
  readonly queued: readonly Turn[]
  /** How many turns have started. */
  readonly turns: number
  readonly asks: readonly Ask[]
  readonly attachments: readonly Attachment[]
  /** The attachments that ended last. */
  readonly ended: readonly Tombstone[]
  readonly links: readonly Link[]
}

/** What a session is created with. */
export type SessionOptions = Pick<
  Session,
  'id' | 'key' | 'agent' | 'internal' | 'reconnect' | 'exclusive' | 'graceMs' | 'ttlMs' | 'labels'
>

export type LifeEvent =
  | ({ readonly type: 'session.created'; readonly by?: Principal } & SessionOptions)
  | { readonly type: 'session.bound'; readonly backend: string }
  | { readonly type: 'session.closed'; readonly reason: string; readonly by?: Principal }

/** An event before it has its place in the log. */
export type Draft = LifeEvent | TurnEvent | ActivityEvent | AskEvent | AttachmentEvent | LinkEvent

/** An event in the log: `seq` is its place, `at` its time in milliseconds since 1970. */
export type SessionEvent = Draft & { readonly seq: number; readonly at: number }

export type LifeCommand =
  | { readonly type: 'bind'; readonly backend: string }
  | {
      readonly type: 'close'
      readonly reason: string
      readonly by: Principal | null
      /** What the running turn has said since its last message. */
      readonly said?: string | null
    }
  /** Close if it has been idle past its time to live. */
  | { readonly type: 'expire'; readonly at: number }
  /** A new owner took over: whatever depended on the last one is over. */
  | {
      readonly type: 'recover'
      readonly at: number
      readonly reason: string
      readonly answerGraceMs: number
      /** What the turn that ran had said since its last message, as far as that is known. */
      readonly said?: string | null
    }

export type Command =
  | LifeCommand
  | TurnCommand
  | ActivityCommand
  | AskCommand
  | AttachmentCommand
  | LinkCommand

export function decide(session: Session, command: Command): readonly Draft[] {
  if (session.closed !== null) return decideClosed(session, command)
  switch (command.type) {
    case 'bind':
      return bindBackend(session, command.backend)
    case 'close':
      return closeSession(session, command)
    case 'expire':
      return isExpired(session, command.at)
        ? closeSession(session, { reason: 'expired', by: null })
        : []
    case 'recover':
      return recoverSession(session, command)
    case 'submit':
    case 'start':
    case 'admit':
    case 'message':
    case 'output':
    case 'cancel':
    case 'finish':
      return decideTurn(session, command)
    case 'activity':
      return decideActivity(session, command)
    case 'ask':
    case 'answer':
    case 'timeout':
    case 'unanswerable':
    case 'withdraw':
      return decideAsk(session, command)
    case 'attach':
    case 'lose':
    case 'resume':
    case 'confirm':
    case 'leave':
    case 'lapse':
      return decideAttachment(session, command)
    case 'link':
    case 'unlink':
    case 'watch':
      return decideLink(session, command)
  }
}

/** I9: what only tidies up finds nothing to do; everything else is refused. */
function decideClosed(session: Session, command: Command): readonly Draft[] {
  switch (command.type) {
    case 'close':
    case 'expire':
    case 'recover':
    case 'cancel':
    case 'timeout':
    case 'unanswerable':
    case 'withdraw':
    case 'lose':
    case 'confirm':
    case 'lapse':
    case 'unlink':
      return []
    default:
      throw closedError(session)
  }
}

export function closedError(session: Pick<Session, 'id' | 'closed'>): HoldfastError {
  const { at, reason } = session.closed ?? { at: 0, reason: 'closed' }
  return new HoldfastError('session_closed', `session ${session.id} is closed: ${reason}`, {
    reason,
    closedAt: at,
  })
}

function bindBackend(session: Session, backend: string): readonly Draft[] {
  if (session.backend === backend) return []
  if (session.backend === null) return [{ type: 'session.bound', backend }]
  throw new HoldfastError('backend_bound', `session ${session.id} has a backend session already`)
}

export function closeSession(
  session: Session,
  { reason, by, said = null }: Omit<LifeCommand & { type: 'close' }, 'type'>,
): readonly Draft[] {
  const { running, queued, attachments } = session
  const turns = running === null ? queued : [running, ...queued]
  return [
    ...turns.flatMap((turn): Draft[] => [
      ...withdrawAsks(session, turn.id),
      ...(turn === running ? partialMessage(turn.id, said) : []),
      turnCancelled(turn.id, { reason: 'session_closed', by }),
    ]),
    ...attachments.map(({ id }): Draft => ({
      type: 'attachment.ended',
      attachment: id,
      reason: 'session_closed',
    })),
    { type: 'session.closed', reason, ...recordedBy(by) },
  ]
}

/**
 * I2, I3, I8: the turn that ran is told to be interrupted, its asks withdrawn, its clients lost.
 */
function recoverSession(
  session: Session,
  command: LifeCommand & { type: 'recover' },
): readonly Draft[] {
  const { running } = session
  const interrupted: readonly Draft[] =
    running === null
      ? []
      : [
          ...withdrawAsks(session, running.id),
          ...partialMessage(running.id, command.said ?? null),
          { type: 'turn.interrupted', turn: running.id, reason: command.reason },
        ]
  const after: Session = { ...session, running: null, asks: [] }
  return [...interrupted, ...recoverAttachments(after, command)]
}

/** Watchers, which only 0.1.0 recorded, are not waited for. */
function recoverAttachments(
  session: Session,
  command: LifeCommand & { type: 'recover' },
): readonly Draft[] {
  const { at } = command
  const watchers = session.attachments.filter(({ role }) => role === 'watcher')
  const gone = endAttachments(session, watchers, { reason: 'connection_lost', at })
  if (gone.some(({ type }) => type === 'session.closed')) return gone
  const attachments = session.attachments.filter(({ role }) => role === 'driver')
  const live = attachments.filter(({ state }) => state === 'live')
  return [...gone, ...loseConnections({ ...session, attachments }, live, command)]
}

/** When an idle session may be closed, or null while something holds it. */
export function expiresAt(session: Session): number | null {
  if (session.ttlMs === null || session.closed !== null || isPending(session)) return null
  return (session.usedAt ?? session.updatedAt) + session.ttlMs
}

function isExpired(session: Session, at: number): boolean {
  const expires = expiresAt(session)
  return expires !== null && expires <= at
}

/**
 * Something is due although nobody asks for it: turns run or wait, clients are there or may come
 * back.
 */
export function isPending({ running, queued, attachments }: Session): boolean {
  return running !== null || queued.length > 0 || attachments.length > 0
}

/** The state after `session.created`, the first event of every log. */
export function createSession(event: SessionEvent & { type: 'session.created' }): Session {
  const { id, key, agent, internal, reconnect, graceMs, ttlMs, labels, at } = event
  // A log that was begun before 0.1.0 may lack it.
  const { exclusive = false } = event as Partial<SessionOptions>
  return {
    id,
    key,
    agent,
    internal,
    reconnect,
    exclusive,
    graceMs,
    ttlMs,
    labels,
    createdAt: at,
    updatedAt: at,
    seq: 1,
    closed: null,
    backend: null,
    running: null,
    queued: [],
    turns: 0,
    asks: [],
    attachments: [],
    ended: [],
    links: [],
  }
}

/** A session while an event is folded into a fresh copy of it. */
export type Folding = { -readonly [Field in keyof Session]: Session[Field] }

/** `crowd`: of the step that this event is part of, if others of it were folded before. */
export function evolve(session: Session, event: SessionEvent, crowd = new Crowd()): Session {
  if (event.type === 'session.created') return createSession(event)
  const next: Folding = { ...session, seq: event.seq, updatedAt: event.at }
  if (event.type === 'link.used') next.usedAt ??= session.updatedAt
  else if (next.usedAt !== undefined) delete next.usedAt
  switch (event.type) {
    case 'session.bound':
      next.backend = event.backend
      break
    case 'session.closed':
      next.closed = { at: event.at, reason: event.reason }
      break
    case 'turn.activity':
    case 'turn.output':
    case 'message.added':
      break
    case 'ask.opened':
    case 'ask.settled':
      foldAsk(next, event)
      break
    case 'attachment.opened':
    case 'attachment.detached':
    case 'attachment.resumed':
    case 'attachment.confirmed':
    case 'attachment.ended':
      foldAttachment(next, event, crowd)
      break
    case 'link.created':
    case 'link.used':
    case 'link.revoked':
      foldLink(next, event)
      break
    case 'turn.queued':
    case 'turn.joined':
    case 'turn.started':
    case 'turn.done':
    case 'turn.failed':
    case 'turn.cancelled':
    case 'turn.interrupted':
    case 'turn.expired':
      foldTurn(next, event)
      break
    default:
      // Of a newer version: if it may be ignored, it only takes its place in the log.
      assertReadable(event, session.id)
  }
  return next
}
