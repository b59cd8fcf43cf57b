/** What every welcome says, whatever the connection is for. */
import type { Principal, SessionHandle } from '../../core/index.ts'
import { sessionView } from '../../wire/views.ts'
import type { WelcomeBase } from '../../wire/frames.ts'
import type { AdmittedClient } from './connection.ts'
import type { Hub } from './hub.ts'

/** A client's attachment, as what it holds it, and by which token. */
export type ClientIdentity = Pick<AdmittedClient, 'attachment' | 'role' | 'scopes' | 'token'> & {
  readonly by: Principal
  readonly answers: readonly string[]
}

export function welcomeOf(
  { limits }: Hub,
  { isNew }: SessionHandle,
  { session, queue }: Awaited<ReturnType<SessionHandle['overview']>>,
  { attachment, role, scopes, answers }: Omit<ClientIdentity, 'token' | 'by'>,
): Omit<WelcomeBase, 'v'> {
  const { pingMs, deadMs } = limits
  return {
    type: 'welcome',
    session: sessionView(session, queue),
    attachment: attachment.id,
    role,
    scopes,
    epoch: attachment.epoch,
    resume: attachment.token,
    isNew,
    asks: session.asks.filter(({ kind }) => answers.includes(kind)),
    pingMs,
    deadMs,
  }
}
