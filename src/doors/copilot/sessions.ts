/**
 * Sessions as clients of the Copilot SDK call them. A `sessionId` is the session's key, or its id
 * for one without a key of the caller's own (docs/decisions/0037). The SDK chooses the name before
 * it asks for the session, and only a key is a caller's to choose. Keys are per principal, so that
 * the name of another's session means nothing.
 */
import {
  closedError,
  HoldfastError,
  scopesOn,
  type Holdfast,
  type SessionHandle,
  type SessionRow,
} from '../../core/index.ts'

/** A session, and the name that its client knows it by. */
export type NamedSession = { readonly name: string; readonly session: SessionHandle }

/** The session of a name. One that the caller may not see is refused as one that never was. */
export async function findSession(holdfast: Holdfast, name: string): Promise<SessionHandle> {
  const byKey = isKey(name) ? await holdfast.find(name) : null
  if (byKey !== null) return byKey
  const byId = isId(name) ? await rowOf(holdfast, name) : null
  if (byId !== null) return holdfast.session(byId.id)
  const closed = isKey(name) ? await closedRow(holdfast, name) : null
  if (closed !== null) throw await whyClosed(holdfast, closed)
  throw unknown(name)
}

/** Closes it and erases its log; one that is closed already is erased. */
export async function eraseSession(holdfast: Holdfast, name: string): Promise<void> {
  const open = isKey(name) ? await holdfast.find(name) : null
  const closed = open === null && isKey(name) ? await closedRow(holdfast, name) : null
  const byId = open === null && closed === null && isId(name) ? await rowOf(holdfast, name) : null
  const id = open?.id ?? closed?.id ?? byId?.id
  if (id === undefined) throw unknown(name)
  await holdfast.session(id).erase()
}

async function closedRow(holdfast: Holdfast, key: string): Promise<SessionRow | null> {
  const { principal } = holdfast.refOf(key)
  const { sessions } = await holdfast.list({ key, principal, state: 'closed', limit: 1 })
  const [row] = sessions
  // The log of an erased one is gone, and with it what the name stood for.
  return row === undefined || row.state !== 'closed' ? null : row
}

async function whyClosed(holdfast: Holdfast, { id }: SessionRow): Promise<HoldfastError> {
  return closedError(await holdfast.session(id).state())
}

async function rowOf(holdfast: Holdfast, id: string): Promise<SessionRow | null> {
  try {
    const { row } = await holdfast.session(id).read(0, 0)
    return row?.internal === true ? null : row
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'session_unknown') return null
    throw error
  }
}

const KEY_BYTES_MAX = 512
const ID = /^[\w.:~-]{1,128}$/

/** Names that cannot be one are unknown, like any that is none. */
function isKey(name: string): boolean {
  return name !== '' && name.isWellFormed() && Buffer.byteLength(name) <= KEY_BYTES_MAX
}

function isId(name: string): boolean {
  return ID.test(name) && !/^\.\.?$/.test(name)
}

export function unknown(name: string): HoldfastError {
  return new HoldfastError('session_unknown', `there is no session ${name}`)
}

/** The name by which the caller finds this session. */
export function nameOf(holdfast: Holdfast, { key, id, principal }: SessionRow): string {
  if (key === null) return id
  return holdfast.refOf(key).principal === principal ? key : id
}

/** As the SDK describes a session in its lists. */
export function metadataOf(holdfast: Holdfast, row: SessionRow): object {
  const { labels, createdAt, updatedAt } = row
  const { title } = labels
  return {
    sessionId: nameOf(holdfast, row),
    startTime: new Date(createdAt).toISOString(),
    modifiedTime: new Date(updatedAt).toISOString(),
    ...(title === undefined ? {} : { summary: title }),
    isRemote: false,
  }
}

/** The open sessions that the caller may see, the newest first. */
export async function listSessions(
  holdfast: Holdfast,
  most: number,
): Promise<readonly SessionRow[]> {
  const rows: SessionRow[] = []
  let cursor: string | null = null
  do {
    const limit = Math.min(holdfast.authority.limits.listMax, most - rows.length)
    const after: { cursor?: string } = cursor === null ? {} : { cursor }
    const page = await holdfast.list({ state: 'open', limit, ...after })
    rows.push(...page.sessions)
    cursor = page.nextCursor
  } while (cursor !== null && rows.length < most)
  return rows.filter((row) => scopesOn(holdfast, row).length > 0)
}
