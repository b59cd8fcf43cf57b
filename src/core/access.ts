/**
 * What a caller may see and do. Every door asks here, none decides: what a caller may do depends on
 * the operation, on what it was granted, and on the principal that the session belongs to.
 *
 * 1. A session belongs to the principal that created it, or to the group of a shared key.
 * 2. Others may do with it what it was shared for, and never more than their own scopes.
 * 3. `admin` reaches every session.
 * 4. A scope never widens a list: the agents and browsers that a caller was limited to are all that
 *    it may use, with `admin` too.
 * 5. A session that a caller may not see is refused exactly as one that does not exist.
 */
import { HoldfastError } from './errors.ts'
import type { Quotas } from './quotas.ts'
import { LINK_SCOPES, type Principal, type Session } from './state.ts'
import type { SessionRow, Store } from './store.ts'

/**
 * Looking on; creating sessions and taking turns; answering asks; answering them with edited
 * arguments, which the agent then runs; closing and sharing one's own sessions; everything, with
 * every session.
 */
export const SCOPES = [...LINK_SCOPES, 'edit', 'manage', 'admin'] as const
export type Scope = (typeof SCOPES)[number]

/** These scopes with all they include: `talk` and `manage` include `watch`, `admin` everything. */
export function withIncluded(scopes: readonly Scope[]): readonly Scope[] {
  if (scopes.includes('admin')) return SCOPES
  const watches = scopes.includes('talk') || scopes.includes('manage')
  return watches && !scopes.includes('watch') ? ['watch', ...scopes] : scopes
}

/** What each operation needs; null: nothing but to reach the server. */
export const OPERATIONS = {
  'session.read': 'watch',
  'session.create': 'talk',
  'session.configure': 'talk',
  'session.adopt': 'admin',
  'session.open': 'manage',
  'session.close': 'manage',
  'session.share': 'manage',
  'session.export': 'manage',
  'change.read': 'watch',
  'turn.run': 'talk',
  'turn.cancel': 'talk',
  'turn.move': 'talk',
  'ask.read': 'watch',
  'ask.answer': 'answer',
  'link.manage': 'manage',
  'audit.read': 'admin',
  'store.manage': 'admin',
  'agent.read': 'watch',
  'caller.read': 'watch',
  'browser.read': 'watch',
  'browser.use': 'talk',
  // By a link to the ask, which the route reads itself.
  'link.visit': null,
  'server.look': null,
  'server.measure': 'admin',
  'webhook.manage': 'admin',
} as const satisfies Readonly<Record<string, Scope | null>>

export type Operation = keyof typeof OPERATIONS

/** Whether these scopes, with all they include, allow it. */
export function mayDo(granted: readonly Scope[], operation: Operation): boolean {
  const needed = OPERATIONS[operation]
  return needed === null || granted.includes(needed)
}

export function assertMayDo(granted: readonly Scope[], operation: Operation): void {
  if (mayDo(granted, operation)) return
  const message = `what was shown is good, but not for this: it needs ${OPERATIONS[operation]}`
  throw new HoldfastError('forbidden', message)
}

/** What a caller was granted. */
export type Access = {
  /** The principal that its sessions belong to, by its id (`principalId`). */
  readonly principal: string
  /** Its groups, by their ids (`groupId`). */
  readonly groups: readonly string[]
  /** With all they include. */
  readonly scopes: readonly Scope[]
  /** Keys that begin so belong to this group, of which it is a member. */
  readonly sharedKeys?: readonly SharedKeys[]
  /** The agents that it may use; without it, all. */
  readonly agents?: readonly string[]
  /** The browsers that it may use; without it, all. */
  readonly browsers?: readonly string[]
  /** How much its principal may use, if what it was granted says so. */
  readonly quotas?: Quotas
  /** The only session that it may see: of a caller that came in by a link. */
  readonly session?: string
}

export type SharedKeys = { readonly prefix: string; readonly group: string }

/** On whose behalf something is done. `access` null: the program itself; it may do everything. */
export type Caller = { readonly by: Principal; readonly access: Access | null }

/** The principal of callers without tokens, and of sessions and tokens that name none. */
export const DEFAULT_PRINCIPAL = 'default'

/** The id of a group, which no principal has: neither a token nor an issuer may name one so. */
export function groupId(name: string): string {
  return `@${name}`
}

/** The principal that the session of a key belongs to, or will. */
export function principalOfKey({ access }: Caller, key: string | null): string {
  if (access === null) return DEFAULT_PRINCIPAL
  const shared = access.sharedKeys?.find(({ prefix }) => key?.startsWith(prefix))
  return shared?.group ?? access.principal
}

/** Those as which a caller sees sessions; null: it sees all of them. */
export function principalsOf({ access }: Caller): readonly string[] | null {
  if (access === null || access.scopes.includes('admin')) return null
  return access.session === undefined ? [access.principal, ...access.groups] : []
}

/** What a session says of whose it is. */
type Owned = Pick<Session | SessionRow, 'id' | 'principal' | 'shares' | 'agent'>

/** What a caller may do with a session; nothing: for it there is no such session. */
export function scopesOn(caller: Caller, session: Owned): readonly Scope[] {
  const { access } = caller
  if (access === null) return SCOPES
  const { agents } = access
  const granted = grantedOn(caller, access, session)
  if (agents === undefined || agents.includes(session.agent)) return granted
  // It may not use the agent, but may look at what it has done.
  return granted.filter((scope) => !AGENT_SCOPES.has(scope))
}

/** What is done with an agent. */
const AGENT_SCOPES: ReadonlySet<Scope> = new Set(['talk', 'answer', 'edit'])

function grantedOn(caller: Caller, access: Access, session: Owned): readonly Scope[] {
  // Its own, as most are.
  if (session.principal === access.principal && access.session === undefined) return access.scopes
  const principals = principalsOf(caller)
  if (principals === null) return SCOPES
  const isOwn = principals.includes(session.principal) || access.session === session.id
  return isOwn ? access.scopes : sharedScopes(access, principals, session)
}

function sharedScopes(
  { scopes }: Access,
  principals: readonly string[],
  { shares }: Owned,
): readonly Scope[] {
  // Without scopes: with the bearer of a link, who is no principal, whatever one calls itself.
  const shared = shares.filter(
    ({ with: holder, scopes: given }) => given.length > 0 && principals.includes(holder),
  )
  // Each share lets its holder see the session.
  const seen: readonly Scope[] = shared.length === 0 ? [] : ['watch']
  const granted = withIncluded([...seen, ...shared.flatMap((share) => share.scopes)])
  return scopes.filter((scope) => granted.includes(scope))
}

/** A caller passes on nothing that it may not do itself. */
export function assertHas(caller: Caller, session: Owned, scopes: readonly Scope[]): void {
  const granted = scopesOn(caller, session)
  const missing = scopes.find((scope) => !granted.includes(scope))
  if (missing === undefined) return
  throw new HoldfastError('forbidden', `what was shown is not good for ${missing} itself`)
}

/** What a caller is to a session besides what it may do with it. */
export function standingOf({ access }: Caller, { principal, shares }: Owned) {
  if (access === null) return { isOwner: true, isMember: true }
  // The bearer of a link is no principal.
  const ids = access.session === undefined ? [access.principal, ...access.groups] : []
  const isOwner = ids.includes(principal)
  const isShared = shares.some((share) => {
    return ids.includes(share.with) && share.scopes.includes('answer')
  })
  return { isOwner, isMember: isOwner || isShared }
}

/** Throws as if there were no such session, if the caller may not see it any more. */
export function assertVisible(caller: Caller, session: Owned): readonly Scope[] {
  const scopes = scopesOn(caller, session)
  if (mayDo(scopes, 'session.read')) return scopes
  throw sessionUnknown(session.id)
}

/** The sessions of a node. */
type SessionSource = {
  readonly store: Pick<Store, 'read'>
  /** Of a session that is held. */
  readonly heldSession: (id: string) => Session | null
}

/** In place of a session that is not held. */
const NOT_HELD: Owned = { id: '', principal: '@', shares: [], agent: '' }

/**
 * Throws unless the caller may do this with the session. One that it may not see takes the same
 * read of the store as one that does not exist, held or not, and gets the same answer there.
 */
export async function assertMay(
  { store, heldSession }: SessionSource,
  caller: Caller,
  id: string,
  operation: Operation,
): Promise<void> {
  const { access } = caller
  if (access === null) return
  // The same for every session, so that it says nothing about this one.
  assertMayDo(access.scopes, operation)
  const principals = principalsOf(caller)
  if (principals === null && access.agents === undefined) return
  const held = heldSession(id)
  // Worked out for one that is not held as well, and not used, so that it takes no less.
  const scopesOnHeld = scopesOn(caller, held ?? NOT_HELD)
  let scopes = held === null ? [] : scopesOnHeld
  if (scopes.length === 0) {
    const isAnyVisible = principals === null || access.session === id
    const { row } = await store.read(id, 0, 0, isAnyVisible ? undefined : principals)
    scopes = row === null ? [] : scopesOn(caller, row)
  }
  if (scopes.length === 0) throw sessionUnknown(id)
  assertMayDo(scopes, operation)
}

export function sessionUnknown(id: string): HoldfastError {
  return new HoldfastError('session_unknown', `there is no session ${id}`)
}
