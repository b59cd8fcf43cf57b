/** Links: capabilities for one session, by a token of which only a digest is kept. */
import { HoldfastError } from './errors.ts'
import { STATE_LIMITS } from './limits.ts'
import { endAttachments } from './attachments.ts'
import type { Principal } from './principal.ts'
import type { Draft, Folding, Session } from './session.ts'

/** What a link lets its holder do: look on, take turns, answer asks. */
export const LINK_SCOPES = ['watch', 'talk', 'answer'] as const
export type LinkScope = (typeof LINK_SCOPES)[number]

export type Link = {
  readonly id: string
  readonly digest: string
  readonly scopes: readonly LinkScope[]
  readonly expiresAt: number | null
  /** How many more attachments it may make, or null for any number. */
  readonly uses: number | null
  /** The newest uses by watchers: each lets its watcher in again, without another use. */
  readonly usedBy?: readonly string[]
}

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

export type LinkCommand =
  | { readonly type: 'link'; readonly link: Link; readonly at: number; readonly by: Principal }
  | {
      readonly type: 'unlink'
      readonly link: string
      readonly at: number
      /** Null: its time is over. */
      readonly by: Principal | null
      /** What the running turn has said since its last message. */
      readonly said?: string | null
    }
  /** A watcher comes in, by a link or not. `use`: fresh, or one that it came in by before. */
  | {
      readonly type: 'watch'
      readonly link: string | null
      readonly use: string
      readonly at: number
      readonly by: Principal
    }

export function decideLink(session: Session, command: LinkCommand): readonly Draft[] {
  if (command.type === 'watch') return useLink(session, command)
  if (command.type === 'unlink') {
    const known = session.links.some(({ id }) => id === command.link)
    return known ? revoke(session, command) : []
  }
  // One that somebody came in by ends by its own clock, and that client with it.
  const inUse = (id: string): boolean => session.attachments.some(({ link }) => link === id)
  const expired = session.links.filter((link) => isExpired(link, command.at) && !inUse(link.id))
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

/** With the link goes all that it opened: who came in by it is out. */
function revoke(
  session: Session,
  { link, at, by, said }: LinkCommand & { readonly type: 'unlink' },
): readonly Draft[] {
  const opened = session.attachments.filter((attachment) => attachment.link === link)
  const why = by === null ? ({ reason: 'expired' } as const) : { by }
  return [
    { type: 'link.revoked', link, ...why },
    ...endAttachments(session, opened, {
      reason: reasonOf('reason' in why ? why.reason : undefined),
      at,
      said,
    }),
  ]
}

/** Why those that came in by a link are out. */
export function reasonOf(reason: 'expired' | undefined): string {
  return reason === undefined ? 'link_revoked' : 'link_expired'
}

function useLink(
  session: Session,
  { link, use, at, by }: LinkCommand & { readonly type: 'watch' },
): readonly Draft[] {
  if (link === null) return []
  const { uses, usedBy = [] } = usableLink(session, { id: link, use }, at)
  if (uses === null || usedBy.includes(use)) return []
  return [{ type: 'link.used', link, use, by }]
}

function isExpired({ expiresAt }: Link, at: number): boolean {
  return expiresAt !== null && expiresAt <= at
}

/** The link of this digest or id, if it is good now; a stranger does not learn why it is not. */
export function usableLink(
  session: Session,
  shown: {
    readonly id?: string
    readonly digest?: string
    /** What a watcher came in by before. */
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

/** An attachment was made with it, or a watcher came in. */
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
