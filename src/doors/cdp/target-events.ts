/**
 * Events about targets and sessions: the browser reports all of them to every client, and each
 * client gets events of its own only.
 */
import type { CdpSession } from './client.ts'
import type { CdpEvent, Params } from './protocol.ts'
import { targetInfoOf, type TargetInfo } from './targets.ts'

export function takeTargetEvent(session: CdpSession, { method, params }: CdpEvent): void {
  switch (method) {
    case 'Target.attachedToTarget':
      return attached(session, params)
    case 'Target.detachedFromTarget':
      return detached(session, params)
    case 'Target.targetCreated':
    case 'Target.targetInfoChanged':
      return described(session, method, params)
    case 'Target.targetDestroyed':
    case 'Target.targetCrashed':
      return gone(session, method, params)
    default:
    // An unknown event may be about other clients' targets.
  }
}

function attached(session: CdpSession, params: Params): void {
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
  const child = client.openSession(session, upstream, isBrowser ? null : info.targetId)
  if (waits) host.waiting.hold(child, session.target)
  session.emit('Target.attachedToTarget', { ...params, sessionId: child.id })
  if (waits && client.options.outlet.mayReturn) child.blocked.noteWaiting()
}

/** Ends a session that the client may not have; its target runs first, if it waits for that. */
function hide(session: CdpSession, upstream: string, waiting: TargetInfo | null): void {
  const { client } = session
  // A page that a client asked for does not wait.
  const isAskedFor = waiting?.type === 'page' && waiting.openerId === undefined
  if (waiting === null || isAskedFor) return client.host.link.detach(session.upstream, upstream)
  client.host.waiting.hide(client.hideSession(session, upstream, waiting.targetId))
}

function detached(session: CdpSession, params: Params): void {
  const child = session.children.get(String(params['sessionId']))
  if (child === undefined) return
  child.end()
  if (child.id !== null) {
    session.emit('Target.detachedFromTarget', { ...params, sessionId: child.id })
  }
}

function described(session: CdpSession, method: string, params: Params): void {
  const info = targetInfoOf(params['targetInfo'])
  if (info === null) return
  const { client, discovered } = session
  if (!client.knows(info)) return
  // Clients rely on the order: a target is created before it changes.
  if (method === 'Target.targetCreated') {
    if (discovered.has(info.targetId)) return
    discovered.add(info.targetId)
  } else if (!discovered.has(info.targetId)) return
  session.emit(method, params)
}

function gone(session: CdpSession, method: string, params: Params): void {
  const target = String(params['targetId'])
  if (!session.discovered.has(target)) return
  if (method === 'Target.targetDestroyed') session.discovered.delete(target)
  session.emit(method, params)
}
