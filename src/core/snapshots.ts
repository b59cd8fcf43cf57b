/**
 * A snapshot: the folded session as text, to load from without reading the whole log. It is only a
 * copy of what the log says. So it is used only if it is of this format, whole, and has the very
 * fields that this version folds; else the session is folded from its log again.
 */
import type { Digest } from './clock.ts'
import { createSession } from './session.ts'
import type { Session } from './state.ts'

/**
 * 1 is that of 0.1.0, which had no envelope; 2 knew no principals, 3 no settings, 4 no grants. To
 * be raised with every change of what is folded.
 */
export const SNAPSHOT_FORMAT = 5

const ENVELOPE = /^\{"format":(\d+),"checksum":("(?:[^"\\]|\\.)*"),"session":/

const FIELDS = Object.keys(
  createSession({
    type: 'session.created',
    id: '',
    key: null,
    agent: '',
    internal: false,
    reconnect: 'reopen',
    exclusive: false,
    graceMs: 0,
    ttlMs: null,
    labels: {},
    seq: 1,
    at: 0,
  }),
).toSorted()

export function snapshotOf(session: Session, digest: Digest): string {
  const json = JSON.stringify(session)
  const checksum = JSON.stringify(digest(json))
  return `{"format":${SNAPSHOT_FORMAT},"checksum":${checksum},"session":${json}}`
}

/** `outdated`: of another format. `damaged`: not as any version has written it. */
export type SnapshotProblem = { readonly kind: 'outdated' | 'damaged'; readonly why: string }

export function readSnapshot(
  text: string,
  digest: Digest,
): { readonly session: Session } | SnapshotProblem {
  const [head, format, checksum] = ENVELOPE.exec(text) ?? []
  if (head === undefined || checksum === undefined) return withoutEnvelope(text)
  if (Number(format) !== SNAPSHOT_FORMAT)
    return { kind: 'outdated', why: `its format is ${format}` }
  const json = text.slice(head.length, -1)
  if (!text.endsWith('}') || JSON.stringify(digest(json)) !== checksum) {
    return { kind: 'damaged', why: 'its checksum is wrong' }
  }
  const session = JSON.parse(json) as Session
  const fields = Object.keys(session).toSorted()
  if (fields.length === FIELDS.length && fields.every((field, index) => field === FIELDS[index])) {
    return { session }
  }
  return { kind: 'outdated', why: 'it has other fields than this version folds' }
}

function withoutEnvelope(text: string): SnapshotProblem {
  try {
    JSON.parse(text)
    return { kind: 'outdated', why: 'it has no format, as in 0.1.0' }
  } catch {
    // The parser's message names a position in the text, which is of no use here.
    return { kind: 'damaged', why: 'it is not JSON' }
  }
}
