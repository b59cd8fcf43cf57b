/** Why a session has ended for this page, in one sentence, and what its reader can do. */
import type { ClientState } from '../../client/index.ts'

export type Ended = Extract<ClientState, { name: 'ended' }>
export type Remedy = 'start_new' | 'take_over' | 'reload' | 'token'

const SENTENCES: Readonly<Record<string, string>> = {
  attachment_unknown: 'The session no longer knows this page.',
  connection_lost: 'The connection was lost and did not come back.',
  in_use: 'This session is open in another tab or program, which drives it.',
  session_erased: 'This session is over, and its log was erased.',
  session_unknown: 'There is no such session.',
  superseded: 'Continued in another tab.',
  token_reused: 'This page has an old copy of its resume token.',
  unauthorized: 'The server does not admit this page: its token or link is not valid.',
  unreachable: 'The server cannot be reached.',
  version_unsupported: 'The server speaks another version than this page.',
  work_started: 'No page can come back to this session after its first turn has started.',
}

/** Why this page's attachment ended while the session continues. */
const ATTACHMENT_ENDS: Readonly<Record<string, string>> = {
  access_revoked: 'The token that admitted this page is no longer valid.',
  crowded_out: 'The session has too many clients, and another one took the place of this page.',
  grace_over: 'This page was away for longer than the grace time.',
  link_expired: 'The link that admitted this page has expired.',
  link_revoked: 'The link that admitted this page was revoked.',
}

const REASONS: Readonly<Record<string, string>> = {
  closed: 'it was closed',
  closed_by_client: 'it was closed',
  connection_lost: 'its connection was lost',
  expired: 'it was idle for too long',
  last_holder_left: 'its last holder has left',
}

export function sentenceOf({ code, reason }: Ended): string {
  const why = reason.split(': ').at(-1) ?? reason
  if (code === 'session_closed') return closedSentence(why)
  if (code === 'attachment_ended') return ATTACHMENT_ENDS[why] ?? 'This page is no longer attached.'
  return SENTENCES[code] ?? `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`
}

export function closedSentence(why: string): string {
  return `This session is over: ${REASONS[why] ?? why.replaceAll('_', ' ')}.`
}

export function remedyOf({ code, reason, hint }: Ended): Remedy {
  const isRevoked = code === 'attachment_ended' && /(revoked|expired)$/.test(reason)
  if (code === 'unauthorized' || isRevoked) return 'token'
  return hint === 'start_new' || hint === 'take_over' ? hint : 'reload'
}

const REMEDIES: Readonly<Record<Remedy, string>> = {
  start_new: 'Start a new session',
  take_over: 'Take over',
  reload: 'Reload',
  token: 'Enter a token',
}

export function labelOf(remedy: Remedy, code: string): string {
  return code === 'superseded' && remedy === 'take_over' ? 'Continue here' : REMEDIES[remedy]
}
