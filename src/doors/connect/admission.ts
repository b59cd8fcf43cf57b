/**
 * Which of two connections gets an attachment that both claim: the older one is asked for a sign of
 * life. A newer one whose hello may be late has to give one, too. Whether the token is good and the
 * policy allows it is decided by the core.
 */
import type { Attachment, AttachmentHandle, SessionHandle } from '../../core/index.ts'
import type { Hello, Resume } from '../../wire/frames.ts'
import type { Connection } from './connection.ts'
import type { Hub, HubMember } from './hub.ts'

export type ResumeClaim = {
  readonly session: SessionHandle
  readonly resume: Resume
  readonly take: Hello['take']
  /** A newer token than the one shown was given out. */
  readonly isReplaced: boolean
  readonly answers?: Attachment['answers']
}

/** The attachment, for this connection; null if an older one has it and answers. */
export async function resumeFor(
  hub: Hub,
  connection: Connection,
  { session, resume, take, isReplaced, answers }: ResumeClaim,
): Promise<AttachmentHandle | null> {
  const { attachment: id, token } = resume
  const older = hub.connectionOf(id)
  const contested = older !== null && older !== connection && take !== true
  if (contested && (await older.isAlive())) return null
  connection.assertHere()
  // Either its last welcome was lost, or this hello is late and its client has the newer token.
  if (isReplaced) await connection.assertAlive()
  // A silent connection is a lost one, whether or not that has been noticed: the policy decides.
  if (contested) await giveUp(older)
  const { gone: signal } = connection
  return session.resume(id, token, { signal, ...(answers === undefined ? {} : { answers }) })
}

/** The session must know of the loss before another client is let in. */
export async function giveUp(connection: HubMember): Promise<void> {
  connection.supersede()
  await connection.attachment?.lose()
}
