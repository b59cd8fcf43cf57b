/**
 * How others come to a session: by a link, a capability by a token of which only a digest is kept,
 * or by a share, which names a principal or a group.
 */
import { endAttachments } from './closing.ts'
import type { LifeCommand, LinkCommand, Moment } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { Draft, EventOf, LinkEvent } from './events.ts'
import { STATE_LIMITS } from './limits.ts'
import type { Folding, Link, Session, Share } from './state.ts'
import type { Digest, Entropy } from './clock.ts'

export function decideLink(
  session: Session,
  command: LinkCommand,
  moment: Moment,
): readonly Draft[] {
  if (command.type === 'watch') return useLink(session, command, moment.at)
  if (command.type === 'unlink') {
    const known = session.links.some(({ id }) => id === command.link)
    return known ? revoke(session, command, moment) : []
  }
  // A link with attachments ends by its own timer, and they with it.
  const inUse = (id: string): boolean => session.attachments.some(({ link }) => link === id)
  const expired = session.links.filter((link) => isExpired(link, moment.at) && !inUse(link.id))
  const count = session.links.length - expired.length
  if (count >= STATE_LIMITS.linksMax) {
    throw new HoldfastError('too_many', `session ${session.id} has ${count} links`)
  }
  const { id, ...rest } = command.link
  return [
    ...expired.map((link): Draft => ({ type: 'link.revoked', link: link.id, reason: 'expired' })),
    { type: 'link.created', link: id, ...rest, by: command.by },
  ]
}

/** The attachments that were made with a link end with it. */
function revoke(
  session: Session,
  { link, by }: LinkCommand & { readonly type: 'unlink' },
  moment: Moment,
): readonly Draft[] {
  const opened = session.attachments.filter((attachment) => attachment.link === link)
  const reason = by === null ? 'expired' : undefined
  return [
    { type: 'link.revoked', link, ...(by === null ? { reason: 'expired' } : { by }) },
    ...endAttachments(session, opened, reasonOf(reason), moment),
  ]
}

/** Why the attachments of a link have ended. */
export function reasonOf(reason: 'expired' | undefined): string {
  return reason === undefined ? 'link_revoked' : 'link_expired'
}

function useLink(
  session: Session,
  { link, use, by }: LinkCommand & { readonly type: 'watch' },
  at: number,
): readonly Draft[] {
  if (link === null) return []
  const { uses, usedBy = [] } = usableLink(session, { id: link, use }, at)
  if (uses === null || usedBy.includes(use)) return []
  return [{ type: 'link.used', link, use, by }]
}

function isExpired({ expiresAt }: Link, at: number): boolean {
  return expiresAt !== null && expiresAt <= at
}

/** The link of this digest or id, if it is valid; the error does not say why it is not. */
export function usableLink(
  session: Session,
  shown: {
    readonly id?: string
    readonly digest?: string
    /** The use by which a watcher came in before. */
    readonly use?: string | undefined
  },
  at: number,
): Link {
  const { id, digest, use = '' } = shown
  const link = session.links.find((link) => link.digest === digest || link.id === id)
  const isUsedUp = link?.uses === 0 && link.usedBy?.includes(use) !== true
  if (link === undefined || isExpired(link, at) || isUsedUp) {
    throw new HoldfastError('unauthorized', 'the link is unknown, used up or no longer valid')
  }
  return link
}

export function foldLink(session: Folding, event: LinkEvent): void {
  if (event.type === 'link.revoked') {
    session.links = session.links.filter(({ id }) => id !== event.link)
    return
  }
  if (event.type === 'link.used') return foldLinkUse(session, event.link, event.use)
  const { link: id, digest, scopes, expiresAt, uses } = event
  session.links = [...session.links, { id, digest, scopes, expiresAt, uses }]
}

/** An attachment was opened with it, or a watcher came in. */
export function foldLinkUse(session: Folding, id: string, use?: string): void {
  session.links = session.links.map((link) => {
    if (link.id !== id || link.uses === null) return link
    const uses = link.uses - 1
    if (use === undefined) return { ...link, uses }
    return { ...link, uses, usedBy: [...(link.usedBy ?? []), use].slice(-STATE_LIMITS.linkUsesMax) }
  })
}

/** The watcher that came in by this use is a driver now: the use is not counted again. */
export function foldMovedUse(session: Folding, id: string, use: string): void {
  session.links = session.links.map((link) =>
    link.id === id ? { ...link, usedBy: link.usedBy?.filter((one) => one !== use) ?? [] } : link,
  )
}

/** A share of the same principal or group is replaced. */
export function decideShare(
  session: Session,
  command: LifeCommand & { readonly type: 'share' | 'unshare' },
): readonly Draft[] {
  const { shares } = session
  const { by } = command
  if (command.type === 'unshare') {
    const isShared = shares.some((share) => share.with === command.with)
    return isShared ? [{ type: 'session.unshared', with: command.with, by }] : []
  }
  const others = shares.filter((share) => share.with !== command.share.with)
  if (others.length >= STATE_LIMITS.sharesMax) {
    throw new HoldfastError('too_many', `session ${session.id} has ${others.length} shares`)
  }
  return [{ type: 'session.shared', ...command.share, by }]
}

export function foldShare(
  session: Folding,
  event: EventOf<'session.shared' | 'session.unshared'>,
): void {
  const others = session.shares.filter((share) => share.with !== event.with)
  session.shares =
    event.type === 'session.unshared'
      ? others
      : [...others, { with: event.with, scopes: event.scopes }]
}

/**
 * What a store is told of who may see a session: its shares, and its links as shares with their
 * bearers, so that a link that is not good is refused without loading the session.
 */
export function storedShares({ shares, links }: Session): readonly Share[] {
  return [...shares, ...links.map(({ digest }) => ({ with: bearerOf(digest), scopes: [] }))]
}

/** The bearer of a link, as what a store may be asked for a session. */
export function bearerOf(digest: string): string {
  return `${BEARER_PREFIX}${digest}`
}

/** In the migrations of both databases too. */
const BEARER_PREFIX = '#link '

/** A secret that opens one session: 256 random bits, returned once and kept only as a digest. */
export function newToken({ entropy }: { readonly entropy: Entropy }): string {
  return entropy.id() + entropy.id()
}

/** What is kept of a token. The kind and the session are in it, so it fits nowhere else. */
export function tokenDigest(
  { digest }: { readonly digest: Digest },
  kind: 'resume' | 'link',
  session: string,
  token: string,
): string {
  return digest(JSON.stringify([kind, session, token]))
}
