/**
 * What every service does to let a client in: it decides which of two connections gets an
 * attachment that both claim, and says welcome.
 *
 * Of two connections the older one is pinged. A newer one whose hello may be late
 * has to give one, too. Whether the token is good and the policy allows it is decided by the core.
 */
import type { Attachment, AttachmentHandle, Overview, SessionHandle } from '../../core/index.ts'
import type { Hello, Resume, WelcomeBase } from '../../wire/frames.ts'
import { sessionView } from '../../wire/views.ts'
import type { AdmittedClient, Connection } from './connection.ts'
import type { HubMember } from './hub.ts'

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
  connection: Connection,
  { session, resume, take, isReplaced, answers }: ResumeClaim,
): Promise<AttachmentHandle | null> {
  const { attachment: id, token } = resume
  const older = connection.hub.connectionOf(id)
  const contested = older !== null && older !== connection && take !== true
  if (contested && (await older.isAlive())) return null
  connection.assertHere()
  // Either its last welcome was lost, or this hello is late and its client has the newer token.
  if (isReplaced) await connection.assertAlive()
  // A silent connection is a lost one, whether or not that has been noticed: the policy decides.
  if (contested) await giveUp(older)
  return session.resume(id, token, { signal: connection, answers })
}

/** The session must know of the loss before another client is let in. */
export async function giveUp(connection: HubMember): Promise<void> {
  connection.supersede()
  await connection.attachment?.lose()
}

export function welcomeOf(
  { hub }: Connection,
  { session: handle, attachment, role, scopes }: Omit<AdmittedClient, 'token' | 'channel'>,
  overview: Overview,
  { answers, presence }: { answers: readonly string[]; presence: boolean },
): Omit<WelcomeBase, 'v'> {
  const { pingMs, deadMs } = hub.limits
  return {
    type: 'welcome',
    session: sessionView(overview, { presence }),
    attachment: attachment.id,
    role,
    scopes,
    epoch: attachment.epoch,
    resume: attachment.token,
    isNew: handle.isNew,
    asks: overview.session.asks.filter(({ kind }) => answers.includes(kind)),
    pingMs,
    deadMs,
  }
}
