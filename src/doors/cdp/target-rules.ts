/** The Target domain as a client has it: its own targets, contexts and sessions, and no others. */
import type { CdpSession } from './client.ts'
import {
  CDP_ERRORS,
  RUN,
  type CdpError,
  type CdpEvent,
  type CdpReply,
  type Params,
} from './protocol.ts'
import { isInternalUrl, targetInfoOf, type TargetInfo } from './targets.ts'
import { CdpCommand } from './command.ts'
import type { BrowserTenant } from './tenant.ts'

export const INTERNAL_PAGE = "the browser's own pages have access to the pages of all clients"

/** Messages inside messages, which Chrome has deprecated: see docs/decisions. */
const NOT_FLAT = { code: -32602, message: 'only flat sessions are supported: set flatten to true' }

const TOO_MANY_SESSIONS = { code: -32000, message: 'there are too many sessions' }

export type CdpRule = (request: CdpRequest) => void

/** A client's command that a rule forwards, changes, answers or refuses. */
export class CdpRequest {
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
    const reason = `${why}; ${alternative}see --own-browsers`
    const message = `${this.command.method} is not allowed here: ${reason}`
    this.refuse({ code: -32000, message })
  }
}

const ofTarget: CdpRule = (request) => {
  if (request.tenant.target(request.params['targetId']) !== null) request.pass()
  else request.refuse(CDP_ERRORS.target)
}

export const TARGET_RULES: Readonly<Record<string, CdpRule>> = {
  'Target.autoAttachRelated': ofTarget,
  'Target.closeTarget': ofTarget,
  'Target.activateTarget': ofTarget,
  'Target.sendMessageToTarget': (request) => request.notFound(),
  'Target.getTargets': (request) => {
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
 * Takes an event about targets or sessions: the browser reports all of them to every client, and
 * each client gets events of its own only. An unknown event may be about other clients' targets.
 */
export function takeTargetEvent(session: CdpSession, event: CdpEvent): void {
  if (Object.hasOwn(TARGET_EVENTS, event.method)) TARGET_EVENTS[event.method]?.(session, event)
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
    const info = ownInfo(session, event)
    if (info === null || session.discovered.has(info.targetId)) return
    session.discovered.add(info.targetId)
    session.emit(event.method, event.params)
  },
  'Target.targetInfoChanged': (session, event) => {
    const info = ownInfo(session, event)
    if (info !== null) tellDiscovered(session, event, info.targetId)
  },
  'Target.targetCrashed': (session, event) => {
    tellDiscovered(session, event, String(event.params['targetId']))
  },
  'Target.targetDestroyed': (session, event) => {
    const target = String(event.params['targetId'])
    tellDiscovered(session, event, target)
    session.discovered.delete(target)
  },
}

function tellDiscovered(session: CdpSession, { method, params }: CdpEvent, target: string): void {
  if (session.discovered.has(target)) session.emit(method, params)
}

/** The target of an event, if the client may know of it. */
function ownInfo({ client }: CdpSession, { params }: CdpEvent): TargetInfo | null {
  const info = targetInfoOf(params['targetInfo'])
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
