/** Links: capabilities for one session, by a token of which only a digest is kept. */
import { HoldfastError } from './errors.ts'
import { STATE_LIMITS } from './limits.ts'
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
}

export type LinkEvent =
  | ({ readonly type: 'link.created'; readonly link: string } & Omit<Link, 'id'>)
  | { readonly type: 'link.revoked'; readonly link: string }

export type LinkCommand =
  | { readonly type: 'link'; readonly link: Link }
  | { readonly type: 'unlink'; readonly link: string }

export function decideLink(session: Session, command: LinkCommand): readonly Draft[] {
  if (command.type === 'unlink') {
    const known = session.links.some(({ id }) => id === command.link)
    return known ? [{ type: 'link.revoked', link: command.link }] : []
  }
  if (session.links.length >= STATE_LIMITS.linksMax) {
    throw new HoldfastError('too_many', `session ${session.id} has ${session.links.length} links`)
  }
  const { id, ...rest } = command.link
  return [{ type: 'link.created', link: id, ...rest }]
}

/** The link of this digest, if it is good now; a stranger learns nothing about why it is not. */
export function usableLink(session: Session, digest: string, at: number): Link {
  const link = session.links.find((candidate) => candidate.digest === digest)
  const expired = link !== undefined && link.expiresAt !== null && link.expiresAt <= at
  if (link === undefined || expired || link.uses === 0) {
    throw new HoldfastError('unauthorized', 'the link is unknown, used up or no longer valid')
  }
  return link
}

export function foldLink(session: Folding, event: LinkEvent): void {
  if (event.type === 'link.revoked') {
    session.links = session.links.filter(({ id }) => id !== event.link)
    return
  }
  const { link: id, digest, scopes, expiresAt, uses } = event
  session.links = [...session.links, { id, digest, scopes, expiresAt, uses }]
}

/** An attachment was made with it. */
export function foldLinkUse(session: Folding, id: string): void {
  session.links = session.links.map((link) =>
    link.id === id && link.uses !== null ? { ...link, uses: link.uses - 1 } : link,
  )
}
