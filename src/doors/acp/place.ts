/**
 * A client's place in a session: as a driver, who controls it, or as a watcher, who looks on. A
 * client that does not say gets the one that it may have.
 */
import {
  asHoldfastError,
  HoldfastError,
  mayDo,
  scopesOn,
  type AttachmentHandle,
  type Role,
  type Session,
  type SessionHandle,
} from '../../core/index.ts'
import { giveUp } from '../connect/admission.ts'
import type { Hub } from '../connect/hub.ts'
import { ASK_KINDS } from './questions.ts'
import type { Opening } from './schemas.ts'

export type Place = {
  readonly attachment: AttachmentHandle
  readonly role: Role
  /** It is asked: it may answer, and did not come to look on only. */
  readonly isAsked: boolean
}

export type PlaceOptions = Pick<Opening, 'role' | 'take' | 'attachment' | 'token'> & {
  readonly hub: Hub
  /** It can be taken up again, by a client that said that it comes back. */
  readonly resumable: boolean
  readonly signal: { readonly aborted: boolean }
}

export async function takePlace(session: SessionHandle, options: PlaceOptions): Promise<Place> {
  const scopes = scopesOn(session, await session.state())
  const { role: wanted, take = false, resumable, signal } = options
  const role = wanted ?? (mayDo(scopes, 'turn.run') ? 'driver' : 'watcher')
  const isAsked = wanted !== 'watcher' && mayDo(scopes, 'ask.answer')
  // Looking on never counts as somebody being there to answer.
  const answers = isAsked && role === 'driver' ? ASK_KINDS : []
  const resumed = role === 'driver' ? await comeBack(session, options, answers) : null
  if (resumed !== null) return { attachment: resumed, role, isAsked }
  try {
    const attachment = await session.attach({ role, answers, take, resumable, signal })
    return { attachment, role, isAsked }
  } catch (error) {
    if (asHoldfastError(error).code !== 'in_use' || wanted !== undefined) throw error
    // Another client controls it: this one is an observer until it takes control.
    return takePlace(session, { ...options, role: 'watcher' })
  }
}

/** The attachment that it had, if it is still there. The connection before it is over by then. */
async function comeBack(
  session: SessionHandle,
  { hub, attachment, token, signal }: PlaceOptions,
  answers: readonly string[],
): Promise<AttachmentHandle | null> {
  if (attachment === undefined || token === undefined) return null
  try {
    await session.attachmentOf(attachment, token)
    const older = hub.connectionOf(attachment)
    if (older !== null) await giveUp(older)
    return await session.resume(attachment, token, { signal, answers })
  } catch (error) {
    const { code } = asHoldfastError(error)
    if (GONE.has(code)) return null
    throw error
  }
}

/** Its grace time is over, or it ended: the client attaches anew. */
const GONE: ReadonlySet<string> = new Set([
  ...['attachment_unknown', 'attachment_ended', 'token_reused', 'work_started', 'superseded'],
])

export function assertDrives({ role }: Place): void {
  if (role === 'driver') return
  const message = 'an observer may not do this: take control with _holdfast/control'
  throw new HoldfastError('forbidden', message)
}

/** What a response says of the place, and of the session. */
export function placeView({ attachment, role }: Place, { key, agent }: Session): object {
  const { id, token } = attachment
  return {
    key,
    agent,
    role,
    ...(token === null || role === 'watcher' ? {} : { attachment: id, token }),
  }
}
