/** The Target domain as a client has it: its own targets, contexts and sessions, and no others. */
import { FAULTS, type Params } from './command.ts'
import { CDP_LIMITS } from './limits.ts'
import { isInternalUrl, type Request, type Rule } from './request.ts'
import { targetInfoOf } from './targets.ts'
import type { Session } from './session.ts'

const ofTarget: Rule = (request) => {
  if (request.tenant.target(request.params['targetId']) === null) {
    return request.refuse(FAULTS.target)
  }
  request.pass()
}

const getTargets: Rule = (request) => {
  const { tenant } = request
  request.pass(null, (result) => ({
    ...result,
    targetInfos: listOf(result['targetInfos']).filter((value) => {
      const info = targetInfoOf(value)
      return info !== null && tenant.owns(info)
    }),
  }))
}

const getTargetInfo: Rule = (request) => {
  // Without an id it asks about the session's own target.
  if (request.params['targetId'] === undefined) return request.pass()
  ofTarget(request)
}

const attachToTarget: Rule = (request) => {
  const { session, params, tenant } = request
  const info = tenant.target(params['targetId'])
  if (info === null) return request.refuse(FAULTS.target)
  if (params['flatten'] !== true) session.nestedAttaches.push(info.targetId)
  request.pass({ flatten: true }, (result) => named(session, result))
}

const attachToBrowserTarget: Rule = (request) => {
  if (!request.session.isBrowser) return request.notFound()
  request.pass(null, (result) => named(request.session, result))
}

/** The reply names the session that the event before it has told of. */
function named(session: Session, result: Params): Params {
  const child = session.children.get(String(result['sessionId']))
  // Gone again before the reply: as good as the name of a session that is over.
  return { ...result, sessionId: child?.name ?? '' }
}

const detachFromTarget: Rule = (request) => {
  const child = childOf(request)
  if (child === null) {
    return request.refuse({ code: -32602, message: 'No session with given id' })
  }
  request.pass({ sessionId: child.upstream, targetId: undefined })
}

const sendMessageToTarget: Rule = (request) => {
  const child = childOf(request)
  const { message } = request.params
  if (child === null || !child.isNested || typeof message !== 'string') {
    return request.refuse({ code: -32602, message: 'No session with given id' })
  }
  request.answer({ result: {} })
  child.client.receiveNested(child, message)
}

function childOf({ session, params }: Request): Session | null {
  const { sessionId, targetId } = params
  for (const child of session.children.values()) {
    if (sessionId === undefined ? child.target === targetId : child.name === sessionId) return child
  }
  return null
}

const setAutoAttach: Rule = (request) => {
  const { session, params } = request
  const isOn = params['autoAttach'] === true
  const isFlat = params['flatten'] === true
  // The browser itself attaches only flat, and says so.
  if (session.isBrowser && isOn && !isFlat) return request.pass()
  const wait = params['waitForDebuggerOnStart'] === true
  session.autoAttach = isOn ? { wait, isNested: !isFlat } : null
  request.pass(isOn ? { flatten: true } : null)
}

const setDiscoverTargets: Rule = (request) => {
  if (request.params['discover'] !== true) request.session.discovered.clear()
  request.pass()
}

const createTarget: Rule = (request) => {
  const { params, tenant } = request
  const { browserContextId = tenant.home, url } = params
  if (!tenant.hasContext(browserContextId)) return request.refuse(FAULTS.context)
  if (isInternalUrl(url)) return request.deny("the page is the browser's own")
  if (tenant.pages().length >= CDP_LIMITS.targetsMax) {
    return request.refuse({ code: -32000, message: 'there are too many pages' })
  }
  request.pass({ browserContextId })
}

const createBrowserContext: Rule = (request) => {
  const { params, tenant, session } = request
  const { client } = session
  if (tenant.contexts.length >= CDP_LIMITS.contextsMax) {
    return request.refuse({ code: -32000, message: 'there are too many browser contexts' })
  }
  // Chrome would dispose of it at every lost connection; whether that is right is for us to say.
  const owner = params['disposeOnDetach'] === true ? client : null
  const wanted = { ...params, disposeOnDetach: false }
  const asked = { method: 'Target.createBrowserContext', params: wanted }
  client.host.link.askFor(client.share, asked, (reply) => {
    const { browserContextId } = reply.result ?? {}
    if (typeof browserContextId === 'string') {
      tenant.addContext(browserContextId, owner)
      // Nobody is left to use it.
      if (session.isOver) tenant.dispose(browserContextId)
    }
    request.answer(reply)
  })
}

const disposeBrowserContext: Rule = (request) => {
  const { params, tenant } = request
  const { browserContextId } = params
  if (!tenant.hasContext(browserContextId) || browserContextId === tenant.home) {
    return request.refuse(FAULTS.context)
  }
  request.pass(null, (result) => {
    tenant.dropContext(String(browserContextId))
    return result
  })
}

const getBrowserContexts: Rule = (request) => {
  const { home, contexts } = request.tenant
  const browserContextIds = contexts.filter((context) => context !== home)
  request.answer({ result: { browserContextIds, defaultBrowserContextId: home } })
}

export const TARGET_RULES: Readonly<Record<string, Rule>> = {
  'Target.getTargets': getTargets,
  'Target.getTargetInfo': getTargetInfo,
  'Target.attachToTarget': attachToTarget,
  'Target.attachToBrowserTarget': attachToBrowserTarget,
  'Target.detachFromTarget': detachFromTarget,
  'Target.sendMessageToTarget': sendMessageToTarget,
  'Target.setAutoAttach': setAutoAttach,
  'Target.autoAttachRelated': ofTarget,
  'Target.setDiscoverTargets': setDiscoverTargets,
  'Target.createTarget': createTarget,
  'Target.closeTarget': ofTarget,
  'Target.activateTarget': ofTarget,
  'Target.createBrowserContext': createBrowserContext,
  'Target.disposeBrowserContext': disposeBrowserContext,
  'Target.getBrowserContexts': getBrowserContexts,
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}
