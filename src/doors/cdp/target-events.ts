/**
 * Events about targets and sessions: the browser tells every client of all of them, and each client
 * hears of its own only.
 */
import type { Params } from './command.ts'
import type { BrowserEvent } from './link.ts'
import type { Session } from './session.ts'
import { targetInfoOf } from './targets.ts'

export function takeTargetEvent(session: Session, event: BrowserEvent): void {
  // At once, also if the client is told of it later: the target may be gone by then.
  if (event.method === 'Target.attachedToTarget') note(session, event.params)
  tellOfTarget(session, event)
}

/** Tells the client, or waits for the reply that says what the event means to it. */
export function tellOfTarget(session: Session, event: BrowserEvent): void {
  const { method, params } = event
  if (session.attaches.isWaiting) return session.attaches.wait(event)
  switch (method) {
    case 'Target.attachedToTarget':
      return attached(session, event)
    case 'Target.detachedFromTarget':
      return detached(session, params)
    case 'Target.targetCreated':
    case 'Target.targetInfoChanged':
      return described(session, method, params)
    case 'Target.targetDestroyed':
    case 'Target.targetCrashed':
      return gone(session, method, params)
    default:
    // What is not known here may tell of others' targets.
  }
}

function note(session: Session, { sessionId, targetInfo, waitingForDebugger }: Params): void {
  const info = targetInfoOf(targetInfo)
  if (info === null) return
  const { tenant, host } = session.client
  host.targets.learn(info)
  const waits = waitingForDebugger === true && tenant.owns(info)
  if (waits) host.waiting.hold(session, String(sessionId), info)
}

/** Ends a session that the client may not have. Its target runs before, if it waits for that. */
function hide(session: Session, upstream: string, params: Params): void {
  const info = targetInfoOf(params['targetInfo'])
  const { host } = session.client
  // A page that a client asked for does not wait.
  const isAskedFor = info?.type === 'page' && info.openerId === undefined
  const waits = params['waitingForDebugger'] === true && !isAskedFor
  if (waits && info !== null) host.waiting.hide(session, upstream, info)
  else host.detach(session.upstream, upstream)
}

function attached(session: Session, event: BrowserEvent): void {
  const { params } = event
  const { client } = session
  const upstream = String(params['sessionId'])
  const info = targetInfoOf(params['targetInfo'])
  if (info === null) return
  const isBrowser = info.type === 'browser'
  // Who attaches to all new targets is attached to others' too, and never hears of it.
  const isForeign = !isBrowser && !client.tenant.owns(info)
  if (isForeign) return hide(session, upstream, params)
  const isNested = session.attaches.isNested(upstream, info.targetId, session.autoAttach?.isNested)
  if (isNested === null) return session.attaches.wait(event)
  if (client.isFull) return hide(session, upstream, params)
  const target = isBrowser ? null : info.targetId
  const child = client.openSession({ upstream, parent: session, target, isNested })
  session.emit('Target.attachedToTarget', { ...params, sessionId: child.name })
  if (params['waitingForDebugger'] === true && client.mayReturn) child.blocked.noteWaiting()
}

function detached(session: Session, params: Params): void {
  const child = session.children.get(String(params['sessionId']))
  if (child === undefined) return session.client.host.waiting.detached(String(params['sessionId']))
  child.end()
  session.emit('Target.detachedFromTarget', { ...params, sessionId: child.name })
}

function described(session: Session, method: string, params: Params): void {
  const info = targetInfoOf(params['targetInfo'])
  if (info === null) return
  const { client, discovered } = session
  if (!client.knows(info)) return
  // Told of in the order that clients rely on: first that it is there, then what changed.
  if (method === 'Target.targetCreated') {
    if (discovered.has(info.targetId)) return
    discovered.add(info.targetId)
  } else if (!discovered.has(info.targetId)) return
  session.emit(method, params)
}

function gone(session: Session, method: string, params: Params): void {
  const target = String(params['targetId'])
  if (!session.discovered.has(target)) return
  if (method === 'Target.targetDestroyed') session.discovered.delete(target)
  session.emit(method, params)
}
