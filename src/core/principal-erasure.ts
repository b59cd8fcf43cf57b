/** Erases all sessions of a principal, the internal ones too. */
import type { Authority } from './authority.ts'
import { asHoldfastError } from './errors.ts'
import { LIMIT_MAX } from './limits.ts'
import type { SessionHandle } from './session-handle.ts'
import type { ListQuery, SessionRow } from './store.ts'

export type PrincipalErasure = {
  readonly principal: string
  /** What was erased. */
  readonly sessions: number
  readonly bytes: number
  /** What agents wrote that could not be removed. */
  readonly left: readonly { readonly session: string; readonly what: readonly string[] }[]
  /**
   * Archives that were removed, also those of sessions that retention has erased; null: there is no
   * archive.
   */
  readonly archives: number | null
  /** Those that could not be erased, and why: some belong to another node, for instance. */
  readonly remaining: readonly { readonly session: string; readonly code: string }[]
}

/** Its sessions as lists have them, and the internal ones, which only sweeps see. */
const QUERIES: readonly Partial<ListQuery>[] = [
  {},
  { closedBefore: LIMIT_MAX },
  { expiredAt: LIMIT_MAX },
]

/**
 * Those that were there when it began: a principal that goes on makes new ones. Repeating it goes
 * on where it was interrupted.
 */
export async function erasePrincipal(
  { store, limits, archive }: Pick<Authority, 'store' | 'limits' | 'archive'>,
  principal: string,
  sessionOf: (id: string) => Pick<SessionHandle, 'erase'>,
): Promise<PrincipalErasure> {
  const rows = new Map<string, SessionRow>()
  for (const query of QUERIES) {
    for (let cursor: string | null = ''; cursor !== null;) {
      const page = await store.list({
        ...query,
        ...{ principal, limit: limits.listMax },
        ...(cursor === '' ? {} : { cursor }),
      })
      // What sweeps ask for is of all principals.
      for (const row of page.sessions) if (row.principal === principal) rows.set(row.id, row)
      cursor = page.nextCursor
    }
  }
  const archived = (await archive?.removeOf(principal)) ?? 0
  const left: PrincipalErasure['left'][number][] = []
  const remaining: PrincipalErasure['remaining'][number][] = []
  let bytes = 0
  for (const row of rows.values()) {
    const session = row.id
    try {
      const { left: what } = await sessionOf(session).erase()
      bytes += row.bytes
      if (what.length > 0) left.push({ session, what })
    } catch (error) {
      const { code } = asHoldfastError(error)
      if (code !== 'session_erased') remaining.push({ session, code })
    }
  }
  // What retention has archived meanwhile.
  const archives = archive === null ? null : archived + (await archive.removeOf(principal))
  return { principal, sessions: rows.size - remaining.length, bytes, left, archives, remaining }
}
