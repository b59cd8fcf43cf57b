/** The Target domain as a client has it: its own targets, contexts and sessions, and no others. */
import { FAULTS } from './command.ts'
import type { Reply } from './link.ts'
import { isInternalUrl, type Request, type Rule } from './request.ts'
import type { Session } from './session.ts'
import { tellOfTarget } from './target-events.ts'
import { targetInfoOf } from './targets.ts'
import { RUN } from './waiting-targets.ts'

const ofTarget: Rule = (request) => {
  if (request.tenant.target(request.params['targetId']) === null) {
    return request.refuse(FAULTS.target)
  }
  request.pass()
}

const getTargets: Rule = (request) => {
  const { client } = request.session
  request.pass(null, (result) => ({
    ...result,
    targetInfos: listOf(result['targetInfos']).filter((value) => {
      const info = targetInfoOf(value)
      return info !== null && client.knows(info)
    }),
  }))
}

const getTargetInfo: Rule = (request) => {
  // Without an id it asks about the session's own target.
  const { targetId } = request.params
  if (targetId === undefined || request.session.client.isBrowser(targetId)) return request.pass()
  ofTarget(request)
}

const attachToTarget: Rule = (request) => {
  const { session, params, tenant } = request
  const { targetId } = params
  const isOwn = tenant.target(targetId) !== null || session.client.isBrowser(targetId)
  if (!isOwn) return request.refuse(FAULTS.target)
  if (session.client.isFull) return request.refuse(TOO_MANY_SESSIONS)
  const attach = { target: String(targetId), isNested: params['flatten'] !== true }
  session.attaches.begin(attach)
  request.passThen({ flatten: true }, (reply) => {
    const { attaches, autoAttach } = session
    const waiting = attaches.end(attach, reply.result?.['sessionId'], autoAttach?.isNested)
    for (const event of waiting) tellOfTarget(session, event)
    return named(session, reply)
  })
}

const attachToBrowserTarget: Rule = (request) => {
  const { session } = request
  if (!session.isBrowser) return request.notFound()
  if (session.client.isFull) return request.refuse(TOO_MANY_SESSIONS)
  request.passThen(null, (reply) => named(session, reply))
}

const TOO_MANY_SESSIONS = { code: -32000, message: 'there are too many sessions' } as const

/** The reply names the session that the event before it has told of. */
function named(session: Session, reply: Reply): Reply {
  const { result } = reply
  if (result === undefined) return reply
  const child = session.children.get(String(result['sessionId']))
  if (child !== undefined) return { result: { ...result, sessionId: child.name } }
  if (session.client.isFull) return { error: TOO_MANY_SESSIONS }
  return { error: { code: -32000, message: 'the session has ended already' } }
}

const detachFromTarget: Rule = (request) => {
  const child = childOf(request)
  if (child === null) {
    return request.refuse({ code: -32602, message: 'No session with given id' })
  }
  // Chromium would let the target wait on, for a session that is no more.
  if (child.client.host.waiting.isLastHolder(child)) child.tell(RUN, {})
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
  if (isOn && session.isBrowser) session.client.host.waiting.begin()
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
  if (!request.isAlone && isInternalUrl(url)) return request.denyInternal()
  tenant.openPage({ ...params, browserContextId }, (reply) => request.answer(reply))
}

const createBrowserContext: Rule = (request) => {
  const { params, tenant, session } = request
  // Chrome would dispose of it at every lost connection; whether that is right is for us to say.
  const owner = params['disposeOnDetach'] === true ? session.client : null
  tenant.openContext({ ...params, disposeOnDetach: false }, owner, (reply) => {
    const { browserContextId } = reply.result ?? {}
    // Nobody is left to use it.
    const isLeft = session.isOver && typeof browserContextId === 'string'
    if (isLeft) tenant.dispose(browserContextId)
    request.answer(reply)
  })
}

const disposeBrowserContext: Rule = (request) => {
  const { params, tenant } = request
  const { browserContextId } = params
  if (!tenant.hasContext(browserContextId) || browserContextId === tenant.home) {
    return request.refuse(FAULTS.context)
  }
  tenant.closeContext(String(browserContextId), (reply) => request.answer(reply))
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
