/**
 * The principal: on whose behalf something was done, as the log keeps it for ever. It identifies a
 * caller and says nothing about it: `id` is opaque and stable, never a name, a group, an address or
 * a secret. What the system does itself (a timeout, a recovery) has no principal but a reason.
 */
import { invalid } from './errors.ts'

export const PRINCIPAL_KINDS = ['token', 'jwt', 'link', 'local'] as const

export type Principal = {
  /** What it was recognised by. */
  readonly kind: (typeof PRINCIPAL_KINDS)[number]
  /** Which authority gave the id out; `holdfast` for tokens, links and local callers. */
  readonly issuer: string
  readonly id: string
}

export const ISSUER = 'holdfast'

/** Callers of the library, and of a server on loopback without tokens. */
export const LOCAL: Principal = { kind: 'local', issuer: ISSUER, id: 'default' }

/** The holder of a link. */
export function linkPrincipal(link: string): Principal {
  return { kind: 'link', issuer: ISSUER, id: link }
}

const CHARS_MAX = 256

/** Only the three fields, checked: a program may hand over anything. */
export function checkPrincipal({ kind, issuer, id }: Principal): Principal {
  if (!PRINCIPAL_KINDS.includes(kind)) {
    throw invalid('by.kind', `must be one of ${PRINCIPAL_KINDS.join(', ')}`)
  }
  for (const [name, text] of Object.entries({ issuer, id })) {
    if (typeof text === 'string' && text !== '' && text.length <= CHARS_MAX) continue
    throw invalid(`by.${name}`, `must be a text of 1 to ${CHARS_MAX} characters`)
  }
  return { kind, issuer, id }
}

/** Each once, the first one first. */
export function distinct(principals: readonly Principal[]): readonly Principal[] {
  return [...new Map(principals.map((by) => [JSON.stringify(by), by])).values()]
}

/** `by` in a draft; left out for what the system does. */
export function recordedBy(by: Principal | null): { readonly by?: Principal } {
  return by === null ? {} : { by }
}

/** Those of each principal together, in their order. */
export function groupByPrincipal<Item extends { readonly by?: Principal }>(
  items: readonly Item[],
): readonly (readonly Item[])[] {
  const groups = new Map<string, Item[]>()
  for (const item of items) {
    const whose = JSON.stringify(item.by ?? null)
    const group = groups.get(whose)
    if (group === undefined) groups.set(whose, [item])
    else group.push(item)
  }
  return [...groups.values()]
}
