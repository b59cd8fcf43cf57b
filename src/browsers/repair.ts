/**
 * Presents a backend with one session per page, as Lightpanda was before its #2077, as a browser
 * that follows the protocol, with any number of sessions, contexts and clients.
 *
 * 1. The backend sees one session for each page; every id that clients see is made here.
 * 2. A reply is matched by the id of its command, whatever session it names.
 * 3. Every browser context is a connection of its own, since such a backend has one for each.
 */
import { randomBytes } from 'node:crypto'
import { BackendLink, type OpenConnection } from './backend-link.ts'
import type {
  BrowserConnection,
  CdpEvent,
  CdpReply,
  ConnectionEvents,
  MessageParts,
  Params,
  ReadReply,
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

type RepairedCommand = { readonly session: RepairedSession; readonly params: Params }
type Answering = (command: RepairedCommand) => CdpReply | Promise<CdpReply>

const DONE: CdpReply = { result: {} }
const NO_SESSION = { code: -32_001, message: 'Session with given id not found.' }
const NO_TARGET = { code: -32_602, message: 'No target with given id found' }
const NO_CONTEXT = { code: -32_602, message: 'Failed to find browser context with given id' }

/** Events after which the page is gone. */
const GONE: ReadonlySet<string> = new Set([
  'Target.targetDestroyed',
  'Target.detachedFromTarget',
  'Inspector.targetCrashed',
])

const BROWSER_INFO = { type: 'browser', title: '', url: '', attached: true }

/** As long as Chrome's. */
function newId(): string {
  return randomBytes(16).toString('hex').toUpperCase()
}

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
    'Target.setDiscoverTargets': (command) => this.#discover(command),
    'Target.setAutoAttach': (command) => this.#autoAttach(command),
    'Target.attachToBrowserTarget': ({ session }) => this.#attach(session.id, null),
    'Target.attachToTarget': ({ session, params }) => {
      const page = this.#pages.get(String(params['targetId']))
      return page === undefined ? { error: NO_TARGET } : this.#attach(session.id, page)
    },
    'Target.detachFromTarget': (command) => this.#detach(command),
    'Target.createBrowserContext': () => this.#createContext(),
    'Target.disposeBrowserContext': ({ params }) => {
      this.#dropContext(String(params['browserContextId']))
      return DONE
    },
    'Target.createTarget': ({ params }) => this.#createPage(params),
    'Target.closeTarget': ({ params }) => this.#closePage(String(params['targetId'])),
    'Target.activateTarget': () => DONE,
    'Target.getTargetInfo': (command) => this.#getTargetInfo(command),
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
    const { id, method, params = {}, sessionId = '' } = JSON.parse(text) as Sent
    const session = this.#sessions.get(sessionId)
    if (session === undefined) return this.#tell('', { id, error: NO_SESSION })
    const answer: ReadReply = (reply) => this.#tell(sessionId, { id, ...reply })
    const answering = Object.hasOwn(this.#answers, method) ? this.#answers[method] : undefined
    if (answering === undefined) return this.#pass(session, { method, params }, answer)
    const reply = answering({ session, params })
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
    if (this.#isClosed) return
    const stamped = session === '' ? message : { ...message, sessionId: session }
    this.#events.message(Buffer.from(JSON.stringify(stamped)))
  }

  #emit(session: string, method: string, params: Params): void {
    this.#tell(session, { method, params })
  }

  /** Sends a command to the page, or to the context that it is about. */
  #pass({ id, page, domains }: RepairedSession, command: CdpEvent, answer: ReadReply): void {
    const { method, params } = command
    const [domain = '', action = ''] = method.split('.')
    if (page === null) return this.#passToContext(command, answer)
    const isOn = this.#isOn(page, domain)
    if (action === 'enable' || method === 'DOM.getDocument') domains.add(domain)
    if (action === 'disable') domains.delete(domain)
    // The backend has the domain for all sessions of the page.
    const isShared = action === 'enable' ? isOn : this.#isOn(page, domain)
    if (!isShared || (action !== 'enable' && action !== 'disable')) {
      return this.#ask(page, method, params, answer)
    }
    const worlds = method === 'Runtime.enable' ? page.worlds.values() : []
    for (const world of worlds) this.#emit(id, 'Runtime.executionContextCreated', world)
    answer(DONE)
  }

  #passToContext({ method, params }: CdpEvent, answer: ReadReply): void {
    const context = this.#contexts.get(String(params['browserContextId']))
    if (context === undefined) return this.#control.ask(method, params, answer)
    context.link.ask(method, { ...params, browserContextId: context.realId }, answer)
  }

  #ask({ id, realId, realSession, link }: RepairedPage, ...[method, params, read]: AskedOfPage) {
    const answer: ReadReply = (reply) => read(replaced(reply, realId, id))
    link.ask(method, replaced(params, id, realId), answer, realSession)
  }

  #isOn(page: RepairedPage, domain: string): boolean {
    return this.#sessionsOf(page).some(({ domains }) => domains.has(domain))
  }

  #sessionsOf(page: RepairedPage): readonly RepairedSession[] {
    return [...this.#sessions.values()].filter((session) => session.page === page)
  }

  #infoOf(page: RepairedPage): Params {
    return {
      targetId: page.id,
      type: 'page',
      title: '',
      url: page.url,
      attached: this.#sessionsOf(page).length > 0,
      canAccessOpener: false,
      browserContextId: page.context,
    }
  }

  #discover({ session, params }: RepairedCommand): CdpReply {
    session.discovers = params['discover'] === true
    for (const page of session.discovers ? this.#pages.values() : []) {
      this.#emit(session.id, 'Target.targetCreated', { targetInfo: this.#infoOf(page) })
    }
    return DONE
  }

  /** A page of such a backend has no workers or frames to attach to. */
  #autoAttach({ session, params }: RepairedCommand): CdpReply {
    if (session.page !== null) return DONE
    const wasOn = session.attaches
    session.attaches = params['autoAttach'] === true
    for (const page of session.attaches && !wasOn ? this.#pages.values() : []) {
      this.#attach(session.id, page)
    }
    return DONE
  }

  #open(id: string, parent: string | null, page: RepairedPage | null): void {
    const domains = new Set<string>()
    this.#sessions.set(id, { id, parent, page, domains, discovers: false, attaches: false })
  }

  #attach(parent: string, page: RepairedPage | null): CdpReply {
    const sessionId = newId()
    this.#open(sessionId, parent, page)
    const targetInfo = page === null ? { targetId: newId(), ...BROWSER_INFO } : this.#infoOf(page)
    const params = { sessionId, targetInfo, waitingForDebugger: false }
    this.#emit(parent, 'Target.attachedToTarget', params)
    return { result: { sessionId } }
  }

  #detach({ session, params }: RepairedCommand): CdpReply {
    const sessionId = String(params['sessionId'])
    const page = this.#sessions.get(sessionId)?.page ?? null
    this.#end(sessionId)
    if (page !== null) {
      this.#emit(session.id, 'Target.detachedFromTarget', { sessionId, targetId: page.id })
    }
    return DONE
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
      this.#ask(page, `${domain}.disable`, {}, () => undefined)
    }
  }

  async #createContext(): Promise<CdpReply> {
    const link = await BackendLink.open(this.#connect)
    const { browserContextId } = await link.command('Target.createBrowserContext')
    const id = newId()
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
    if (known === undefined) return { error: NO_CONTEXT }
    const { link } = known
    const real = { ...params, browserContextId: known.realId }
    const { targetId } = await link.command('Target.createTarget', real)
    const attach = { targetId, flatten: true }
    const { sessionId } = await link.command('Target.attachToTarget', attach)
    const ids = { id: newId(), realId: String(targetId), realSession: String(sessionId) }
    const page: RepairedPage = { ...ids, context, link, worlds: new Map(), url: '' }
    this.#pages.set(page.id, page)
    for (const { id, discovers, attaches } of [...this.#sessions.values()]) {
      const targetInfo = this.#infoOf(page)
      if (discovers) this.#emit(id, 'Target.targetCreated', { targetInfo })
      if (attaches) this.#attach(id, page)
    }
    return { result: { targetId: page.id } }
  }

  async #closePage(id: string): Promise<CdpReply> {
    const page = this.#pages.get(id)
    if (page === undefined) return { error: NO_TARGET }
    const result = await page.link.command('Target.closeTarget', { targetId: page.realId })
    this.#destroy(page)
    return { result }
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

  #getTargetInfo({ session, params }: RepairedCommand): CdpReply {
    const page = 'targetId' in params ? this.#pages.get(String(params['targetId'])) : session.page
    if (page === undefined) return { error: NO_TARGET }
    const targetInfo = page === null ? { targetId: '', ...BROWSER_INFO } : this.#infoOf(page)
    return { result: { targetInfo } }
  }

  /** An event of a backend's page, which may name any session: the connection has one page. */
  #event(link: BackendLink, { method, params }: CdpEvent, session: string): void {
    const pages = [...this.#pages.values()].filter((page) => page.link === link)
    const page = pages.find(({ realSession }) => realSession === session) ?? pages[0]
    if (page === undefined) return
    if (GONE.has(method)) return this.#destroy(page)
    const [domain = ''] = method.split('.')
    if (domain === 'Target') return
    const shown = replaced(params, page.realId, page.id)
    note(page, method, shown)
    for (const { id, domains } of this.#sessionsOf(page)) {
      if (domain === 'Inspector' || domains.has(domain)) this.#emit(id, method, shown)
    }
  }
}

type Sent = {
  readonly id: number
  readonly method: string
  readonly params?: Params
  readonly sessionId?: string
}

type AskedOfPage = [method: string, params: Params, read: ReadReply]

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
