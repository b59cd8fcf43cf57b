/**
 * Attachments: who holds a session, and what a lost connection means under each reconnect policy.
 */
import { HoldfastError } from './errors.ts'
import { STATE_LIMITS } from './limits.ts'
import { settleUnanswerable } from './asks.ts'
import { closeSession, type Draft, type Folding, type Session } from './session.ts'

export const RECONNECT_POLICIES = ['none', 'early', 'resume', 'reopen'] as const
export type ReconnectPolicy = (typeof RECONNECT_POLICIES)[number]

/** One client's hold on a session. A detached one has lost its connection and may come back. */
export type Attachment = {
  readonly id: string
  /** The kinds of ask it answers. */
  readonly answers: readonly string[]
  readonly state: 'live' | 'detached'
  /** When a detached one ends for good. */
  readonly graceUntil: number | null
}

export type AttachmentEvent =
  | {
      readonly type: 'attachment.opened'
      readonly attachment: string
      readonly answers: readonly string[]
    }
  | {
      readonly type: 'attachment.detached'
      readonly attachment: string
      readonly graceUntil: number
    }
  | { readonly type: 'attachment.resumed'; readonly attachment: string }
  | { readonly type: 'attachment.ended'; readonly attachment: string; readonly reason: string }

export type AttachmentCommand =
  /** `attachment` is a fresh unguessable id (I6). */
  | {
      readonly type: 'attach'
      readonly attachment: string
      readonly answers: readonly string[]
    }
  /** The connection is gone without a goodbye. */
  | { readonly type: 'lose'; readonly attachment: string; readonly at: number }
  | { readonly type: 'resume'; readonly attachment: string }
  /** Ends for good: a goodbye, or the grace time is over. */
  | { readonly type: 'leave'; readonly attachment: string; readonly reason: string }
  /** The grace time is over; nothing happens if it came back meanwhile. */
  | { readonly type: 'lapse'; readonly attachment: string }

export function decideAttachment(session: Session, command: AttachmentCommand): readonly Draft[] {
  switch (command.type) {
    case 'attach':
      return openAttachment(session, command)
    case 'lose':
      return loseConnections(session, [find(session, command.attachment)], command.at)
    case 'resume':
      return resumeAttachment(session, find(session, command.attachment))
    case 'leave':
      return endAttachments(session, [find(session, command.attachment)], command.reason)
    case 'lapse': {
      const gone = session.attachments.filter(
        ({ id, state }) => id === command.attachment && state === 'detached',
      )
      return endAttachments(session, gone, 'grace_over')
    }
  }
}

function openAttachment(
  session: Session,
  { attachment, answers }: AttachmentCommand & { type: 'attach' },
): readonly Draft[] {
  if (session.attachments.length >= STATE_LIMITS.attachmentsMax) {
    throw new HoldfastError('too_many', `session ${session.id} has too many attachments`)
  }
  return [{ type: 'attachment.opened', attachment, answers }]
}

/** The policy table: what a lost connection does to its attachment. */
function mayComeBack(session: Session): boolean {
  switch (session.reconnect) {
    case 'none':
      return false
    case 'early':
      return session.turns === 0
    case 'resume':
    case 'reopen':
      return true
  }
}

/** Connections that are gone, together: the session closes only if none of its holders is left. */
export function loseConnections(
  session: Session,
  lost: readonly Attachment[],
  at: number,
): readonly Draft[] {
  if (!mayComeBack(session)) return endAttachments(session, lost, 'connection_lost')
  return lost
    .filter(({ state }) => state === 'live')
    .map(({ id }) => ({
      type: 'attachment.detached',
      attachment: id,
      graceUntil: at + session.graceMs,
    }))
}

function resumeAttachment(session: Session, attachment: Attachment): readonly Draft[] {
  if (attachment.state === 'detached' && !mayComeBack(session)) {
    throw new HoldfastError('work_started', 'work has started: this attachment cannot come back')
  }
  return [{ type: 'attachment.resumed', attachment: attachment.id }]
}

function endAttachments(
  session: Session,
  gone: readonly Attachment[],
  reason: string,
): readonly Draft[] {
  if (gone.length === 0) return []
  const left = session.attachments.filter((attachment) => !gone.includes(attachment))
  const ended: Draft[] = gone.map(({ id }) => ({
    type: 'attachment.ended',
    attachment: id,
    reason,
  }))
  if (left.length === 0 && session.reconnect !== 'reopen') {
    return [...ended, ...closeSession({ ...session, attachments: [] }, 'last_holder_left')]
  }
  return [...ended, ...settleUnanswerable(session, left)]
}

function find(session: Session, id: string): Attachment {
  const attachment = session.attachments.find((candidate) => candidate.id === id)
  if (attachment !== undefined) return attachment
  throw new HoldfastError('attachment_unknown', `session ${session.id} has no such attachment`)
}

export function foldAttachment(session: Folding, event: AttachmentEvent): void {
  const { attachment: id } = event
  const others = session.attachments.filter((attachment) => attachment.id !== id)
  switch (event.type) {
    case 'attachment.opened': {
      const { answers } = event
      session.attachments = [...others, { id, answers, state: 'live', graceUntil: null }]
      break
    }
    case 'attachment.detached':
      session.attachments = changed(session, id, 'detached', event.graceUntil)
      break
    case 'attachment.resumed':
      session.attachments = changed(session, id, 'live', null)
      break
    case 'attachment.ended':
      session.attachments = others
  }
}

function changed(
  session: Session,
  id: string,
  state: Attachment['state'],
  graceUntil: number | null,
): readonly Attachment[] {
  return session.attachments.map((attachment) =>
    attachment.id === id ? { ...attachment, state, graceUntil } : attachment,
  )
}
