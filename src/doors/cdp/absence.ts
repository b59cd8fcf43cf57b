/**
 * What waits for a command of its client: a page, a request, a dialog, a script at a breakpoint.
 * While the client is away the door sends that command, so that pages and other clients go on.
 */
import type { CdpCommand } from './command.ts'
import { RUN, type Params } from './protocol.ts'

type Release = { readonly method: string; readonly params: Params }

/** By the event that it stands still with: what lets it go on. */
const RELEASES: Readonly<Record<string, (params: Params) => Release>> = {
  'Fetch.requestPaused': ({ requestId }) => ({
    method: 'Fetch.continueRequest',
    params: { requestId },
  }),
  'Fetch.authRequired': ({ requestId }) => ({
    method: 'Fetch.continueWithAuth',
    params: { requestId, authChallengeResponse: { response: 'Default' } },
  }),
  'Page.javascriptDialogOpening': () => ({
    method: 'Page.handleJavaScriptDialog',
    params: { accept: false },
  }),
  'Page.screencastFrame': ({ sessionId }) => ({
    method: 'Page.screencastFrameAck',
    params: { sessionId },
  }),
  'Debugger.paused': () => ({ method: 'Debugger.resume', params: {} }),
}

/** Commands by which a client lets something go on itself. */
const SETTLING: readonly string[] = [
  'Fetch.continue',
  'Fetch.fulfill',
  'Fetch.fail',
  'Page.handleJavaScriptDialog',
  'Page.screencastFrameAck',
  'Debugger.resume',
  'Debugger.step',
  'Runtime.runIfWaiting',
]

const BLOCKED_MAX = 4_096

/** The session in which something stands still. */
type BlockedSession = {
  readonly isAway: boolean
  tell(method: string, params: Params): void
}

/** Of one session. */
export class Blocked {
  readonly #session: BlockedSession
  readonly #releases = new Map<string, Release>()

  constructor(session: BlockedSession) {
    this.#session = session
  }

  static concerns(method: string): boolean {
    return Object.hasOwn(RELEASES, method)
  }

  /** An event that says that something stands still. */
  note(method: string, message: Buffer): void {
    const { params } = JSON.parse(message.toString()) as { readonly params: Params }
    const release = RELEASES[method]?.(params)
    if (release !== undefined) this.#add(release)
  }

  noteWaiting(): void {
    this.#add({ method: RUN, params: {} })
  }

  #add(release: Release): void {
    if (this.#session.isAway) return this.#let(release)
    this.#releases.set(keyOf(release.method, release.params), release)
    const [oldest] = this.#releases.keys()
    if (this.#releases.size > BLOCKED_MAX && oldest !== undefined) this.#releases.delete(oldest)
  }

  /** The client lets it go on itself. */
  settle(command: CdpCommand): void {
    if (this.#releases.size === 0 || command.isVast) return
    if (!SETTLING.some((start) => command.method.startsWith(start))) return
    this.#releases.delete(keyOf(command.method, command.params ?? {}))
  }

  /** The client is away: let everything go on that waits for it. */
  release(): void {
    for (const release of this.#releases.values()) this.#let(release)
    this.#releases.clear()
  }

  #let({ method, params }: Release): void {
    this.#session.tell(method, params)
  }
}

/** A request has a name, and there is one of everything else. */
function keyOf(method: string, { requestId }: Params): string {
  if (method === 'Page.screencastFrameAck') return method
  const [domain = ''] = method.split('.')
  return typeof requestId === 'string' ? `${domain} ${requestId}` : domain
}
