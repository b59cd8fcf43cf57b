/**
 * `Security.setIgnoreCertificateErrors`, sent to the browser itself: Chromium would ignore them for
 * all of its clients. Here it holds for the pages that the client is attached to, each in its own
 * session: those that it has, and those that it gets.
 */
import type { Request } from './request.ts'
import type { Session } from './session.ts'

const IGNORE = 'Security.setIgnoreCertificateErrors'

export function ignoreCertificateErrors(request: Request): void {
  const { session, params } = request
  const { ignore } = params
  // Of a page, or not as Chromium wants it: it says so itself.
  if (!session.isBrowser || typeof ignore !== 'boolean') return request.pass()
  session.client.ignoresCertificateErrors = ignore
  for (const each of session.client.sessions()) tellIgnored(each, ignore)
  request.answer({ result: {} })
}

/** A session of the client is new, and was told nothing else yet. */
export function applyIgnored(session: Session): void {
  if (session.client.ignoresCertificateErrors) tellIgnored(session, true)
}

function tellIgnored(session: Session, ignore: boolean): void {
  const { host } = session.client
  const isPage = session.target !== null && host.targets.get(session.target)?.type === 'page'
  if (isPage) session.tell(IGNORE, { ignore })
}
