/** How attachments and sessions end: what is recorded, and the refusal that follows. */
import { settleUnanswerable, withdrawAsks } from './asks.ts'
import type { LifeCommand, Moment } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { Draft } from './events.ts'
import type { Attachment, Session } from './state.ts'
import { partialMessage, recordedBy, turnCancelled } from './turns.ts'

export function closeSession(
  session: Session,
  { reason, by }: Omit<LifeCommand & { type: 'close' }, 'type'>,
  { said }: Moment,
): readonly Draft[] {
  const { running, queued, attachments } = session
  const turns = running === null ? queued : [running, ...queued]
  return [
    ...turns.flatMap((turn): Draft[] => [
      ...withdrawAsks(session, turn.id),
      ...(turn === running ? partialMessage(turn.id, said()) : []),
      turnCancelled(turn.id, { reason: 'session_closed', by }),
    ]),
    ...attachments.map((attachment) => attachmentEnded(attachment, 'session_closed')),
    { type: 'session.closed', reason, ...recordedBy(by) },
  ]
}

/** Ends attachments; with the last one the session closes, unless its policy is `reopen`. */
export function endAttachments(
  session: Session,
  gone: readonly Attachment[],
  reason: string,
  moment: Moment,
): readonly Draft[] {
  if (gone.length === 0) return []
  const left = session.attachments.filter((attachment) => !gone.includes(attachment))
  const events = gone.map((attachment) => attachmentEnded(attachment, reason))
  if (left.length === 0 && session.reconnect !== 'reopen') {
    const rest: Session = { ...session, attachments: [] }
    return [...events, ...closeSession(rest, { reason: 'last_holder_left', by: null }, moment)]
  }
  return [...events, ...settleUnanswerable(session, left, moment)]
}

export function attachmentEnded({ id }: Attachment, reason: string): Draft {
  return { type: 'attachment.ended', attachment: id, reason }
}

export function isClosedError(error: unknown): boolean {
  return error instanceof HoldfastError && error.code === 'session_closed'
}

export function closedError(session: Pick<Session, 'id' | 'closed'>): HoldfastError {
  const { at, reason } = session.closed ?? { at: 0, reason: 'closed' }
  return new HoldfastError('session_closed', `session ${session.id} is closed: ${reason}`, {
    reason,
    closedAt: at,
  })
}
