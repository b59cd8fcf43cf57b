/** The Target domain as a client has it: its own targets, contexts and sessions, and no others. */
import type { CdpSession } from './client.ts'
import { CDP_ERRORS, RUN, type CdpReply } from './protocol.ts'
import type { CdpRequest, CdpRule } from './request.ts'
import { isInternalUrl, targetInfoOf } from './targets.ts'

export const INTERNAL_PAGE = "the browser's own pages have access to the pages of all clients"

/** Messages inside messages, which Chrome has deprecated: see docs/decisions. */
const NOT_FLAT = { code: -32602, message: 'only flat sessions are supported: set flatten to true' }

const TOO_MANY_SESSIONS = { code: -32000, message: 'there are too many sessions' }

const ofTarget: CdpRule = (request) => {
  if (request.tenant.target(request.params['targetId']) === null) {
    return request.refuse(CDP_ERRORS.target)
  }
  request.pass()
}

const getTargets: CdpRule = (request) => {
  const { client } = request.session
  request.pass(null, ({ result, error }) => {
    if (error !== undefined) return { error }
    const { targetInfos } = result ?? {}
    const known = (Array.isArray(targetInfos) ? targetInfos : []).filter((value: unknown) => {
      const info = targetInfoOf(value)
      return info !== null && client.knows(info)
    })
    return { result: { ...result, targetInfos: known } }
  })
}

const getTargetInfo: CdpRule = (request) => {
  // Without an id it asks about the session's own target.
  const { targetId } = request.params
  if (targetId === undefined || request.session.client.isBrowser(targetId)) return request.pass()
  ofTarget(request)
}

const attachToTarget: CdpRule = (request) => {
  const { session, params, tenant } = request
  const { targetId, flatten } = params
  const isOwn = tenant.target(targetId) !== null || session.client.isBrowser(targetId)
  if (!isOwn) return request.refuse(CDP_ERRORS.target)
  if (flatten !== true) return request.refuse(NOT_FLAT)
  attach(request)
}

const attachToBrowserTarget: CdpRule = (request) => {
  if (request.session.isBrowser) attach(request)
  else request.notFound()
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
  const child = session.children.get(String(result['sessionId']))
  if (child !== undefined && child.id !== null)
    return { result: { ...result, sessionId: child.id } }
  if (session.client.isFull) return { error: TOO_MANY_SESSIONS }
  return { error: { code: -32000, message: 'the session has ended already' } }
}

const detachFromTarget: CdpRule = (request) => {
  const child = childOf(request)
  if (child === undefined) return request.refuse(CDP_ERRORS.child)
  // Chromium would let the target wait for a session that has ended.
  if (child.client.host.waiting.isLastHolder(child)) child.tell(RUN, {})
  request.pass({ sessionId: child.upstream, targetId: undefined })
}

function childOf({ session, params }: CdpRequest): CdpSession | undefined {
  const { sessionId, targetId } = params
  const children = [...session.children.values()].filter(({ id }) => id !== null)
  return children.find(({ id, target }) =>
    sessionId === undefined ? target === targetId : id === sessionId,
  )
}

const setAutoAttach: CdpRule = (request) => {
  const { session, params } = request
  const isOn = params['autoAttach'] === true
  if (isOn && params['flatten'] !== true) return request.refuse(NOT_FLAT)
  if (isOn && session.isBrowser) session.client.host.waiting.begin()
  request.pass()
}

const setDiscoverTargets: CdpRule = (request) => {
  if (request.params['discover'] !== true) request.session.discovered.clear()
  request.pass()
}

const createTarget: CdpRule = (request) => {
  const { params, tenant } = request
  const { browserContextId = tenant.home, url } = params
  if (!tenant.hasContext(browserContextId)) return request.refuse(CDP_ERRORS.context)
  if (!request.isAlone && isInternalUrl(url)) return request.deny(INTERNAL_PAGE)
  tenant.openPage({ ...params, browserContextId }, (reply) => request.answer(reply))
}

const createBrowserContext: CdpRule = (request) => {
  const { params, tenant, session } = request
  // Chrome would dispose of it at every lost connection, which the client may survive here.
  const owner = params['disposeOnDetach'] === true ? session.client : null
  tenant.openContext({ ...params, disposeOnDetach: false }, owner, (reply) => {
    const { browserContextId } = reply.result ?? {}
    const isUnused = session.isOver && typeof browserContextId === 'string'
    if (isUnused) tenant.dispose(browserContextId)
    request.answer(reply)
  })
}

const disposeBrowserContext: CdpRule = (request) => {
  const { params, tenant } = request
  const { browserContextId } = params
  if (!tenant.hasContext(browserContextId) || browserContextId === tenant.home) {
    return request.refuse(CDP_ERRORS.context)
  }
  tenant.closeContext(String(browserContextId), (reply) => request.answer(reply))
}

const getBrowserContexts: CdpRule = (request) => {
  const { home, contexts } = request.tenant
  const browserContextIds = contexts.filter((context) => context !== home)
  request.answer({ result: { browserContextIds, defaultBrowserContextId: home } })
}

export const TARGET_RULES: Readonly<Record<string, CdpRule>> = {
  'Target.getTargets': getTargets,
  'Target.getTargetInfo': getTargetInfo,
  'Target.attachToTarget': attachToTarget,
  'Target.attachToBrowserTarget': attachToBrowserTarget,
  'Target.detachFromTarget': detachFromTarget,
  'Target.sendMessageToTarget': (request) => request.notFound(),
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
