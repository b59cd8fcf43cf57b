/**
 * What may happen to a session, and what it does to the session's state.
 *
 * `decide(session, command, moment)` returns the events that a command makes, or throws a refusal;
 * `evolve(session, event)` returns the state after an event. Both are pure: no clock, no I/O, no
 * randomness. The rest of Holdfast calls these two in the right order.
 *
 * I2 a turn starts only if none runs. I4 nothing follows `session.closed`. I8 an ask ends once.
 * I9 closing settles all that is pending, in one step.
 */
import { DEFAULT_PRINCIPAL } from './access.ts'
import { decideAsk, foldAsk, withdrawAsks } from './asks.ts'
import { decideAttachment, foldAttachment, loseConnections } from './attachments.ts'
import { closedError, closeSession, endAttachments } from './closing.ts'
import type { Command, LifeCommand, Moment } from './commands.ts'
import { HoldfastError } from './errors.ts'
import { assertReadable, type Draft, type EventOf, type SessionEvent } from './events.ts'
import { decideUngrant, foldGrants } from './grants.ts'
import { decideLink, decideShare, foldLink, foldShare } from './links.ts'
import { decideConfigure, foldActivity, NO_USAGE } from './settings.ts'
import type { Folding, Origin, Session, SessionOptions } from './state.ts'
import { decideTurn, foldTurn, partialMessage } from './turns.ts'

export function decide(session: Session, command: Command, moment: Moment): readonly Draft[] {
  if (session.closed !== null) return decideClosed(session, command)
  switch (command.type) {
    case 'bind':
      return bindBackend(session, command.backend)
    case 'configure':
      return decideConfigure(session, command)
    case 'share':
    case 'unshare':
      return decideShare(session, command)
    case 'ungrant':
      return decideUngrant(session, command)
    case 'note':
      return [{ type: 'session.noted', ...command.note, by: command.by }]
    case 'close':
      return closeSession(session, command, moment)
    case 'expire':
      return isExpired(session, moment.at)
        ? closeSession(session, { reason: 'expired', by: null }, moment)
        : []
    case 'recover':
      return recoverSession(session, command, moment)
    case 'submit':
    case 'move':
    case 'steer':
    case 'steered':
    case 'start':
    case 'message':
    case 'output':
    case 'activity':
    case 'cancel':
    case 'finish':
      return decideTurn(session, command)
    case 'ask':
    case 'answer':
    case 'timeout':
    case 'unanswerable':
    case 'withdraw':
      return decideAsk(session, command, moment)
    case 'attach':
    case 'lose':
    case 'resume':
    case 'confirm':
    case 'leave':
    case 'lapse':
      return decideAttachment(session, command, moment)
    case 'link':
    case 'unlink':
    case 'watch':
      return decideLink(session, command, moment)
  }
}

/** I9: commands that only clean up find nothing to do; all others are refused. */
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
    case 'unshare':
    case 'ungrant':
      return []
    default:
      throw closedError(session)
  }
}

function bindBackend(session: Session, backend: string): readonly Draft[] {
  if (session.backend === backend) return []
  if (session.backend === null) return [{ type: 'session.bound', backend }]
  throw new HoldfastError('backend_bound', `session ${session.id} has a backend session already`)
}

/** I2, I3, I8: the turn that ran is interrupted, its asks are withdrawn, all connections lost. */
function recoverSession(
  session: Session,
  command: LifeCommand & { type: 'recover' },
  moment: Moment,
): readonly Draft[] {
  const { running } = session
  const interrupted: readonly Draft[] =
    running === null
      ? []
      : [
          ...withdrawAsks(session, running.id),
          ...partialMessage(running.id, moment.said()),
          { type: 'turn.interrupted', turn: running.id, reason: command.reason },
        ]
  const after: Session = { ...session, running: null, asks: [] }
  return [...interrupted, ...recoverAttachments(after, command.answerGraceMs, moment)]
}

/** Watchers, which only 0.1.0 recorded, are not waited for. */
function recoverAttachments(
  session: Session,
  answerGraceMs: number,
  moment: Moment,
): readonly Draft[] {
  const watchers = session.attachments.filter(({ role }) => role === 'watcher')
  const gone = endAttachments(session, watchers, 'connection_lost', moment)
  if (gone.some(({ type }) => type === 'session.closed')) return gone
  const attachments = session.attachments.filter(({ role }) => role === 'driver')
  const live = attachments.filter(({ state }) => state === 'live')
  return [...gone, ...loseConnections({ ...session, attachments }, live, answerGraceMs, moment)]
}

/** When an idle session may be closed; null while something is pending. */
export function expiresAt(session: Session): number | null {
  if (session.ttlMs === null || session.closed !== null || isPending(session)) return null
  return (session.usedAt ?? session.updatedAt) + session.ttlMs
}

function isExpired(session: Session, at: number): boolean {
  const expires = expiresAt(session)
  return expires !== null && expires <= at
}

/** Turns run or wait, or clients are attached: the session has to be loaded without a request. */
export function isPending({ running, queued, attachments }: Session): boolean {
  return running !== null || queued.length > 0 || attachments.length > 0
}

/** The state after `session.created`, the first event of every log. */
export function createSession(event: EventOf<'session.created'>): Session {
  const { id, key, agent, internal, reconnect, graceMs, ttlMs, labels, at } = event
  // A log that was begun before 0.1.0 may lack it.
  const { exclusive = false } = event as Partial<SessionOptions>
  const { principal = DEFAULT_PRINCIPAL, settings = {}, backend = null, origin } = event
  return {
    ...{ id, principal, key, agent, internal, reconnect, exclusive, graceMs, ttlMs, labels },
    createdAt: at,
    updatedAt: at,
    seq: 1,
    closed: null,
    backend,
    running: null,
    queued: [],
    turns: 0,
    asks: [],
    attachments: [],
    ended: [],
    links: [],
    shares: [],
    settings,
    grants: [],
    plan: null,
    commands: null,
    usage: NO_USAGE,
    origin: origin === undefined ? null : originOf(origin),
  }
}

/** Without the messages, which are for readers of the log. */
function originOf({ session, turn, backend, position }: Origin): Origin {
  return {
    ...(session === undefined ? {} : { session }),
    ...(turn === undefined ? {} : { turn }),
    backend,
    ...(position === undefined ? {} : { position }),
  }
}

export function evolve(session: Session, event: SessionEvent): Session {
  if (event.type === 'session.created') return createSession(event)
  const next: Folding = { ...session, seq: event.seq, updatedAt: event.at }
  if (event.type === 'link.used') next.usedAt ??= session.updatedAt
  else if (next.usedAt !== undefined) delete next.usedAt
  switch (event.type) {
    case 'session.bound':
      next.backend = event.backend
      break
    case 'session.configured':
      next.settings = event.settings
      break
    case 'session.closed':
      next.closed = { at: event.at, reason: event.reason }
      if (next.shares.length > 0) next.shares = []
      if (next.grants.length > 0) next.grants = []
      break
    case 'session.granted':
    case 'session.ungranted':
      foldGrants(next, event)
      break
    case 'session.shared':
    case 'session.unshared':
      foldShare(next, event)
      break
    case 'turn.activity':
      foldActivity(next, event)
      break
    case 'session.noted':
    case 'turn.output':
    case 'turn.steered':
    case 'message.added':
      break
    case 'ask.opened':
    case 'ask.approved':
    case 'ask.settled':
      foldAsk(next, event)
      break
    case 'attachment.opened':
    case 'attachment.detached':
    case 'attachment.resumed':
    case 'attachment.confirmed':
    case 'attachment.ended':
      foldAttachment(next, event)
      break
    case 'link.created':
    case 'link.used':
    case 'link.revoked':
      foldLink(next, event)
      break
    case 'turn.queued':
    case 'turn.joined':
    case 'turn.moved':
    case 'turn.steering':
    case 'turn.started':
    case 'turn.done':
    case 'turn.failed':
    case 'turn.cancelled':
    case 'turn.interrupted':
    case 'turn.expired':
      foldTurn(next, event)
      break
    default:
      // An event of a newer version: if it may be ignored, it only takes its position in the log.
      assertReadable(event, session.id)
  }
  return next
}
