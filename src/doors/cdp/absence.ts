/**
 * What waits for a command of its client: a page, a request, a dialog, a script at a breakpoint.
 * While the client is away the door sends that command, so that pages and other clients go on.
 */
import type { CdpCommand } from './command.ts'
import { RUN, type Params } from './protocol.ts'

type Release = { readonly method: string; readonly params: Params }

/** By event: the command that lets go on what the event reports as waiting. */
const RELEASES: Readonly<Record<string, readonly [string, (params: Params) => Params]>> = {
  'Fetch.requestPaused': ['Fetch.continueRequest', ({ requestId }) => ({ requestId })],
  'Fetch.authRequired': [
    'Fetch.continueWithAuth',
    ({ requestId }) => ({ requestId, authChallengeResponse: { response: 'Default' } }),
  ],
  'Page.javascriptDialogOpening': ['Page.handleJavaScriptDialog', () => ({ accept: false })],
  'Page.screencastFrame': ['Page.screencastFrameAck', ({ sessionId }) => ({ sessionId })],
  'Debugger.paused': ['Debugger.resume', () => ({})],
}

/** The beginnings of commands by which a client lets it go on itself. */
const RELEASING: readonly string[] = [
  ...['Fetch.continue', 'Fetch.fulfill', 'Fetch.fail', 'Debugger.resume', 'Debugger.step'],
  ...['Page.handleJavaScriptDialog', 'Page.screencastFrameAck', RUN],
]

const BLOCKED_MAX = 4_096

type BlockedSession = {
  readonly isAway: boolean
  tell(method: string, params: Params): void
}

/** What waits in one session. */
export class Blocked {
  readonly #session: BlockedSession
  readonly #releases = new Map<string, Release>()

  constructor(session: BlockedSession) {
    this.#session = session
  }

  static concerns(method: string): boolean {
    return Object.hasOwn(RELEASES, method)
  }

  /** An event of the table above. */
  note(event: string, message: Buffer): void {
    const { params } = JSON.parse(message.toString()) as { readonly params: Params }
    const [method, paramsOf] = RELEASES[event] ?? []
    if (method !== undefined && paramsOf !== undefined) this.#add(method, paramsOf(params))
  }

  noteWaiting(): void {
    this.#add(RUN, {})
  }

  #add(method: string, params: Params): void {
    if (this.#session.isAway) return this.#session.tell(method, params)
    this.#releases.set(keyOf(method, params), { method, params })
    const [oldest] = this.#releases.keys()
    if (this.#releases.size > BLOCKED_MAX && oldest !== undefined) this.#releases.delete(oldest)
  }

  /** A command of the client. */
  settle(command: CdpCommand): void {
    if (this.#releases.size === 0 || command.isVast) return
    if (!RELEASING.some((start) => command.method.startsWith(start))) return
    this.#releases.delete(keyOf(command.method, command.params ?? {}))
  }

  /** The client is away: everything goes on. */
  release(): void {
    for (const { method, params } of this.#releases.values()) this.#session.tell(method, params)
    this.#releases.clear()
  }
}

/** There are many paused requests, each with an id, and one of everything else. */
function keyOf(method: string, { requestId }: Params): string {
  if (method === 'Page.screencastFrameAck') return method
  const [domain = ''] = method.split('.')
  return typeof requestId === 'string' ? `${domain} ${requestId}` : domain
}
