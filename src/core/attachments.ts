/**
 * Attachments: who holds a session, and what a lost connection means under each reconnect policy.
 *
 * I6: an attachment's id is fresh and unguessable, and so is each of its resume tokens, of which
 * only digests are kept. A token is good until the client has confirmed the one that replaced it.
 * Each connection of an attachment has an epoch; what an older one says is dropped.
 */
import { settleUnanswerable, type Answerer } from './asks.ts'
import { positionOf, type Crowd } from './crowd.ts'
import { HoldfastError } from './errors.ts'
import { STATE_LIMITS } from './limits.ts'
import { foldLinkUse, foldMovedUse, usableLink } from './links.ts'
import type { Principal } from './principal.ts'
import { closedError, closeSession, type Draft, type Folding, type Session } from './session.ts'

export const RECONNECT_POLICIES = ['none', 'early', 'resume', 'reopen'] as const
export type ReconnectPolicy = (typeof RECONNECT_POLICIES)[number]

/**
 * A driver takes part; an exclusive session has at most one. A watcher only looks on, and is not
 * recorded (`watchers.ts`): only logs that 0.1.0 began have attachments with that role.
 */
export const ROLES = ['driver', 'watcher'] as const
export type Role = (typeof ROLES)[number]

/** One client's hold on a session. A detached one has lost its connection and may come back. */
export type Attachment = {
  readonly id: string
  readonly role: Role
  /** The kinds of ask it answers. */
  readonly answers: readonly string[]
  readonly state: 'live' | 'detached'
  /** When a detached one ends for good. */
  readonly graceUntil: number | null
  /** Until when a detached one still counts as a client that answers asks. */
  readonly answersUntil: number | null
  /** How often it has connected. */
  readonly epoch: number
  /**
   * Digests of the resume tokens that are good: the newest, and the one before it until confirmed.
   */
  readonly tokens: readonly string[]
  /** The digest that was good last: whoever shows it has an old copy. */
  readonly retired: string | null
  /** The link that it came in by, if any: they end together. */
  readonly link?: string
  /** On whose behalf it was opened; not in logs of 0.1.0. */
  readonly by?: Principal
}

/** An attachment that ended: its holder may learn why. */
export type Tombstone = {
  readonly id: string
  readonly tokens: readonly string[]
  readonly reason: string
}

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
  /** Of a crowd that came back at once, many are recorded together. */
  | { readonly type: 'attachment.confirmed'; readonly attachments: readonly string[] }
  | { readonly type: 'attachment.ended'; readonly attachment: string; readonly reason: string }

/** One connection of an attachment. */
export type Connected = { readonly attachment: string; readonly epoch: number }

export type AttachmentCommand =
  | {
      readonly type: 'attach'
      /** Fresh and unguessable (I6). */
      readonly attachment: string
      readonly answers: readonly string[]
      readonly token: string | null
      /** Looked at when this is decided: a link may be used up or revoked just before. */
      readonly link: string | null
      /** The use of the link that it came in by before, as a watcher. */
      readonly use?: string | undefined
      readonly at: number
      /** Take an exclusive session over from its live driver. */
      readonly take: boolean
      readonly by: Principal
    }
  /** A connection is gone without a goodbye; an older one than the present changes nothing. */
  | {
      readonly type: 'lose'
      readonly attachment: string
      readonly epoch: number
      readonly at: number
      readonly answerGraceMs: number
      /** What the running turn has said since its last message. */
      readonly said?: string | null
    }
  | {
      readonly type: 'resume'
      readonly attachment: string
      /** Null: the same kinds as before. */
      readonly answers: readonly string[] | null
      /** Digests of the token shown and of the next one; null for a holder without tokens. */
      readonly shown: string | null
      readonly token: string | null
      readonly at: number
      readonly by: Principal
    }
  /** These clients have the tokens of these connections. */
  | { readonly type: 'confirm'; readonly clients: readonly Connected[] }
  /** Ends for good, with a goodbye. */
  | {
      readonly type: 'leave'
      readonly attachment: string
      readonly reason: string
      readonly at: number
      readonly said?: string | null
    }
  /** This grace time is over; nothing happens if it came back, and perhaps was lost anew. */
  | {
      readonly type: 'lapse'
      readonly attachment: string
      readonly graceUntil: number
      readonly said?: string | null
    }

export function decideAttachment(session: Session, command: AttachmentCommand): readonly Draft[] {
  switch (command.type) {
    case 'attach':
      return openAttachment(session, command)
    case 'lose': {
      const held = attachmentIn(session, command.attachment)
      return held?.epoch === command.epoch ? loseConnections(session, [held], command) : []
    }
    case 'resume':
      return resumeAttachment(session, command)
    case 'confirm':
      return confirmTokens(session, command.clients)
    case 'leave':
      return endAttachments(session, [find(session, command.attachment)], command)
    case 'lapse': {
      const { attachment: id, graceUntil: at, said } = command
      const held = attachmentIn(session, id)
      if (held?.graceUntil !== at) return []
      return endAttachments(session, [held], { reason: 'grace_over', at, said })
    }
  }
}

function openAttachment(
  session: Session,
  command: AttachmentCommand & { type: 'attach' },
): readonly Draft[] {
  const { attachment, answers, token, link, use, at, take, by } = command
  const { usedBy = [] } = link === null ? {} : usableLink(session, { id: link, use }, at)
  const isMoved = use !== undefined && usedBy.includes(use)
  const crowded = makeRoom(session, link)
  const others = session.exclusive ? drivers(session) : []
  if (!take && others.some(({ state }) => state === 'live')) {
    throw new HoldfastError('in_use', `session ${session.id} is in use elsewhere`)
  }
  const gone = [...crowded, ...others.filter((other) => !crowded.includes(other))]
  const left = session.attachments.filter((held) => !gone.includes(held))
  return [
    ...gone.map((other) => ended(other, others.includes(other) ? 'superseded' : 'crowded_out')),
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
    ...settleUnanswerable(session, [...left, connected(answers)], at),
  ]
}

function connected(answers: readonly string[]): Answerer {
  return { role: 'driver', answers, state: 'live', answersUntil: null }
}

/**
 * The attachments that end so that one more finds room: always detached ones, guests first. The
 * principal that has most of them gives up the one that was lost first, so that a crowd takes its
 * own places. A guest, who came in by a link, never takes the place of a client that did not.
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
  const groups = new Map<string, Attachment[]>()
  for (const held of away) {
    const whose = JSON.stringify(held.by ?? null)
    groups.set(whose, [...(groups.get(whose) ?? []), held])
  }
  const lostFirst = [...groups.values()].map((group) => ({
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
  { at, answerGraceMs, said }: Omit<AttachmentCommand & { type: 'lose' }, 'type' | keyof Connected>,
): readonly Draft[] {
  if (!mayComeBack(session)) {
    return endAttachments(session, lost, { reason: 'connection_lost', at, said })
  }
  const graceUntil = at + session.graceMs
  const answersUntil = Math.min(graceUntil, at + answerGraceMs)
  return lost
    .filter(({ state }) => state === 'live')
    .map(({ id }) => ({ type: 'attachment.detached', attachment: id, graceUntil, answersUntil }))
}

function resumeAttachment(
  session: Session,
  command: AttachmentCommand & { type: 'resume' },
): readonly Draft[] {
  const { attachment: id, shown, token, answers, at, by } = command
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
    ...(answers === null ? [] : settleWithout(session, attachment, { answers, at })),
  ]
}

/** It may answer less than before. */
function settleWithout(
  session: Session,
  attachment: Attachment,
  { answers, at }: { readonly answers: readonly string[]; readonly at: number },
): readonly Draft[] {
  if (session.asks.length === 0) return []
  const others = session.attachments.filter((held) => held !== attachment)
  return settleUnanswerable(session, [...others, connected(answers)], at)
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
  const tombstone = session.ended.find((gone) => gone.id === id)
  if (tombstone !== undefined && fits(tombstone.tokens, shown)) throw overError(tombstone)
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
  const tombstone = session.ended.find(({ id }) => id === attachment)
  if (held === undefined && tombstone !== undefined) throw overError(tombstone)
  throw new HoldfastError('superseded', 'continued in another connection')
}

/** Who was away when somebody else took over is told the same as one who was there. */
function overError({ reason }: Tombstone): HoldfastError {
  if (reason === 'superseded') {
    return new HoldfastError('superseded', 'continued in another connection')
  }
  return new HoldfastError('attachment_ended', `the attachment is over: ${reason}`, { reason })
}

function fits(tokens: readonly string[], shown: string | null): boolean {
  return shown === null ? tokens.length === 0 : tokens.includes(shown)
}

export function endAttachments(
  session: Session,
  gone: readonly Attachment[],
  ending: {
    readonly reason: string
    readonly at: number
    readonly said?: string | null | undefined
  },
): readonly Draft[] {
  const { reason, at, said = null } = ending
  if (gone.length === 0) return []
  const left = session.attachments.filter((attachment) => !gone.includes(attachment))
  const events = gone.map((attachment) => ended(attachment, reason))
  if (left.length === 0 && session.reconnect !== 'reopen') {
    return [
      ...events,
      ...closeSession(
        { ...session, attachments: [] },
        { reason: 'last_holder_left', by: null, said },
      ),
    ]
  }
  return [...events, ...settleUnanswerable(session, left, at)]
}

function ended({ id }: Attachment, reason: string): Draft {
  return { type: 'attachment.ended', attachment: id, reason }
}

function find(session: Session, id: string): Attachment {
  const attachment = attachmentIn(session, id)
  if (attachment !== undefined) return attachment
  throw unknownAttachment()
}

export function attachmentIn({ attachments }: Session, id: string): Attachment | undefined {
  return attachments[positionOf(attachments, id)]
}

/** The same words for everybody: a stranger does not learn whether there is such a session. */
function unknownAttachment(): HoldfastError {
  return new HoldfastError('attachment_unknown', 'there is no such attachment')
}

export function foldAttachment(
  session: Folding,
  event: AttachmentEvent & { readonly at: number },
  crowd: Crowd,
): void {
  if (event.type === 'attachment.opened') return foldOpened(session, event, crowd)
  if (event.type === 'attachment.confirmed') {
    return foldConfirmed(session, confirmedIn(event), crowd)
  }
  const { attachment: id } = event
  const { attachments } = session
  const index = positionOf(attachments, id)
  const attachment = attachments[index]
  if (attachment === undefined) return
  if (event.type === 'attachment.ended') {
    const { tokens } = attachment
    session.attachments = crowd.without(attachments, index)
    session.ended = [...session.ended, { id, tokens, reason: event.reason }].slice(
      -STATE_LIMITS.tombstonesMax,
    )
    return
  }
  const next = { ...attachment, ...changes(attachment, event) }
  session.attachments = crowd.put(attachments, index, next)
}

function foldOpened(
  session: Folding,
  event: AttachmentEvent & { type: 'attachment.opened' },
  crowd: Crowd,
): void {
  const { attachment: id, role, answers, token, link, use, by } = event
  const { attachments } = session
  const tokens = token === undefined ? [] : [token]
  const present = { state: 'live', graceUntil: null, answersUntil: null } as const
  const fresh = { ...present, epoch: 1, tokens, retired: null }
  const cameBy = { ...(link === undefined ? {} : { link }), ...(by === undefined ? {} : { by }) }
  const opened = { id, role, answers, ...fresh, ...cameBy }
  session.attachments = crowd.put(attachments, attachments.length, opened)
  if (link === undefined) return
  if (use === undefined) foldLinkUse(session, link)
  else foldMovedUse(session, link, use)
}

/** A log that was begun before there were crowds names one, in `attachment`. */
function confirmedIn(event: object): readonly string[] {
  const { attachments, attachment = '' } = event as Partial<Record<'attachment', string>> & {
    readonly attachments?: readonly string[]
  }
  return attachments ?? [attachment]
}

function foldConfirmed(session: Folding, confirmed: readonly string[], crowd: Crowd): void {
  for (const id of confirmed) {
    const index = positionOf(session.attachments, id)
    const attachment = session.attachments[index]
    if (attachment === undefined) continue
    const { tokens } = attachment
    const next = { ...attachment, tokens: tokens.slice(0, 1), retired: tokens[1] ?? null }
    session.attachments = crowd.put(session.attachments, index, next)
  }
}

function changes(
  { answers: before }: Attachment,
  event: AttachmentEvent & {
    readonly type: 'attachment.detached' | 'attachment.resumed'
    readonly at: number
  },
): Partial<Attachment> {
  switch (event.type) {
    case 'attachment.detached': {
      const { graceUntil, at } = event
      const { answersUntil = Math.min(graceUntil, at + STATE_LIMITS.answerGraceMs) } = event
      return { state: 'detached', graceUntil, answersUntil }
    }
    case 'attachment.resumed': {
      const { epoch, answers = before, token, shown } = event
      const good = [token, shown].filter((digest) => digest !== undefined)
      return { state: 'live', graceUntil: null, answersUntil: null, epoch, answers, tokens: good }
    }
  }
}
