/** Grants: what people have allowed an agent for the rest of a session, and may take back. */
import type { Digest } from './clock.ts'
import type { LifeCommand } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { Draft, EventOf } from './events.ts'
import { STATE_LIMITS } from './limits.ts'
import type { Folding, Grant, Session } from './state.ts'

/** A grant with the id by which it can be taken back. */
export type NamedGrant = Grant & { readonly id: string }

const ID_CHARS = 16

/** A session has no two that are the same, so that what a grant says can name it. */
export function namedGrants(
  { grants }: Pick<Session, 'grants'>,
  digest: Digest,
): readonly NamedGrant[] {
  return grants.map((grant) => ({ id: idOf(grant, digest), ...grant }))
}

export function findGrant(
  { grants }: Pick<Session, 'grants'>,
  id: string,
  digest: Digest,
): Grant | undefined {
  return grants.find((grant) => idOf(grant, digest) === id)
}

function idOf(grant: Grant, digest: Digest): string {
  return digest(JSON.stringify(grant), 'hex').slice(0, ID_CHARS)
}

/** Those that the session has not yet. */
export function newGrants(
  { grants: before }: Session,
  granted: readonly Grant[],
): readonly Grant[] {
  const known = new Set(before.map((grant) => JSON.stringify(grant)))
  const added = granted.filter((grant) => !known.has(JSON.stringify(grant)))
  const { grantsCharsMax } = STATE_LIMITS
  if (added.length === 0 || JSON.stringify([...before, ...added]).length <= grantsCharsMax) {
    return added
  }
  const message = 'so much is allowed in this session already that this can be allowed once only'
  throw new HoldfastError('too_many', message)
}

export function decideUngrant(
  { grants }: Session,
  { grant, by }: LifeCommand & { readonly type: 'ungrant' },
): readonly Draft[] {
  const taken = grants.filter(isAmong([grant]))
  return taken.length === 0 ? [] : [{ type: 'session.ungranted', grants: taken, by }]
}

export function foldGrants(
  session: Folding,
  { type, grants }: EventOf<'session.granted' | 'session.ungranted'>,
): void {
  const isTaken = isAmong(grants)
  session.grants =
    type === 'session.granted'
      ? [...session.grants, ...grants]
      : session.grants.filter((grant) => !isTaken(grant))
}

function isAmong(grants: readonly Grant[]): (grant: Grant) => boolean {
  const texts = new Set(grants.map((grant) => JSON.stringify(grant)))
  return (grant) => texts.has(JSON.stringify(grant))
}
