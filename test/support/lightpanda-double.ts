/**
 * Chromium that behaves as Lightpanda does, read from its source: sequential ids, every connection
 * a browser of its own with one context and one page, and sessions as they were before its #2077
 * and as they are since.
 *
 * - `before`: a second attach to the page returns the id of the first.
 * - `since`: every attach has an id of its own, but replies of the Runtime domain come stamped with
 *   the first one's, and so does every event.
 */
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { WebSocket, WebSocketServer } from 'ws'

export type Quirk = 'before' | 'since'

const PRIMARY = 'SID-1'
const BROWSER = 'BSID-1'
const TARGET = 'FID-0000000001'
const CONTEXT = 'BID-1'

export class LightpandaDouble {
  readonly #server: WebSocketServer
  readonly #quirk: Quirk
  readonly #chromium: string

  constructor(chromium: string, quirk: Quirk) {
    this.#chromium = chromium
    this.#quirk = quirk
    this.#server = new WebSocketServer({
      port: 0,
      host: '127.0.0.1',
      maxPayload: 1_048_576,
      // Any origin is refused.
      verifyClient: ({ origin }: { origin?: string }) => origin === undefined,
    })
    this.#server.on('connection', (socket) => this.#serverOnConnection(socket))
  }

  static async start(chromium: string, quirk: Quirk): Promise<LightpandaDouble> {
    const double = new LightpandaDouble(chromium, quirk)
    await once(double.#server, 'listening')
    return double
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`
  }

  #serverOnConnection(socket: WebSocket): void {
    const upstream = new WebSocket(this.#chromium)
    const page = new Page(this.#quirk, {
      up: (message) => upstream.send(JSON.stringify(message)),
      down: (message) => socket.send(JSON.stringify(message)),
    })
    const early: string[] = []
    upstream.on('open', () => {
      for (const text of early.splice(0)) page.fromClient(text)
    })
    socket.on('message', (data: Buffer) => {
      if (upstream.readyState === WebSocket.OPEN) page.fromClient(data.toString())
      else early.push(data.toString())
    })
    upstream.on('message', (data: Buffer) => page.fromChromium(data.toString()))
    upstream.on('close', () => socket.close())
    socket.on('close', () => upstream.close())
    for (const end of [socket, upstream]) end.on('error', () => undefined)
  }

  async close(): Promise<void> {
    for (const client of this.#server.clients) client.terminate()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

type Wire = { readonly up: (message: any) => void; readonly down: (message: any) => void }

/** One connection: one browser with one page. */
class Page {
  readonly #quirk: Quirk
  readonly #wire: Wire
  /** Chromium's own ids of the session, the target and the context. */
  #session: string | null = null
  #target: string | null = null
  #context: string | null = null
  #sessions = 1
  #isBrowserAttached = false
  /** Commands by id: their session and method. */
  readonly #asked = new Map<number, { session: string | undefined; method: string }>()

  constructor(quirk: Quirk, wire: Wire) {
    this.#quirk = quirk
    this.#wire = wire
  }

  fromClient(text: string): void {
    const message = JSON.parse(this.#real(text))
    const { id, method, sessionId } = message
    const fail = (code: number, reason: string): void =>
      this.#wire.down({ id, error: { code, message: reason }, ...(sessionId ? { sessionId } : {}) })
    if (sessionId !== undefined && !this.#isSession(sessionId)) {
      return fail(-32_001, 'Unknown sessionId')
    }
    if (method === 'Target.createBrowserContext' && this.#context !== null) {
      return fail(-32_000, 'Cannot have more than one browser context at a time')
    }
    if (method === 'Target.createTarget' && this.#target !== null) {
      return fail(-31_998, 'TargetAlreadyLoaded')
    }
    if (method === 'Target.attachToBrowserTarget') return this.#attachToBrowser(id)
    if (method === 'Target.setDiscoverTargets')
      return this.#wire.down({ id, result: {}, sessionId })
    if (method === 'Target.attachToTarget' && this.#session !== null) {
      return this.#attachAgain(id, sessionId)
    }
    this.#asked.set(id, { session: sessionId, method })
    // One session of Chromium carries all of them: domain state is per page, not per session.
    const isPage = sessionId !== undefined && sessionId !== BROWSER
    this.#wire.up({ ...message, sessionId: isPage ? this.#session : undefined })
  }

  #attachToBrowser(id: number): void {
    this.#isBrowserAttached = true
    const targetInfo = { targetId: 'TID-B', type: 'browser', title: '', url: '', attached: true }
    const params = { sessionId: BROWSER, targetInfo, waitingForDebugger: false }
    this.#wire.down({ method: 'Target.attachedToTarget', params })
    this.#wire.down({ id, result: { sessionId: BROWSER } })
  }

  #attachAgain(id: number, sessionId: string | undefined): void {
    if (this.#quirk === 'since') this.#sessions += 1
    const fresh = this.#quirk === 'since' ? `SID-${this.#sessions}` : PRIMARY
    if (this.#quirk === 'since') {
      const targetInfo = { targetId: TARGET, type: 'page', title: '', url: '', attached: true }
      const params = { sessionId: fresh, targetInfo, waitingForDebugger: false }
      this.#wire.down({ method: 'Target.attachedToTarget', params, sessionId })
    }
    this.#wire.down({ id, result: { sessionId: fresh }, sessionId })
  }

  #isSession(session: string): boolean {
    if (session === BROWSER) return this.#isBrowserAttached
    const number = Number(/^SID-(\d+)$/.exec(session)?.[1])
    return this.#session !== null && number >= 1 && number <= this.#sessions
  }

  fromChromium(text: string): void {
    const message = JSON.parse(text)
    if (message.id === -1 || this.#isForeign(message)) return
    this.#learn(message)
    const { id, sessionId } = message
    const asked = this.#asked.get(id)
    this.#asked.delete(id)
    const { session, method = '' } = asked ?? {}
    if (id === undefined) {
      return this.#tell(message, sessionId === undefined ? undefined : PRIMARY)
    }
    const isRuntime = method.startsWith('Runtime.') && this.#quirk === 'since'
    this.#tell(message, session !== undefined && isRuntime ? PRIMARY : session)
  }

  #tell(message: any, sessionId: string | undefined): void {
    const { sessionId: _, ...rest } = message
    const text = JSON.stringify(sessionId === undefined ? rest : { ...rest, sessionId })
    this.#wire.down(JSON.parse(this.#shown(text)))
  }

  /** Pages of other connections, and the parts of Chromium that Lightpanda has not. */
  #isForeign({ method, params, sessionId }: any): boolean {
    if (sessionId !== undefined && sessionId !== this.#session) return true
    if (method !== 'Target.attachedToTarget') return false
    const { type, browserContextId } = params.targetInfo
    const isOwn = sessionId !== undefined || browserContextId === this.#context
    if (isOwn && type === 'page' && this.#session === null) return false
    this.#wire.up({
      id: -1,
      method: 'Target.detachFromTarget',
      params: { sessionId: params.sessionId },
    })
    return true
  }

  #learn({ method, params, result }: any): void {
    if (method === 'Target.attachedToTarget') {
      this.#session = params.sessionId
      this.#target = params.targetInfo.targetId
    }
    if (result?.browserContextId !== undefined) this.#context = result.browserContextId
    if (result?.targetId !== undefined) this.#target = result.targetId
  }

  #shown(text: string): string {
    return this.#swap(text, ([real, shown]) => [real, shown])
  }

  #real(text: string): string {
    return this.#swap(text, ([real, shown]) => [shown, real])
  }

  #swap(text: string, direct: (pair: [string, string]) => [string, string]): string {
    const pairs: [string | null, string][] = [
      [this.#session, PRIMARY],
      [this.#target, TARGET],
      [this.#context, CONTEXT],
    ]
    let swapped = text
    for (const [real, shown] of pairs) {
      if (real === null) continue
      const [from, to] = direct([real, shown])
      // The session that a client names says which of them it is.
      if (shown === PRIMARY && from === PRIMARY) continue
      swapped = swapped.replaceAll(`"${from}"`, `"${to}"`)
    }
    return swapped
  }
}
