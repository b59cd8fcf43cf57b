/** Makes sessions of what archives have. */
import type { Authority } from './authority.ts'
import { HoldfastError } from './errors.ts'
import type { RestoredSession } from './store.ts'

/** Returns the bytes that it takes. Throws `session_exists` if there is one of its id. */
export async function restoreSession(
  { store, changes }: Pick<Authority, 'store' | 'changes'>,
  session: RestoredSession,
): Promise<number> {
  const { id } = session
  if (store.restore === undefined) {
    throw new HoldfastError('capability_missing', 'this store takes nothing from archives')
  }
  if (!(await store.restore(session))) {
    throw new HoldfastError('session_exists', `there is a session ${id}: nothing was changed`)
  }
  changes.committed()
  return (await store.read(id, 0, 0)).row?.bytes ?? 0
}
