/**
 * What a client may do in a browser. In a browser of its own that is everything; the door only
 * replaces ids of sessions and targets (OWN_RULES). In a shared browser most commands are about one
 * page and are forwarded unread. Those that reach further have a rule (SHARED_RULES) or are refused
 * with the reason and the alternative (REFUSED); so is everything else in the domains listed there.
 */
import type { CdpClient, CdpSession, SessionRules } from './client.ts'
import { CdpCommand } from './command.ts'
import { guard } from './guard.ts'
import {
  CDP_ERRORS,
  RUN,
  type CdpError,
  type CdpEvent,
  type CdpReply,
  type Params,
} from './protocol.ts'
import { isInternalUrl, targetInfoOf, type TargetInfo } from './targets.ts'
import type { BrowserTenant } from './tenant.ts'

const INTERNAL_PAGE = "the browser's own pages have access to the pages of all clients"

/** Messages inside messages, which Chrome has deprecated: see docs/decisions. */
const NOT_FLAT = { code: -32602, message: 'only flat sessions are supported: set flatten to true' }

const TOO_MANY_SESSIONS = { code: -32000, message: 'there are too many sessions' }

type CdpRule = (request: CdpRequest) => void

/** A client's command that a rule forwards, changes, answers or refuses. */
class CdpRequest {
  readonly session: CdpSession
  readonly command: CdpCommand
  readonly tenant: BrowserTenant

  constructor(session: CdpSession, command: CdpCommand) {
    this.session = session
    this.command = command
    this.tenant = session.client.tenant
  }

  get params(): Params {
    return this.command.params ?? {}
  }

  /** Forwards it, with some params replaced; the client gets what `read` makes of the reply. */
  pass(changes: Params | null = null, read: ((reply: CdpReply) => CdpReply) | null = null): void {
    const { command, session } = this
    // Serialised again: the browser gets the values that the rule has read.
    const params = changes === null ? command.params : { ...command.params, ...changes }
    const answer = read === null ? null : (reply: CdpReply) => this.answer(read(reply))
    session.forward(new CdpCommand(command, params), answer)
  }

  answer(reply: CdpReply): void {
    this.session.answer(this.command.id, reply)
  }

  refuse(error: CdpError): void {
    this.answer({ error })
  }

  notFound(): void {
    this.refuse({ code: -32601, message: `'${this.command.method}' wasn't found` })
  }

  /** Refuses what would affect other clients, and names the alternative. */
  deny(why: string, alternative = ''): void {
    this.forbid(`${why}; ${alternative}see --own-browsers`)
  }

  forbid(reason: string): void {
    const message = `${this.command.method} is not allowed here: ${reason}`
    this.refuse({ code: -32000, message })
  }
}

const pass: CdpRule = (request) => request.pass()
const notFound: CdpRule = (request) => request.notFound()
const ofTarget: CdpRule = (request) => {
  if (request.tenant.target(request.params['targetId']) !== null) request.pass()
  else request.refuse(CDP_ERRORS.target)
}

/** The Target domain: a client's own targets, contexts and sessions, and no others. */
const OWN_RULES: Readonly<Record<string, CdpRule>> = {
  'Target.autoAttachRelated': ofTarget,
  'Target.closeTarget': ofTarget,
  'Target.activateTarget': ofTarget,
  'Target.sendMessageToTarget': notFound,
  'Target.getTargets': (request) => {
    const { client } = request.session
    request.pass(null, ({ result, error }) => {
      if (error !== undefined) return { error }
      const { targetInfos } = result ?? {}
      const all: readonly unknown[] = Array.isArray(targetInfos) ? targetInfos : []
      const known = all.filter((info) => knownInfo(client, info) !== null)
      return { result: { ...result, targetInfos: known } }
    })
  },
  'Target.getTargetInfo': (request) => {
    // Without an id it asks about the session's own target.
    const { targetId } = request.params
    const isKnown = targetId === undefined || request.session.client.isBrowser(targetId)
    if (isKnown) request.pass()
    else ofTarget(request)
  },
  'Target.attachToTarget': (request) => {
    const { session, params, tenant } = request
    const { targetId, flatten } = params
    const isOwn = tenant.target(targetId) !== null || session.client.isBrowser(targetId)
    if (!isOwn) return request.refuse(CDP_ERRORS.target)
    if (flatten !== true) return request.refuse(NOT_FLAT)
    attach(request)
  },
  'Target.attachToBrowserTarget': (request) => {
    if (request.session.isBrowser) attach(request)
    else request.notFound()
  },
  'Target.detachFromTarget': (request) => {
    const { session, params } = request
    const { sessionId, targetId } = params
    const child = [...session.children.values()].find(
      ({ id, target }) =>
        id !== null && (sessionId === undefined ? target === targetId : id === sessionId),
    )
    if (child === undefined) return request.refuse(CDP_ERRORS.child)
    // Chromium would let the target wait for a session that has ended.
    if (child.client.host.targets.waiting.isLastHolder(child)) child.tell(RUN, {})
    request.pass({ sessionId: child.upstream, targetId: undefined })
  },
  'Target.setAutoAttach': (request) => {
    const { session, params } = request
    const isOn = params['autoAttach'] === true
    if (isOn && params['flatten'] !== true) return request.refuse(NOT_FLAT)
    if (isOn && session.isBrowser) session.client.host.targets.waiting.isOn = true
    request.pass()
  },
  'Target.setDiscoverTargets': (request) => {
    if (request.params['discover'] !== true) request.session.discovered.clear()
    request.pass()
  },
  'Target.createTarget': (request) => {
    const { params, tenant } = request
    const { browserContextId = tenant.home, url } = params
    if (!tenant.hasContext(browserContextId)) return request.refuse(CDP_ERRORS.context)
    if (!tenant.host.isOwn && isInternalUrl(url)) return request.deny(INTERNAL_PAGE)
    tenant.openPage({ ...params, browserContextId }, (reply) => request.answer(reply))
  },
  'Target.createBrowserContext': (request) => {
    const { params, tenant, session } = request
    // Chrome would dispose of it at every lost connection, which the client may survive here.
    const owner = params['disposeOnDetach'] === true ? session.client : null
    tenant.openContext({ ...params, disposeOnDetach: false }, owner, (reply) => {
      const { browserContextId } = reply.result ?? {}
      const isUnused = session.isOver && typeof browserContextId === 'string'
      if (isUnused) tenant.dispose(browserContextId)
      request.answer(reply)
    })
  },
  'Target.disposeBrowserContext': (request) => {
    const { params, tenant } = request
    const { browserContextId } = params
    if (!tenant.hasContext(browserContextId) || browserContextId === tenant.home) {
      return request.refuse(CDP_ERRORS.context)
    }
    tenant.closeContext(String(browserContextId), (reply) => request.answer(reply))
  },
  'Target.getBrowserContexts': (request) => {
    const { home, contexts } = request.tenant
    const browserContextIds = contexts.filter((context) => context !== home)
    request.answer({ result: { browserContextIds, defaultBrowserContextId: home } })
  },
  'Browser.close': (request) => {
    request.answer({ result: {} })
    request.session.client.closeSession()
  },
}

function attach(request: CdpRequest): void {
  const { session } = request
  if (session.client.isFull) return request.refuse(TOO_MANY_SESSIONS)
  request.pass(null, (reply) => named(session, reply))
}

/** Names the session that the event before this reply has announced. */
function named(session: CdpSession, reply: CdpReply): CdpReply {
  const { result } = reply
  if (result === undefined) return reply
  const sessionId = session.children.get(String(result['sessionId']))?.id ?? null
  if (sessionId !== null) return { result: { ...result, sessionId } }
  if (session.client.isFull) return { error: TOO_MANY_SESSIONS }
  return { error: { code: -32000, message: 'the session has ended already' } }
}

/**
 * A browser has one clipboard for all of its clients. Any page may write to it, so in a shared
 * browser reading is refused: by permission, by the keys for paste, by editing commands. The middle
 * mouse button pastes the selection, which is another clipboard: browsers are started without it.
 */
const CLIPBOARD = 'all clients of this browser share the clipboard'

/** Types of `Browser.grantPermissions` by which a page reads the clipboard or sees other pages. */
const UNSHAREABLE: ReadonlySet<unknown> = new Set(['clipboardReadWrite', 'displayCapture'])

/** Bits of `modifiers`, and Windows' virtual key codes: Chromium decides by them. */
const [CONTROL, META, SHIFT] = [2, 4, 8]
const [KEY_V, KEY_INSERT] = [86, 45]
const PASTE = /paste/i

/** Whether the params of `Input.dispatchKeyEvent` paste. */
function pastes({ modifiers, windowsVirtualKeyCode, key, code, commands }: Params): boolean {
  // The key `Paste` of some keyboards needs no key code.
  if (PASTE.test(String(key)) || PASTE.test(String(code))) return true
  const held = Number(modifiers ?? 0)
  const keyCode = Number(windowsVirtualKeyCode ?? 0)
  if (keyCode === KEY_V && (held & (CONTROL | META)) !== 0) return true
  if (keyCode === KEY_INSERT && (held & SHIFT) !== 0) return true
  // On macOS a key event names its editing commands.
  return Array.isArray(commands) && commands.some((command) => PASTE.test(String(command)))
}

/** Whether the params of `Browser.setPermission` let a page read the clipboard or other pages. */
function grantsReading({ permission, setting }: Params): boolean {
  if (setting !== 'granted' || typeof permission !== 'object' || permission === null) return false
  const { name, allowWithoutSanitization } = permission as Params
  if (name === 'clipboard-write') return allowWithoutSanitization === true
  return name === 'clipboard-read' || name === 'display-capture'
}

/** Refused if it would let a client read the clipboard. */
function unless(reads: (params: Params) => boolean, rule: CdpRule): CdpRule {
  return (request) => (reads(request.params) ? request.deny(CLIPBOARD) : rule(request))
}

/** Its context must be the session's own; without one it is the session's home. */
function inContext(request: CdpRequest, changes: Params = {}): void {
  const { tenant, params } = request
  const { browserContextId = tenant.home } = params
  if (!tenant.hasContext(browserContextId)) return request.refuse(CDP_ERRORS.context)
  request.pass({ ...changes, browserContextId })
}

/** As above, but Chromium knows the context of a page. */
function inOwnContext(request: CdpRequest): void {
  const { browserContextId } = request.params
  if (browserContextId === undefined && !request.session.isBrowser) request.pass()
  else inContext(request)
}

function ofWindow(request: CdpRequest): void {
  if (request.tenant.windows.has(Number(request.params['windowId']))) return request.pass()
  request.refuse({ code: -32000, message: 'Browser window not found' })
}

const SHARED_RULES: Readonly<Record<string, CdpRule>> = {
  ...OWN_RULES,
  'Browser.getVersion': pass,
  // Grants those of a list that can be granted; the client's pages are warned of the others.
  'Browser.grantPermissions': (request) => {
    const { permissions } = request.params
    const asked: readonly unknown[] = Array.isArray(permissions) ? permissions : []
    const refused = asked.filter((type) => UNSHAREABLE.has(type))
    if (refused.length === 0) return inContext(request)
    if (refused.length === asked.length) return request.deny(CLIPBOARD)
    const text = `Holdfast did not grant ${refused.join(', ')}: ${CLIPBOARD}; see --own-browsers`
    request.session.client.warn(text, null)
    inContext(request, { permissions: asked.filter((type) => !UNSHAREABLE.has(type)) })
  },
  'Browser.setPermission': unless(grantsReading, inContext),
  'Browser.resetPermissions': inContext,
  'Browser.setDownloadBehavior': inContext,
  'Browser.cancelDownload': inContext,
  'Browser.getWindowForTarget': (request) => {
    const { session, tenant, params } = request
    const { targetId = session.target } = params
    const isKnown = targetId === session.target || tenant.target(targetId) !== null
    if (!isKnown) return request.refuse(CDP_ERRORS.target)
    request.pass(null, (reply) => {
      const window = reply.result?.['windowId']
      for (const [known, page] of tenant.windows) {
        if (tenant.target(page) === null) tenant.windows.delete(known)
      }
      if (typeof window === 'number') tenant.windows.set(window, String(targetId))
      return reply
    })
  },
  'Browser.getWindowBounds': ofWindow,
  'Browser.setWindowBounds': ofWindow,
  'Browser.setContentsSize': ofWindow,
  'Emulation.getScreenInfos': pass,
  'Input.dispatchKeyEvent': unless(pastes, pass),
  'Page.navigate': (request) => {
    if (isInternalUrl(request.params['url'])) request.deny(INTERNAL_PAGE)
    else request.pass()
  },
  // Chromium would ignore them for all clients; the session of a page knows its own.
  'Security.setIgnoreCertificateErrors': (request) => {
    const { session, params } = request
    const { ignore } = params
    if (!session.isBrowser || typeof ignore !== 'boolean') return request.pass()
    session.client.ignoreCertificateErrors(ignore)
    request.answer({ result: {} })
  },
  'Storage.getCookies': inOwnContext,
  'Storage.setCookies': inOwnContext,
  'Storage.clearCookies': inOwnContext,
}

/** The commands that have a rule: a test tries each with ids of another principal's. */
export const RULED_METHODS: readonly string[] = Object.keys(SHARED_RULES)

/** Methods that are refused, and domains of which every other method is, by the reason. */
const REFUSALS: Readonly<Record<string, readonly string[]>> = {
  'a client could bypass the rules of this browser': [
    ...['Target.exposeDevToolsProtocol', 'Target.setRemoteLocations', 'Target.openDevTools'],
  ],
  'all clients of this browser share the screens': [
    ...['Emulation.addScreen', 'Emulation.updateScreen'],
    ...['Emulation.removeScreen', 'Emulation.setPrimaryScreen'],
  ],
  'all clients of this browser share the process': [
    ...['Memory.simulatePressureNotification', 'Memory.setPressureNotificationsSuppressed'],
    ...['Memory.getBrowserSamplingProfile', 'Browser', 'SystemInfo'],
  ],
  'a trace shows the pages of all clients': ['Tracing'],
  'all clients of this browser share the Bluetooth adapter': ['BluetoothEmulation'],
  'all clients of this browser share the smart card reader': ['SmartCardEmulation'],
  'it would change the machine that all clients share': ['Tethering', 'Extensions', 'PWA', 'Cast'],
}
const REFUSED = new Map(
  Object.entries(REFUSALS).flatMap(([why, names]) => names.map((name) => [name, why] as const)),
)

/** Domains that the browser itself has for all pages; the session of a page has its own. */
const REFUSED_OF_BROWSER = /^(Fetch|Security|Emulation|Memory|Storage)$/

/** Other domains that may be used in a session with the browser itself. */
const OF_BROWSER = /^(IO|Schema|Runtime)$/

export const CDP_RULES: SessionRules = {
  command: (session, received) => {
    const { host, tenant } = session.client
    const { isOwn, downloads } = host
    const command = downloads === null ? received : guard(received, downloads, tenant.session.id)
    if (typeof command === 'string') return new CdpRequest(session, received).forbid(command)
    const rule = isOwn ? ownEntry(OWN_RULES, command.method) : sharedRule(session, command)
    if (rule === undefined) session.forward(command)
    else rule(new CdpRequest(session, command))
  },
  /**
   * The browser reports all targets and sessions to every client, and each client gets events of
   * its own only. An unknown event may be about other clients' targets.
   */
  targetEvent: (session, event) => ownEntry(TARGET_EVENTS, event.method)?.(session, event),
}

/** Undefined: the command is forwarded unread. */
function sharedRule(session: CdpSession, command: CdpCommand): CdpRule | undefined {
  const { method } = command
  const rule = ownEntry(SHARED_RULES, method)
  if (rule !== undefined) return rule
  const domain = method.slice(0, method.indexOf('.'))
  const why = REFUSED.get(method) ?? REFUSED.get(domain)
  if (why !== undefined) return (request) => request.deny(why)
  if (domain === 'Target') return notFound
  if (session.isBrowser) return browserRule(domain)
  const hasContext = domain === 'Storage' && command.params?.['browserContextId'] !== undefined
  return hasContext ? inContext : undefined
}

function browserRule(domain: string): CdpRule | undefined {
  if (OF_BROWSER.test(domain)) return undefined
  if (!REFUSED_OF_BROWSER.test(domain)) return notFound
  const why = `here it would affect the pages of all clients`
  return (request) => request.deny(why, 'send it in the session of a page, or ')
}

function ownEntry<Value>(table: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}

const TARGET_EVENTS: Readonly<Record<string, (session: CdpSession, event: CdpEvent) => void>> = {
  'Target.attachedToTarget': attached,
  'Target.detachedFromTarget': (session, { params }) => {
    const child = session.children.get(String(params['sessionId']))
    child?.end()
    const { id: sessionId = null } = child ?? {}
    if (sessionId !== null) session.emit('Target.detachedFromTarget', { ...params, sessionId })
  },
  // Clients rely on the order: a target is created before it changes.
  'Target.targetCreated': (session, event) => {
    const { targetId } = knownInfo(session.client, event.params['targetInfo']) ?? {}
    if (targetId === undefined || session.discovered.has(targetId)) return
    session.discovered.add(targetId)
    session.emit(event.method, event.params)
  },
  'Target.targetInfoChanged': (session, event) => {
    const info = knownInfo(session.client, event.params['targetInfo'])
    if (info !== null) tellDiscovered(session, event, info.targetId)
  },
  'Target.targetCrashed': tellDiscovered,
  'Target.targetDestroyed': (session, event) => {
    tellDiscovered(session, event)
    session.discovered.delete(event.params['targetId'])
  },
}

function tellDiscovered(
  session: CdpSession,
  { method, params }: CdpEvent,
  target = params['targetId'],
): void {
  if (session.discovered.has(target)) session.emit(method, params)
}

/** A target that the browser reports, if the client may know of it. */
function knownInfo(client: CdpClient, value: unknown): TargetInfo | null {
  const info = targetInfoOf(value)
  return info !== null && client.knows(info) ? info : null
}

function attached(session: CdpSession, { method, params }: CdpEvent): void {
  const info = targetInfoOf(params['targetInfo'])
  if (info === null) return
  const { client } = session
  const { host, tenant } = client
  host.targets.learn(info)
  const upstream = String(params['sessionId'])
  const waits = params['waitingForDebugger'] === true
  const isBrowser = info.type === 'browser'
  // A client that uses auto-attach is attached to other clients' targets too, and gets no event.
  const isForeign = !isBrowser && !tenant.owns(info)
  if (isForeign || client.isFull) return hide(session, upstream, waits ? info : null)
  const target = isBrowser ? null : info.targetId
  const child = client.openSession({ parent: session, upstream, target })
  if (waits) host.targets.waiting.hold(child, session.target)
  session.emit(method, { ...params, sessionId: child.id })
  if (waits && client.carrier.mayReturn) child.blocked.add(RUN, {})
}

/** Ends a session that the client may not have; its target runs first, if it waits for that. */
function hide(session: CdpSession, upstream: string, waiting: TargetInfo | null): void {
  const { client } = session
  const { link, targets } = client.host
  // A page that a client asked for does not wait.
  const isAskedFor = waiting?.type === 'page' && waiting.openerId === undefined
  if (waiting === null || isAskedFor) return link.detach(session.upstream, upstream)
  const place = { parent: session, upstream, target: waiting.targetId }
  targets.waiting.hide(client.openSession(place, true))
}
