/**
 * Attachments: the clients of a session, and what a lost connection means under each reconnect
 * policy.
 *
 * I6: an attachment's id is fresh and unguessable, and so is each of its resume tokens, of which
 * only digests are kept. A token is valid until the client has confirmed the one that replaced it.
 * Each connection of an attachment has an epoch; what an older one says is dropped.
 */
import { settleUnanswerable, type Answerer } from './asks.ts'
import { attachmentEnded, closedError, endAttachments } from './closing.ts'
import type { AttachmentCommand, Moment } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { AttachmentEvent, Draft, EventOf } from './events.ts'
import { STATE_LIMITS } from './limits.ts'
import {
  groupByPrincipal,
  type Attachment,
  type Connected,
  type EndedAttachment,
  type Folding,
  type Session,
} from './state.ts'
import { foldLinkUse, foldMovedUse, usableLink } from './links.ts'

export function decideAttachment(
  session: Session,
  command: AttachmentCommand,
  moment: Moment,
): readonly Draft[] {
  switch (command.type) {
    case 'attach':
      return openAttachment(session, command, moment)
    case 'lose': {
      const held = attachmentIn(session, command.attachment)
      if (held?.epoch !== command.epoch) return []
      return loseConnections(session, [held], command.answerGraceMs, moment)
    }
    case 'resume':
      return resumeAttachment(session, command, moment)
    case 'confirm':
      return confirmTokens(session, command.clients)
    case 'leave':
      return endAttachments(session, [find(session, command.attachment)], command.reason, moment)
    case 'lapse': {
      const { attachment: id, graceUntil } = command
      const held = attachmentIn(session, id)
      if (held?.graceUntil !== graceUntil) return []
      // The clock may have been set back since the timer was set.
      const at = Math.max(moment.at, graceUntil)
      return endAttachments(session, [held], 'grace_over', { ...moment, at })
    }
  }
}

function openAttachment(
  session: Session,
  command: AttachmentCommand & { type: 'attach' },
  moment: Moment,
): readonly Draft[] {
  const { attachment, answers, token, link, use, take, by } = command
  const { usedBy = [] } = link === null ? {} : usableLink(session, { id: link, use }, moment.at)
  const isMoved = use !== undefined && usedBy.includes(use)
  const crowded = makeRoom(session, link)
  const others = session.exclusive ? drivers(session) : []
  if (!take && others.some(({ state }) => state === 'live')) {
    throw new HoldfastError('in_use', `session ${session.id} is in use elsewhere`)
  }
  const gone = [...crowded, ...others.filter((other) => !crowded.includes(other))]
  return [
    ...gone.map((other) =>
      attachmentEnded(other, others.includes(other) ? 'superseded' : 'crowded_out'),
    ),
    {
      type: 'attachment.opened',
      attachment,
      role: 'driver',
      answers,
      ...(token === null ? {} : { token }),
      ...(link === null ? {} : { link }),
      ...(isMoved ? { use } : {}),
      by,
    },
    ...settleUnanswerableWith(session, gone, answers, moment),
  ]
}

/**
 * The attachments that end so that one more finds room: always detached ones, guests first. The
 * principal with most of them gives up the one that was lost first, so that a principal with many
 * clients displaces its own. A guest, admitted by a link, never displaces a client without one.
 */
function makeRoom(session: Session, link: string | null): readonly Attachment[] {
  const { attachments } = session
  const { attachmentsMax, guestsMax, attachmentsPerLinkMax } = STATE_LIMITS
  const guests = attachments.filter((held) => held.link !== undefined)
  const ours = guests.filter((held) => held.link === link)
  const isFull = attachments.length >= attachmentsMax
  const isFullOfGuests = link !== null && guests.length >= guestsMax
  const isFullOfOurs = ours.length >= attachmentsPerLinkMax
  if (!isFull && !isFullOfGuests && !isFullOfOurs) return []
  const pools = isFullOfOurs ? [ours] : link === null ? [guests, attachments] : [guests]
  const away = pools.map((pool) => pool.filter(({ state }) => state === 'detached'))
  const leaver = leaverOf(away.find(({ length }) => length > 0) ?? [])
  if (leaver !== null) return [leaver]
  throw new HoldfastError('too_many', `session ${session.id} has too many attachments`)
}

/** They have the same grace time, so the one that ends first was lost first. */
function leaverOf(away: readonly Attachment[]): Attachment | null {
  const lostFirst = groupByPrincipal(away).map((group) => ({
    size: group.length,
    first: group.reduce((one, other) => (lostAt(other) < lostAt(one) ? other : one)),
  }))
  const [largest] = lostFirst.toSorted(
    (one, other) => other.size - one.size || lostAt(one.first) - lostAt(other.first),
  )
  return largest?.first ?? null
}

function lostAt({ graceUntil }: Attachment): number {
  return graceUntil ?? Number.POSITIVE_INFINITY
}

function drivers(session: Session): readonly Attachment[] {
  return session.attachments.filter(({ role }) => role === 'driver')
}

/** The policy table: what a lost connection does to its attachment. */
export function mayComeBack(session: Session): boolean {
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
  answerGraceMs: number,
  moment: Moment,
): readonly Draft[] {
  if (!mayComeBack(session)) return endAttachments(session, lost, 'connection_lost', moment)
  const graceUntil = moment.at + session.graceMs
  const answersUntil = Math.min(graceUntil, moment.at + answerGraceMs)
  return lost
    .filter(({ state }) => state === 'live')
    .map(({ id }) => ({ type: 'attachment.detached', attachment: id, graceUntil, answersUntil }))
}

function resumeAttachment(
  session: Session,
  command: AttachmentCommand & { type: 'resume' },
  moment: Moment,
): readonly Draft[] {
  const { attachment: id, shown, token, answers, by } = command
  const attachment = findByToken(session, id, shown)
  if (attachment.state === 'detached' && !mayComeBack(session)) {
    throw new HoldfastError('work_started', 'work has started: this attachment cannot come back')
  }
  return [
    {
      type: 'attachment.resumed',
      attachment: id,
      epoch: attachment.epoch + 1,
      ...(answers === null ? {} : { answers }),
      ...(token === null ? {} : { token }),
      ...(shown === null ? {} : { shown }),
      by,
    },
    ...(answers === null ? [] : settleUnanswerableWith(session, [attachment], answers, moment)),
  ]
}

/** The asks that no client is left to answer once one with these answers takes others' places. */
function settleUnanswerableWith(
  session: Session,
  gone: readonly Attachment[],
  answers: readonly string[],
  moment: Moment,
): readonly Draft[] {
  if (session.asks.length === 0) return []
  const left = session.attachments.filter((held) => !gone.includes(held))
  const connected: Answerer = { role: 'driver', answers, state: 'live', answersUntil: null }
  return settleUnanswerable(session, [...left, connected], moment)
}

function confirmTokens(session: Session, clients: readonly Connected[]): readonly Draft[] {
  const due = clients.filter(({ attachment, epoch }) => {
    const held = attachmentIn(session, attachment)
    return held?.epoch === epoch && held.tokens.length > 1
  })
  const attachments = [...new Set(due.map(({ attachment }) => attachment))]
  return attachments.length === 0 ? [] : [{ type: 'attachment.confirmed', attachments }]
}

/**
 * Unknown, and known by a wrong token, are the same answer; only an old token's holder learns
 * more.
 */
export function findByToken(session: Session, id: string, shown: string | null): Attachment {
  const over = session.ended.find((gone) => gone.id === id)
  if (over !== undefined && fits(over.tokens, shown)) throw overError(over)
  const attachment = find(session, id)
  if (fits(attachment.tokens, shown)) return attachment
  if (shown !== null && shown === attachment.retired) {
    throw new HoldfastError('token_reused', 'the resume token was replaced by a newer one')
  }
  throw unknownAttachment()
}

/** The attachment, if this is its connection now; throws why it is not. */
export function connectedAs(session: Session, { attachment, epoch }: Connected): Attachment {
  const held = attachmentIn(session, attachment)
  if (held?.epoch === epoch && held.state === 'live') return held
  if (session.closed !== null) throw closedError(session)
  if (held?.epoch === epoch) {
    throw new HoldfastError('lease_lost', 'the connection was given up with the hold: come back')
  }
  const over = session.ended.find(({ id }) => id === attachment)
  if (held === undefined && over !== undefined) throw overError(over)
  throw new HoldfastError('superseded', 'continued in another connection')
}

/** A client gets the same error whether it was connected when another took over or not. */
function overError({ reason }: EndedAttachment): HoldfastError {
  if (reason === 'superseded') {
    return new HoldfastError('superseded', 'continued in another connection')
  }
  return new HoldfastError('attachment_ended', `the attachment is over: ${reason}`, { reason })
}

function fits(tokens: readonly string[], shown: string | null): boolean {
  return shown === null ? tokens.length === 0 : tokens.includes(shown)
}

function find(session: Session, id: string): Attachment {
  const attachment = attachmentIn(session, id)
  if (attachment !== undefined) return attachment
  throw unknownAttachment()
}

export function attachmentIn({ attachments }: Session, id: string): Attachment | undefined {
  return attachments[indexOf(attachments, id)]
}

/** From the newest: a client that has just come is the likeliest. */
function indexOf(attachments: readonly Attachment[], id: string): number {
  let index = attachments.length - 1
  while (index >= 0 && attachments[index]?.id !== id) index -= 1
  return index
}

/** The same message in all cases: it does not show whether there is such a session. */
function unknownAttachment(): HoldfastError {
  return new HoldfastError('attachment_unknown', 'there is no such attachment')
}

export function foldAttachment(session: Folding, event: EventOf<AttachmentEvent['type']>): void {
  if (event.type === 'attachment.opened') return foldOpened(session, event)
  if (event.type === 'attachment.confirmed') return foldConfirmed(session, event)
  const { attachment: id } = event
  const { attachments } = session
  const index = indexOf(attachments, id)
  const attachment = attachments[index]
  if (attachment === undefined) return
  if (event.type === 'attachment.ended') {
    const { tokens } = attachment
    session.attachments = attachments.toSpliced(index, 1)
    session.ended = [...session.ended, { id, tokens, reason: event.reason }].slice(
      -STATE_LIMITS.tombstonesMax,
    )
    return
  }
  session.attachments = attachments.with(index, { ...attachment, ...changes(attachment, event) })
}

function foldOpened(session: Folding, event: EventOf<'attachment.opened'>): void {
  const { attachment: id, role, answers, token, link, use, by } = event
  const tokens = token === undefined ? [] : [token]
  const present = { state: 'live', graceUntil: null, answersUntil: null } as const
  const fresh = { ...present, epoch: 1, tokens, retired: null }
  const cameBy = { ...(link === undefined ? {} : { link }), ...(by === undefined ? {} : { by }) }
  session.attachments = [...session.attachments, { id, role, answers, ...fresh, ...cameBy }]
  if (link === undefined) return
  if (use === undefined) foldLinkUse(session, link)
  else foldMovedUse(session, link, use)
}

/** Logs that were begun before 0.1.0 name one, in `attachment`. */
function foldConfirmed(session: Folding, event: object): void {
  const { attachments, attachment = '' } = event as {
    readonly attachments?: readonly string[]
    readonly attachment?: string
  }
  const confirmed = new Set(attachments ?? [attachment])
  session.attachments = session.attachments.map((held) => {
    if (!confirmed.has(held.id)) return held
    return { ...held, tokens: held.tokens.slice(0, 1), retired: held.tokens[1] ?? null }
  })
}

function changes(
  { answers: before }: Attachment,
  event: EventOf<'attachment.detached' | 'attachment.resumed'>,
): Partial<Attachment> {
  if (event.type === 'attachment.detached') {
    const { graceUntil, at } = event
    const { answersUntil = Math.min(graceUntil, at + STATE_LIMITS.answerGraceMs) } = event
    return { state: 'detached', graceUntil, answersUntil }
  }
  const { epoch, answers = before, token, shown } = event
  const tokens = [token, shown].filter((digest) => digest !== undefined)
  return { state: 'live', graceUntil: null, answersUntil: null, epoch, answers, tokens }
}
