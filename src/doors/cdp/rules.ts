/**
 * What a client may do in a browser. In a browser of its own that is everything; the door only
 * replaces ids of sessions and targets (OWN_RULES). In a shared browser most commands are about one
 * page and are forwarded unread. Those that reach further have a rule (SHARED_RULES) or are refused
 * with the reason and the alternative (REFUSED); so is everything else in the domains listed there.
 */
import type { CdpSession, SessionRules } from './client.ts'
import type { CdpCommand } from './command.ts'
import { CDP_ERRORS, type Params } from './protocol.ts'
import {
  CdpRequest,
  INTERNAL_PAGE,
  takeTargetEvent,
  TARGET_RULES,
  type CdpRule,
} from './target-rules.ts'
import { isInternalUrl } from './targets.ts'

const pass: CdpRule = (request) => request.pass()
const notFound: CdpRule = (request) => request.notFound()

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

const OWN_RULES: Readonly<Record<string, CdpRule>> = {
  ...TARGET_RULES,
  'Browser.close': (request) => {
    request.answer({ result: {} })
    request.session.client.closeSession()
  },
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

const BYPASS = 'a client could bypass the rules of this browser'
const SCREENS = 'all clients of this browser share the screens'
const PROCESS = 'all clients of this browser share the process'
const MACHINE = 'it would change the machine that all clients share'

/** Why a method, or every other method of a domain, is refused. */
const REFUSED: Readonly<Record<string, string>> = {
  'Target.exposeDevToolsProtocol': BYPASS,
  'Target.setRemoteLocations': BYPASS,
  'Target.openDevTools': BYPASS,
  'Emulation.addScreen': SCREENS,
  'Emulation.updateScreen': SCREENS,
  'Emulation.removeScreen': SCREENS,
  'Emulation.setPrimaryScreen': SCREENS,
  'Memory.simulatePressureNotification': PROCESS,
  'Memory.setPressureNotificationsSuppressed': PROCESS,
  'Memory.getBrowserSamplingProfile': PROCESS,
  Browser: PROCESS,
  SystemInfo: PROCESS,
  Tracing: 'a trace shows the pages of all clients',
  BluetoothEmulation: 'all clients of this browser share the Bluetooth adapter',
  SmartCardEmulation: 'all clients of this browser share the smart card reader',
  Tethering: MACHINE,
  Extensions: MACHINE,
  PWA: MACHINE,
  Cast: MACHINE,
}

/** Domains that the browser itself has for all pages; the session of a page has its own. */
const REFUSED_OF_BROWSER = /^(Fetch|Security|Emulation|Memory|Storage)$/

/** Other domains that may be used in a session with the browser itself. */
const OF_BROWSER = /^(IO|Schema|Runtime)$/

export const CDP_RULES: SessionRules = {
  command: (session, command) => {
    const isOwn = session.client.host.isOwn
    const rule = isOwn ? ownEntry(OWN_RULES, command.method) : sharedRule(session, command)
    if (rule === undefined) session.forward(command)
    else rule(new CdpRequest(session, command))
  },
  targetEvent: takeTargetEvent,
}

/** Undefined: the command is forwarded unread. */
function sharedRule(session: CdpSession, command: CdpCommand): CdpRule | undefined {
  const { method } = command
  const rule = ownEntry(SHARED_RULES, method)
  if (rule !== undefined) return rule
  const domain = method.slice(0, method.indexOf('.'))
  const why = ownEntry(REFUSED, method) ?? ownEntry(REFUSED, domain)
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
