/**
 * What a client may ask of a browser that it has not for itself alone. Most commands are about one
 * page and pass unread. Those about the browser, its contexts, windows and other targets are listed
 * here: what is not listed in these domains is not there.
 */
import { clipboardRules } from './clipboard.ts'
import { FAULTS, type Command } from './command.ts'
import { isInternalUrl, Request, type Rule } from './request.ts'
import type { Session } from './session.ts'
import { TARGET_RULES } from './target-rules.ts'

const pass: Rule = (request) => request.pass()

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
  if (isInternalUrl(request.params['url'])) return request.deny("the page is the browser's own")
  request.pass()
}

/** For whoever has the browser alone: others would notice. */
function alone(what: string): Rule {
  return (request) => (request.isAlone ? request.pass() : request.denyCommon(what))
}

const RULES: Readonly<Record<string, Rule>> = {
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
  'Emulation.addScreen': alone('the screen'),
  'Emulation.updateScreen': alone('the screen'),
  'Emulation.removeScreen': alone('the screen'),
  'Emulation.setPrimaryScreen': alone('the screen'),
  'Memory.simulatePressureNotification': alone('the memory'),
  'Memory.setPressureNotificationsSuppressed': alone('the memory'),
  'Memory.getBrowserSamplingProfile': alone('the memory'),
  'Page.navigate': navigate,
}

/** Domains that reach beyond the page they are asked of, and what they are about. */
const COMMON: Readonly<Record<string, string>> = {
  Browser: 'the process',
  SystemInfo: 'the process',
  Tracing: 'a trace',
  BluetoothEmulation: 'the Bluetooth adapter',
  SmartCardEmulation: 'the smart card reader',
}

/** Domains that reach beyond the browser, and what of a guarded one is not listed. */
const GUARDED: ReadonlySet<string> = new Set(['Target', 'Tethering', 'Extensions', 'PWA', 'Cast'])

/** What else the browser itself may be asked. */
const OF_BROWSER: ReadonlySet<string> = new Set(['IO', 'Schema'])

/** And by whoever has it alone. */
const OF_OWN_BROWSER: ReadonlySet<string> = new Set(['Security', 'Emulation', 'Memory'])

/** Does what the command asks, as far as its client may. */
export function obey(session: Session, command: Command): void {
  const { method } = command
  const request = new Request(session, command)
  const domain = method.slice(0, method.indexOf('.'))
  const rule = ruleOf(RULES, method) ?? ruleOf(COMMON_RULES, domain)
  if (rule !== undefined) return rule(request)
  if (GUARDED.has(domain)) return request.notFound()
  if (session.isBrowser && !mayAskBrowser(request, domain)) return request.notFound()
  if (domain === 'Storage' && command.params?.['browserContextId'] !== undefined) {
    return inContext(request)
  }
  session.forward(command)
}

const COMMON_RULES: Readonly<Record<string, Rule>> = Object.fromEntries(
  Object.entries(COMMON).map(([domain, what]) => [domain, alone(what)]),
)

function ruleOf(rules: Readonly<Record<string, Rule>>, name: string): Rule | undefined {
  return Object.hasOwn(rules, name) ? rules[name] : undefined
}

function mayAskBrowser({ isAlone }: Request, domain: string): boolean {
  return OF_BROWSER.has(domain) || (isAlone && OF_OWN_BROWSER.has(domain))
}
