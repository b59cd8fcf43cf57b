/**
 * What a client may ask of a browser. In a browser of its own that is everything, but that sessions
 * and targets go by the door's names (OWN_RULES). In a shared one most commands are about one page
 * and pass unread; those that reach further are listed (SHARED_RULES, COMMON), and what is not
 * listed in these domains is refused, with the reason and the way out.
 */
import { clipboardRules } from './clipboard.ts'
import { ignoreCertificateErrors } from './certificates.ts'
import { FAULTS, type Command } from './command.ts'
import { isInternalUrl, Request, type Rule } from './request.ts'
import type { Session } from './session.ts'
import { TARGET_RULES } from './target-rules.ts'

const pass: Rule = (request) => request.pass()
const notFound: Rule = (request) => request.notFound()

/** Its context must be the session's own; without one it is the session's home. */
const inContext: Rule = (request) => {
  const { browserContextId } = request.params
  if (browserContextId === undefined) return request.pass({ browserContextId: request.tenant.home })
  if (!request.tenant.hasContext(browserContextId)) return request.refuse(FAULTS.context)
  request.pass()
}

/** As above, but a page knows its own context. */
const inOwnContext: Rule = (request) => {
  const { browserContextId } = request.params
  if (browserContextId === undefined && !request.session.isBrowser) return request.pass()
  inContext(request)
}

const ofWindow: Rule = (request) => {
  if (request.tenant.windows.has(Number(request.params['windowId']))) return request.pass()
  request.refuse({ code: -32000, message: 'Browser window not found' })
}

const findWindow: Rule = (request) => {
  const { targetId } = request.params
  const { tenant } = request
  if (targetId !== undefined && tenant.target(targetId) === null) {
    return request.refuse(FAULTS.target)
  }
  request.pass(null, (result) => {
    const page = typeof targetId === 'string' ? targetId : (request.session.target ?? '')
    tenant.windows.learn(Number(result['windowId']), page, (id) => tenant.target(id) !== null)
    return result
  })
}

const closeBrowser: Rule = (request) => {
  request.answer({ result: {} })
  request.session.client.onBrowserClose()
}

const navigate: Rule = (request) => {
  if (isInternalUrl(request.params['url'])) return request.denyInternal()
  request.pass()
}

const IN_A_PAGE = 'send it in the session of a page, or '

/** Refused where others would notice. */
function common(what: string, wayOut = ''): Rule {
  return (request) => request.denyCommon(what, wayOut)
}

/** What keeps the door's own books; the rest of a browser that a client has alone is its own. */
const OWN_RULES: Readonly<Record<string, Rule>> = {
  ...TARGET_RULES,
  'Browser.close': closeBrowser,
}

const SHARED_RULES: Readonly<Record<string, Rule>> = {
  ...TARGET_RULES,
  ...clipboardRules(inContext),
  'Browser.getVersion': pass,
  'Browser.close': closeBrowser,
  'Browser.resetPermissions': inContext,
  'Browser.setDownloadBehavior': inContext,
  'Browser.cancelDownload': inContext,
  'Browser.getWindowForTarget': findWindow,
  'Browser.getWindowBounds': ofWindow,
  'Browser.setWindowBounds': ofWindow,
  'Browser.setContentsSize': ofWindow,
  'Storage.getCookies': inOwnContext,
  'Storage.setCookies': inOwnContext,
  'Storage.clearCookies': inOwnContext,
  'Security.setIgnoreCertificateErrors': ignoreCertificateErrors,
  'Target.exposeDevToolsProtocol': common('what a page could reach by the protocol'),
  'Target.setRemoteLocations': common('the list of remote browsers'),
  'Target.openDevTools': common('the window of the developer tools'),
  'Emulation.getScreenInfos': pass,
  'Emulation.addScreen': common('the screen'),
  'Emulation.updateScreen': common('the screen'),
  'Emulation.removeScreen': common('the screen'),
  'Emulation.setPrimaryScreen': common('the screen'),
  'Memory.simulatePressureNotification': common('the memory'),
  'Memory.setPressureNotificationsSuppressed': common('the memory'),
  'Memory.getBrowserSamplingProfile': common('the memory'),
  'Page.navigate': navigate,
}

/** Domains of which the rest reaches beyond a page, and what they are about. */
const COMMON: Readonly<Record<string, Rule>> = {
  Browser: common('the process'),
  SystemInfo: common('the process'),
  Tracing: common('a trace'),
  BluetoothEmulation: common('the Bluetooth adapter'),
  SmartCardEmulation: common('the smart card reader'),
  Tethering: common('a port'),
  Extensions: common('an extension'),
  PWA: common('an installed app'),
  Cast: common('a cast device'),
}

/** What is common when the browser itself is asked for it; of a page it is the page's own. */
const COMMON_OF_BROWSER: Readonly<Record<string, Rule>> = {
  Fetch: common('the network', IN_A_PAGE),
  Security: common('the certificate policy', IN_A_PAGE),
  Emulation: common('what is emulated', IN_A_PAGE),
  Memory: common('the memory'),
  Storage: common('the storage', IN_A_PAGE),
}

/** What else the browser itself may be asked. */
const OF_BROWSER: ReadonlySet<string> = new Set(['IO', 'Schema', 'Runtime'])

/** Does what the command asks, as far as its client may. */
export function obey(session: Session, command: Command): void {
  const request = new Request(session, command)
  const rule = request.isAlone ? ruleOf(OWN_RULES, command.method) : sharedRule(request)
  if (rule === undefined) session.forward(command)
  else rule(request)
}

function sharedRule({ session, command }: Request): Rule | undefined {
  const { method } = command
  const domain = method.slice(0, method.indexOf('.'))
  const rule = ruleOf(SHARED_RULES, method) ?? ruleOf(COMMON, domain)
  if (rule !== undefined) return rule
  if (domain === 'Target') return notFound
  if (session.isBrowser) return OF_BROWSER.has(domain) ? undefined : refusalOf(domain)
  const hasContext = domain === 'Storage' && command.params?.['browserContextId'] !== undefined
  return hasContext ? inContext : undefined
}

function refusalOf(domain: string): Rule {
  return ruleOf(COMMON_OF_BROWSER, domain) ?? notFound
}

function ruleOf(rules: Readonly<Record<string, Rule>>, name: string): Rule | undefined {
  return Object.hasOwn(rules, name) ? rules[name] : undefined
}
