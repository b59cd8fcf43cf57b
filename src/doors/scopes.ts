/**
 * What a caller may do, and what each permission includes. Every door asks here: what a caller may
 * do depends on the operation, never on the door that it comes through.
 */
import { HoldfastError, LINK_SCOPES } from '../core/index.ts'

/**
 * Looking on; creating sessions and taking turns; answering asks; everything, closing sessions and
 * making links too.
 */
export const SCOPES = [...LINK_SCOPES, 'admin'] as const
export type Scope = (typeof SCOPES)[number]

/** These scopes with all they include: `talk` includes `watch`, `admin` includes everything. */
export function withIncluded(scopes: readonly Scope[]): readonly Scope[] {
  if (scopes.includes('admin')) return SCOPES
  const watches = scopes.includes('talk') && !scopes.includes('watch')
  return watches ? ['watch', ...scopes] : scopes
}

/** What each operation needs; null: nothing but to reach the server. */
export const OPERATIONS = {
  'session.read': 'watch',
  'session.create': 'talk',
  'session.close': 'admin',
  'change.read': 'admin',
  'turn.run': 'talk',
  'turn.cancel': 'talk',
  'ask.answer': 'answer',
  'link.manage': 'admin',
  'agent.read': 'watch',
  'browser.read': 'watch',
  'browser.use': 'talk',
  'server.look': null,
  'server.measure': 'admin',
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
