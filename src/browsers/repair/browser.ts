/**
 * A backend that hands out one session again and again, as Lightpanda did before its #2077, shown
 * as a browser that follows the protocol: any number of sessions, of contexts and of clients.
 *
 * 1. The backend sees one session for each page; every name that is given out is made here.
 * 2. A reply is paired by the id that its command went up with, whatever it is stamped with.
 * 3. Every browser context is a connection of its own, since such a backend has one for each.
 */
import { randomBytes } from 'node:crypto'
import type { BrowserConnection, ConnectionEvents } from '../connection.ts'
import { Line, type Answer, type Fields, type LineEvent, type OpenConnection } from './line.ts'
import { RepairedTarget } from './target.ts'

type Command = {
  readonly id: number
  readonly method: string
  readonly params: Fields
  readonly session: string
}

/** A session with the browser itself, and what it wants to be told of. */
type BrowserView = { discovers: boolean; attaches: boolean }

type Context = { readonly realId: string; readonly line: Line }

const METHODS: Readonly<Record<string, (browser: RepairedBrowser, command: Command) => void>> = {
  'Target.setDiscoverTargets': (browser, command) => browser.discover(command),
  'Target.setAutoAttach': (browser, command) => browser.autoAttach(command),
  'Target.attachToBrowserTarget': (browser, command) => browser.attachToBrowser(command),
  'Target.attachToTarget': (browser, command) => browser.attachToTarget(command),
  'Target.detachFromTarget': (browser, command) => browser.detachFromTarget(command),
  'Target.createBrowserContext': (browser, command) => void browser.createContext(command),
  'Target.disposeBrowserContext': (browser, command) => browser.disposeContext(command),
  'Target.createTarget': (browser, command) => browser.createTarget(command),
  'Target.closeTarget': (browser, command) => browser.closeTarget(command),
  'Target.activateTarget': (browser, command) => browser.answer(command, { result: {} }),
  'Target.getTargetInfo': (browser, command) => browser.getTargetInfo(command),
  'Target.getTargets': (browser, command) => browser.getTargets(command),
}

/** As long as Chrome's, unlike those of such a backend. */
function newId(): string {
  return randomBytes(16).toString('hex').toUpperCase()
}

export class RepairedBrowser implements BrowserConnection {
  readonly #connect: OpenConnection
  readonly #events: ConnectionEvents
  readonly #control: Line
  readonly #browsers = new Map<string, BrowserView>([['', { discovers: false, attaches: false }]])
  readonly #contexts = new Map<string, Context>()
  readonly #targets = new Map<string, RepairedTarget>()
  #isClosed = false

  static async open(connect: OpenConnection, events: ConnectionEvents): Promise<RepairedBrowser> {
    return new RepairedBrowser(connect, events, await Line.open(connect))
  }

  constructor(connect: OpenConnection, events: ConnectionEvents, control: Line) {
    this.#connect = connect
    this.#events = events
    this.#control = control
    control.onClosed = (reason) => this.#closed(reason)
  }

  send(...parts: readonly (string | Uint8Array)[]): void {
    const text = parts.map((part) => (typeof part === 'string' ? part : Buffer.from(part))).join('')
    const {
      id,
      method,
      params = {},
      sessionId = '',
    } = JSON.parse(text) as Partial<Command> & {
      readonly sessionId?: string
    }
    if (id === undefined || method === undefined) return
    this.#take({ id, method, params, session: sessionId })
  }

  close(): Promise<void> {
    this.#closed('closed')
    return Promise.resolve()
  }

  #closed(reason: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#control.close()
    for (const { line } of this.#contexts.values()) line.close()
    this.#events.closed(reason)
  }

  #take(command: Command): void {
    const { method, params, session } = command
    const target = this.#targetOf(session)
    if (target === undefined && !this.#browsers.has(session)) {
      const error = { code: -32_001, message: 'Session with given id not found.' }
      return this.answer({ ...command, session: '' }, { error })
    }
    const rule = Object.hasOwn(METHODS, method) ? METHODS[method] : undefined
    if (rule !== undefined) return rule(this, command)
    const answer = (reply: Answer): void => this.answer(command, reply)
    if (target !== undefined) return target.take(session, method, params, answer)
    this.#pass(command, answer)
  }

  /** To the connection of the context that it is about, or to the one for everything else. */
  #pass({ method, params }: Command, answer: (answer: Answer) => void): void {
    const { browserContextId } = params
    const context = this.#contexts.get(String(browserContextId))
    if (context === undefined) return this.#control.ask(method, params, answer)
    const real = { ...params, browserContextId: context.realId }
    context.line.ask(method, real, answer)
  }

  #targetOf(session: string): RepairedTarget | undefined {
    return [...this.#targets.values()].find(({ views }) => views.has(session))
  }

  answer({ id, session }: Command, { result, error }: Answer): void {
    this.#tell(session, error === undefined ? { id, result: result ?? {} } : { id, error })
  }

  #tell(session: string, message: Fields): void {
    if (this.#isClosed) return
    const stamped = session === '' ? message : { ...message, sessionId: session }
    this.#events.message(Buffer.from(JSON.stringify(stamped)))
  }

  #emit(session: string, method: string, params: Fields): void {
    this.#tell(session, { method, params })
  }

  discover(command: Command): void {
    const view = this.#browsers.get(command.session)
    if (view !== undefined) view.discovers = command.params['discover'] === true
    if (view?.discovers === true) {
      for (const { info: targetInfo } of this.#targets.values()) {
        this.#emit(command.session, 'Target.targetCreated', { targetInfo })
      }
    }
    this.answer(command, { result: {} })
  }

  /** A page has no workers or frames of its own to attach to. */
  autoAttach(command: Command): void {
    const view = this.#browsers.get(command.session)
    const isNew = view?.attaches === false
    if (view !== undefined) view.attaches = command.params['autoAttach'] === true
    if (view?.attaches === true && isNew) {
      for (const target of this.#targets.values()) this.#show(target, command.session)
    }
    this.answer(command, { result: {} })
  }

  attachToBrowser(command: Command): void {
    const sessionId = newId()
    this.#browsers.set(sessionId, { discovers: false, attaches: false })
    const targetInfo = { targetId: newId(), type: 'browser', title: '', url: '', attached: true }
    const params = { sessionId, targetInfo, waitingForDebugger: false }
    this.#emit(command.session, 'Target.attachedToTarget', params)
    this.answer(command, { result: { sessionId } })
  }

  attachToTarget(command: Command): void {
    const target = this.#targets.get(String(command.params['targetId']))
    if (target === undefined) return this.#noTarget(command)
    this.answer(command, { result: { sessionId: this.#show(target, command.session) } })
  }

  #show(target: RepairedTarget, parent: string): string {
    const sessionId = newId()
    target.show(sessionId, parent)
    const params = { sessionId, targetInfo: target.info, waitingForDebugger: false }
    this.#emit(parent, 'Target.attachedToTarget', params)
    return sessionId
  }

  #noTarget(command: Command): void {
    const error = { code: -32_602, message: 'No target with given id found' }
    this.answer(command, { error })
  }

  detachFromTarget(command: Command): void {
    const sessionId = String(command.params['sessionId'])
    const target = this.#targetOf(sessionId)
    if (target !== undefined) {
      target.hide(sessionId)
      const params = { sessionId, targetId: target.id }
      this.#emit(command.session, 'Target.detachedFromTarget', params)
    }
    this.#endBrowserSession(sessionId)
    this.answer(command, { result: {} })
  }

  /** With a session all that it attached ends. */
  #endBrowserSession(session: string): void {
    this.#browsers.delete(session)
    for (const target of this.#targets.values()) {
      for (const { name, parent } of [...target.views.values()]) {
        if (parent === session) target.hide(name)
      }
    }
  }

  async createContext(command: Command): Promise<void> {
    try {
      const line = await Line.open(this.#connect)
      const { browserContextId } = await line.command('Target.createBrowserContext')
      const id = newId()
      this.#contexts.set(id, { line, realId: String(browserContextId) })
      line.onEvent = (event) => this.#event(line, event)
      line.onClosed = () => this.#dropContext(id)
      if (this.#isClosed) line.close()
      this.answer(command, { result: { browserContextId: id } })
    } catch (error) {
      const { message } = error as Error
      this.answer(command, { error: { code: -32_000, message } })
    }
  }

  disposeContext(command: Command): void {
    const id = String(command.params['browserContextId'])
    const context = this.#contexts.get(id)
    this.#dropContext(id)
    context?.line.close()
    this.answer(command, { result: {} })
  }

  #dropContext(id: string): void {
    if (!this.#contexts.delete(id)) return
    for (const target of [...this.#targets.values()]) {
      if (target.context === id) this.#destroy(target)
    }
  }

  createTarget(command: Command): void {
    const context = String(command.params['browserContextId'])
    const known = this.#contexts.get(context)
    if (known === undefined) {
      const error = { code: -32_602, message: 'Failed to find browser context with given id' }
      return this.answer(command, { error })
    }
    const { line, realId: browserContextId } = known
    const params = { ...command.params, browserContextId }
    line.ask('Target.createTarget', params, ({ result, error }) => {
      if (error !== undefined) return this.answer(command, { error })
      const targetId = String(result?.['targetId'])
      line.ask('Target.attachToTarget', { targetId, flatten: true }, (reply) => {
        if (reply.error !== undefined) return this.answer(command, reply)
        const session = String(reply.result?.['sessionId'])
        const target = this.#add({ line, context, realId: targetId, session })
        this.answer(command, { result: { targetId: target.id } })
      })
    })
  }

  #add(parts: { line: Line; context: string; realId: string; session: string }): RepairedTarget {
    const tell = (session: string, message: Fields): void => this.#tell(session, message)
    const target = new RepairedTarget({ ...parts, id: newId(), tell })
    this.#targets.set(target.id, target)
    for (const [session, { discovers, attaches }] of [...this.#browsers]) {
      if (discovers) this.#emit(session, 'Target.targetCreated', { targetInfo: target.info })
      if (attaches) this.#show(target, session)
    }
    return target
  }

  closeTarget(command: Command): void {
    const target = this.#targets.get(String(command.params['targetId']))
    if (target === undefined) return this.#noTarget(command)
    const params = { targetId: target.realId }
    target.line.ask('Target.closeTarget', params, (reply) => {
      this.answer(command, reply)
      if (reply.error === undefined) this.#destroy(target)
    })
  }

  #destroy(target: RepairedTarget): void {
    if (!this.#targets.delete(target.id)) return
    for (const { name: sessionId, parent } of target.views.values()) {
      this.#emit(parent, 'Target.detachedFromTarget', { sessionId, targetId: target.id })
    }
    for (const [session, { discovers }] of this.#browsers) {
      if (discovers) this.#emit(session, 'Target.targetDestroyed', { targetId: target.id })
    }
  }

  getTargets(command: Command): void {
    const targetInfos = [...this.#targets.values()].map(({ info }) => info)
    this.answer(command, { result: { targetInfos } })
  }

  getTargetInfo(command: Command): void {
    const { targetId } = command.params
    const own = this.#targetOf(command.session)
    const target = typeof targetId === 'string' ? this.#targets.get(targetId) : own
    if (target !== undefined) return this.answer(command, { result: { targetInfo: target.info } })
    if (targetId !== undefined) return this.#noTarget(command)
    const targetInfo = { targetId: '', type: 'browser', title: '', url: '', attached: true }
    this.answer(command, { result: { targetInfo } })
  }

  /** Whatever session it is stamped with: the connection has one page. */
  #event(line: Line, event: LineEvent): void {
    const targets = [...this.#targets.values()].filter((target) => target.line === line)
    const target = targets.find(({ session }) => session === event.session) ?? targets[0]
    if (target === undefined) return
    const isGone =
      event.method === 'Target.targetDestroyed' ||
      event.method === 'Target.detachedFromTarget' ||
      event.method === 'Inspector.targetCrashed'
    if (isGone) return this.#destroy(target)
    if (!event.method.startsWith('Target.')) target.event(event)
  }
}
