/** What a caller may do, and what each permission includes. */
import { LINK_SCOPES } from '../core/index.ts'

/**
 * Looking on; creating sessions and taking turns; answering asks; everything, closing sessions and
 * making links too.
 */
export const SCOPES = [...LINK_SCOPES, 'admin'] as const
export type Scope = (typeof SCOPES)[number]

/** These scopes with all they include: who may talk may watch, who is admin may do everything. */
export function withIncluded(scopes: readonly Scope[]): readonly Scope[] {
  if (scopes.includes('admin')) return SCOPES
  const watches = scopes.includes('talk') && !scopes.includes('watch')
  return watches ? ['watch', ...scopes] : scopes
}
