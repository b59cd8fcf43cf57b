/**
 * Presents a backend with one session per page, as Lightpanda was before its #2077, as a browser
 * that follows the protocol, with any number of sessions, contexts and clients.
 *
 * 1. The backend sees one session for each page; every id that clients see is made here.
 * 2. A reply is matched by the id of its command, whatever session it names.
 * 3. Every browser context is a connection of its own, since such a backend has one for each.
 */
import {
  CDP_ERRORS,
  messageText,
  newSessionId,
  type BrowserConnection,
  type CdpEvent,
  type CdpMessage,
  type CdpReply,
  type ConnectionEvents,
  type MessageParts,
  type Params,
  type ReadReply,
} from './connection.ts'

type RepairedSession = {
  readonly id: string
  /** The session that attached it; null: the connection itself. */
  readonly parent: string | null
  /** Null: the browser. */
  readonly page: RepairedPage | null
  /** Enabled domains: it gets the events of these only. */
  readonly domains: Set<string>
  discovers: boolean
  attaches: boolean
}

type RepairedPage = {
  readonly id: string
  readonly context: string
  readonly link: BackendLink
  /** The backend's ids of the page and of its session. */
  readonly realId: string
  readonly realSession: string
  /** Announced execution contexts, by id: each session that enables `Runtime` gets them. */
  readonly worlds: Map<unknown, Params>
  url: string
}

type Answering = (session: RepairedSession, params: Params) => CdpReply | Promise<CdpReply>

const DONE: CdpReply = { result: {} }
/** Events after which the page is gone. */
const GONE = /^(Target\.(targetDestroyed|detachedFromTarget)|Inspector\.targetCrashed)$/

export class RepairedBrowser implements BrowserConnection {
  readonly #connect: OpenConnection
  readonly #events: ConnectionEvents
  /** For commands that are about no context. */
  readonly #control: BackendLink
  readonly #sessions = new Map<string, RepairedSession>()
  readonly #contexts = new Map<string, { readonly realId: string; readonly link: BackendLink }>()
  readonly #pages = new Map<string, RepairedPage>()
  #isClosed = false

  /** Commands that are answered here. */
  readonly #answers: Readonly<Record<string, Answering>> = {
    'Target.setDiscoverTargets': (session, { discover }) => {
      session.discovers = discover === true
      for (const page of session.discovers ? this.#pages.values() : []) {
        this.#emit(session.id, 'Target.targetCreated', { targetInfo: this.#infoOf(page) })
      }
      return DONE
    },
    'Target.setAutoAttach': (session, { autoAttach }) => {
      // A page of such a backend has no workers or frames to attach to.
      if (session.page !== null) return DONE
      const wasOn = session.attaches
      session.attaches = autoAttach === true
      for (const page of session.attaches && !wasOn ? this.#pages.values() : []) {
        this.#attach(session.id, page)
      }
      return DONE
    },
    'Target.attachToBrowserTarget': ({ id }) => this.#attach(id, null),
    'Target.attachToTarget': ({ id }, { targetId }) => {
      const page = this.#pages.get(String(targetId))
      return page === undefined ? { error: CDP_ERRORS.target } : this.#attach(id, page)
    },
    'Target.detachFromTarget': ({ id }, params) => {
      const sessionId = String(params['sessionId'])
      const targetId = this.#sessions.get(sessionId)?.page?.id
      this.#end(sessionId)
      const isPage = targetId !== undefined
      if (isPage) this.#emit(id, 'Target.detachedFromTarget', { sessionId, targetId })
      return DONE
    },
    'Target.createBrowserContext': () => this.#createContext(),
    'Target.disposeBrowserContext': (_, { browserContextId }) => {
      this.#dropContext(String(browserContextId))
      return DONE
    },
    'Target.createTarget': (_, params) => this.#createPage(params),
    'Target.closeTarget': async (_, { targetId }) => {
      const page = this.#pages.get(String(targetId))
      if (page === undefined) return { error: CDP_ERRORS.target }
      const result = await page.link.command('Target.closeTarget', { targetId: page.realId })
      this.#destroy(page)
      return { result }
    },
    'Target.activateTarget': () => DONE,
    'Target.getTargetInfo': (session, params) => {
      const page = 'targetId' in params ? this.#pages.get(String(params['targetId'])) : session.page
      if (page === undefined) return { error: CDP_ERRORS.target }
      return { result: { targetInfo: this.#infoOf(page, '') } }
    },
    'Target.getTargets': () => ({
      result: { targetInfos: [...this.#pages.values()].map((page) => this.#infoOf(page)) },
    }),
  }

  static async open(connect: OpenConnection, events: ConnectionEvents): Promise<RepairedBrowser> {
    return new RepairedBrowser(connect, events, await BackendLink.open(connect))
  }

  constructor(connect: OpenConnection, events: ConnectionEvents, control: BackendLink) {
    this.#connect = connect
    this.#events = events
    this.#control = control
    this.#open('', null, null)
    control.onClosed = (reason) => this.#closed(reason)
  }

  send(...parts: MessageParts): void {
    const text = parts.map((part) => (typeof part === 'string' ? part : Buffer.from(part))).join('')
    const { id, method = '', params = {}, sessionId = '' } = JSON.parse(text) as CdpMessage
    const session = this.#sessions.get(sessionId)
    if (session === undefined) return this.#tell('', { id, error: CDP_ERRORS.session })
    const answer: ReadReply = (reply) => this.#tell(sessionId, { id, ...reply })
    const answering = Object.hasOwn(this.#answers, method) ? this.#answers[method] : undefined
    if (answering === undefined) return this.#pass(session, { method, params }, answer)
    const reply = answering(session, params)
    if (!(reply instanceof Promise)) return answer(reply)
    reply.then(answer, ({ message }: Error) => answer({ error: { code: -32_000, message } }))
  }

  close(): Promise<void> {
    this.#closed('closed')
    return Promise.resolve()
  }

  #closed(reason: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#control.close()
    for (const { link } of this.#contexts.values()) link.close()
    this.#events.closed(reason)
  }

  #tell(session: string, message: object): void {
    if (!this.#isClosed) this.#events.message(messageText(message, session))
  }

  #emit(session: string, method: string, params: Params): void {
    this.#tell(session, { method, params })
  }

  /** Sends a command to the page, or to the context that it is about. */
  #pass({ id, page, domains }: RepairedSession, command: CdpEvent, answer: ReadReply): void {
    const { method, params } = command
    if (page === null) {
      const context = this.#contexts.get(String(params['browserContextId']))
      if (context === undefined) return this.#control.ask(method, params, answer)
      return context.link.ask(method, { ...params, browserContextId: context.realId }, answer)
    }
    const [domain = '', action = ''] = method.split('.')
    const isOn = this.#isOn(page, domain)
    if (action === 'enable' || method === 'DOM.getDocument') domains.add(domain)
    if (action === 'disable') domains.delete(domain)
    // The backend has the domain for all sessions of the page.
    const isShared = action === 'enable' ? isOn : this.#isOn(page, domain)
    if (!isShared || (action !== 'enable' && action !== 'disable')) {
      return this.#ask(page, command, answer)
    }
    const worlds = method === 'Runtime.enable' ? page.worlds.values() : []
    for (const world of worlds) this.#emit(id, 'Runtime.executionContextCreated', world)
    answer(DONE)
  }

  #ask({ id, realId, realSession, link }: RepairedPage, command: CdpEvent, read: ReadReply): void {
    const answer: ReadReply = (reply) => read(replaced(reply, realId, id))
    link.ask(command.method, replaced(command.params, id, realId), answer, realSession)
  }

  #isOn(page: RepairedPage, domain: string): boolean {
    return this.#sessionsOf(page).some(({ domains }) => domains.has(domain))
  }

  #sessionsOf(page: RepairedPage): readonly RepairedSession[] {
    return [...this.#sessions.values()].filter((session) => session.page === page)
  }

  /** Null is the browser, under an id of its own. */
  #infoOf(page: RepairedPage | null, browserId = ''): Params {
    const named = { title: '', url: page?.url ?? '' }
    if (page === null) return { targetId: browserId, type: 'browser', ...named, attached: true }
    const { id: targetId, context: browserContextId } = page
    const attached = this.#sessionsOf(page).length > 0
    return { targetId, type: 'page', ...named, attached, canAccessOpener: false, browserContextId }
  }

  #open(id: string, parent: string | null, page: RepairedPage | null): void {
    const domains = new Set<string>()
    this.#sessions.set(id, { id, parent, page, domains, discovers: false, attaches: false })
  }

  #attach(parent: string, page: RepairedPage | null): CdpReply {
    const sessionId = newSessionId()
    this.#open(sessionId, parent, page)
    const targetInfo = this.#infoOf(page, newSessionId())
    const params = { sessionId, targetInfo, waitingForDebugger: false }
    this.#emit(parent, 'Target.attachedToTarget', params)
    return { result: { sessionId } }
  }

  /** Ends a session with those that it attached, and disables domains that no other one uses. */
  #end(id: string): void {
    const ended = this.#sessions.get(id)
    this.#sessions.delete(id)
    for (const session of [...this.#sessions.values()])
      if (session.parent === id) this.#end(session.id)
    const { page = null, domains = [] } = ended ?? {}
    for (const domain of domains) {
      if (page === null || this.#isOn(page, domain)) continue
      this.#ask(page, { method: `${domain}.disable`, params: {} }, () => undefined)
    }
  }

  async #createContext(): Promise<CdpReply> {
    const link = await BackendLink.open(this.#connect)
    const { browserContextId } = await link.command('Target.createBrowserContext')
    const id = newSessionId()
    this.#contexts.set(id, { link, realId: String(browserContextId) })
    link.onEvent = (event, session) => this.#event(link, event, session)
    link.onClosed = () => this.#dropContext(id)
    if (this.#isClosed) link.close()
    return { result: { browserContextId: id } }
  }

  #dropContext(id: string): void {
    const context = this.#contexts.get(id)
    this.#contexts.delete(id)
    context?.link.close()
    for (const page of [...this.#pages.values()]) if (page.context === id) this.#destroy(page)
  }

  async #createPage(params: Params): Promise<CdpReply> {
    const context = String(params['browserContextId'])
    const known = this.#contexts.get(context)
    if (known === undefined) return { error: CDP_ERRORS.context }
    const { link } = known
    const real = { ...params, browserContextId: known.realId }
    const { targetId } = await link.command('Target.createTarget', real)
    const attach = { targetId, flatten: true }
    const { sessionId } = await link.command('Target.attachToTarget', attach)
    const ids = { id: newSessionId(), realId: String(targetId), realSession: String(sessionId) }
    const page: RepairedPage = { ...ids, context, link, worlds: new Map(), url: '' }
    this.#pages.set(page.id, page)
    for (const { id, discovers, attaches } of [...this.#sessions.values()]) {
      const targetInfo = this.#infoOf(page)
      if (discovers) this.#emit(id, 'Target.targetCreated', { targetInfo })
      if (attaches) this.#attach(id, page)
    }
    return { result: { targetId: page.id } }
  }

  #destroy(page: RepairedPage): void {
    const { id: targetId } = page
    if (!this.#pages.delete(targetId)) return
    for (const { id: sessionId, parent } of this.#sessionsOf(page)) {
      this.#sessions.delete(sessionId)
      this.#emit(parent ?? '', 'Target.detachedFromTarget', { sessionId, targetId })
    }
    for (const { id, discovers } of this.#sessions.values()) {
      if (discovers) this.#emit(id, 'Target.targetDestroyed', { targetId })
    }
  }

  /** An event of a backend's page, which may name any session: the connection has one page. */
  #event(link: BackendLink, { method, params }: CdpEvent, session: string): void {
    const pages = [...this.#pages.values()].filter((page) => page.link === link)
    const page = pages.find(({ realSession }) => realSession === session) ?? pages[0]
    if (page === undefined) return
    if (GONE.test(method)) return this.#destroy(page)
    const [domain = ''] = method.split('.')
    if (domain === 'Target') return
    const shown = replaced(params, page.realId, page.id)
    note(page, method, shown)
    for (const { id, domains } of this.#sessionsOf(page)) {
      if (domain === 'Inspector' || domains.has(domain)) this.#emit(id, method, shown)
    }
  }
}

function note(page: RepairedPage, method: string, params: Params): void {
  const { context, frame } = params as { readonly context?: Params; readonly frame?: Params }
  if (method === 'Runtime.executionContextCreated') page.worlds.set(context?.['id'], params)
  if (method === 'Runtime.executionContextDestroyed') {
    page.worlds.delete(params['executionContextId'])
  }
  if (method === 'Runtime.executionContextsCleared') page.worlds.clear()
  if (method === 'Page.frameNavigated' && frame?.['id'] === page.id) page.url = String(frame['url'])
}

/** The same value with every string that is exactly `from` replaced. */
function replaced<Value>(value: Value, from: string, to: string): Value {
  if (value === from) return to as Value
  if (Array.isArray(value)) return value.map((item) => replaced(item as unknown, from, to)) as Value
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([name, item]) => [name, replaced(item, from, to)])
  return Object.fromEntries(entries) as Value
}

export type OpenConnection = (events: ConnectionEvents) => Promise<BrowserConnection>

/** One connection to the backend: replies are matched by their id only. */
class BackendLink {
  readonly #unanswered = new Map<number, ReadReply>()
  #connection: BrowserConnection | null = null
  #lastId = 0
  onEvent: (event: CdpEvent, session: string) => void = () => undefined
  onClosed: (reason: string) => void = () => undefined

  static async open(connect: OpenConnection): Promise<BackendLink> {
    const link = new BackendLink()
    link.#connection = await connect({
      message: (message) => link.#receive(JSON.parse(message.toString()) as CdpMessage),
      tooLarge: () => undefined,
      closed: (reason) => link.#closed(reason),
    })
    return link
  }

  /** The reply is read in order with the events. */
  ask(method: string, params: Params, read: ReadReply, session = ''): void {
    this.#lastId += 1
    this.#unanswered.set(this.#lastId, read)
    this.#connection?.send(messageText({ id: this.#lastId, method, params }, session))
  }

  async command(method: string, params: Params = {}): Promise<Params> {
    const { result, error } = await new Promise<CdpReply>((read) => this.ask(method, params, read))
    if (error === undefined) return result ?? {}
    throw new Error(error.message)
  }

  close(): void {
    void this.#connection?.close()
  }

  #receive({ id, method, params = {}, result, error, sessionId = '' }: CdpMessage): void {
    // A reply may carry the id of another session.
    const read = id === undefined ? undefined : this.#unanswered.get(id)
    if (id !== undefined) this.#unanswered.delete(id)
    if (read !== undefined) return read(error === undefined ? { result: result ?? {} } : { error })
    if (method !== undefined) this.onEvent({ method, params }, sessionId)
  }

  #closed(reason: string): void {
    const unanswered = [...this.#unanswered.values()]
    this.#unanswered.clear()
    for (const read of unanswered) read({ error: { code: -32_000, message: reason } })
    this.onClosed(reason)
  }
}
