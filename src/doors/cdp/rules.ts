/**
 * What a client may ask of a browser that it has not for itself alone. Most commands are about one
 * page and pass unread. Those about the browser, its contexts, windows and other targets are listed
 * here: what is not listed in these domains is not there.
 */
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

const RULES: Readonly<Record<string, Rule>> = {
  ...TARGET_RULES,
  'Browser.getVersion': pass,
  'Browser.close': closeBrowser,
  'Browser.grantPermissions': inContext,
  'Browser.setPermission': inContext,
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
  'Memory.simulatePressureNotification': (request) => request.notFound(),
  'Memory.setPressureNotificationsSuppressed': (request) => request.notFound(),
  'Page.navigate': navigate,
}

/** Domains that reach beyond the page they are asked of. */
const GUARDED: ReadonlySet<string> = new Set([
  'Browser',
  'Target',
  'SystemInfo',
  'Tracing',
  'Tethering',
  'Extensions',
  'PWA',
  'Cast',
])

/** Of these, what a session may do that has the browser for itself. */
const ALONE: ReadonlySet<string> = new Set(['Tracing', 'SystemInfo', 'Security'])

/** What else the browser itself may be asked. */
const OF_BROWSER: ReadonlySet<string> = new Set(['IO', 'Schema'])

/** Does what the command asks, as far as its client may. */
export function obey(session: Session, command: Command): void {
  const { method } = command
  const request = new Request(session, command)
  const rule = Object.hasOwn(RULES, method) ? RULES[method] : undefined
  if (rule !== undefined) return rule(request)
  const domain = method.slice(0, method.indexOf('.'))
  if (session.client.host.isOwn && ALONE.has(domain)) return request.pass()
  if (domain === 'Tracing') return request.deny('it would show the pages of others')
  if (GUARDED.has(domain)) return request.notFound()
  if (session.isBrowser && !OF_BROWSER.has(domain)) return request.notFound()
  if (domain === 'Storage' && command.params?.['browserContextId'] !== undefined) {
    return inContext(request)
  }
  session.forward(command)
}
