/**
 * One page of a backend that has only one session for it, shown as a page with any number: each
 * with its own switched-on domains, and events of those only.
 */
import { replaced, type Answer, type Fields, type Line, type LineEvent } from './line.ts'

/** A session that this page is shown in, by the name it was given out under. */
type View = { readonly name: string; readonly parent: string; readonly domains: Set<string> }

export type TargetOptions = {
  /** The name it is shown under, and the backend's own. */
  readonly id: string
  readonly realId: string
  readonly session: string
  readonly context: string
  readonly line: Line
  readonly tell: (session: string, message: Fields) => void
}

/** Switched on without being asked to. */
const ALWAYS: ReadonlySet<string> = new Set(['Inspector'])

export class RepairedTarget {
  readonly id: string
  readonly context: string
  readonly session: string
  /** The backend's own. */
  readonly realId: string
  readonly views = new Map<string, View>()
  readonly line: Line
  readonly #tell: (session: string, message: Fields) => void
  /** The scripts' worlds that are there now: told to every session that asks for them. */
  readonly #worlds = new Map<unknown, Fields>()
  #url = ''

  constructor({ id, realId, session, context, line, tell }: TargetOptions) {
    this.id = id
    this.realId = realId
    this.session = session
    this.context = context
    this.line = line
    this.#tell = tell
  }

  get info(): Fields {
    return {
      targetId: this.id,
      type: 'page',
      title: '',
      url: this.#url,
      attached: this.views.size > 0,
      canAccessOpener: false,
      browserContextId: this.context,
    }
  }

  show(name: string, parent: string): void {
    this.views.set(name, { name, parent, domains: new Set() })
  }

  /** A command in one of its sessions. */
  take(name: string, method: string, params: Fields, answer: (answer: Answer) => void): void {
    const view = this.views.get(name)
    if (view === undefined) return
    const [domain = '', action] = method.split('.')
    if (action === 'enable') return this.#enable(view, domain, params, answer)
    if (action === 'disable') return this.#disable(view, domain, answer)
    if (method === 'DOM.getDocument') view.domains.add(domain)
    this.#ask(method, params, answer)
  }

  #ask(method: string, params: Fields, answer: (answer: Answer) => void): void {
    const real = replaced(params, this.id, this.realId)
    const read = (reply: Answer): void => answer(replaced(reply, this.realId, this.id))
    this.line.ask(method, real, read, this.session)
  }

  /** The first goes up; who comes later is told what the first was told. */
  #enable(view: View, domain: string, params: Fields, answer: (answer: Answer) => void): void {
    const isOn = [...this.views.values()].some(({ domains }) => domains.has(domain))
    view.domains.add(domain)
    if (!isOn) return this.#ask(`${domain}.enable`, params, answer)
    if (domain === 'Runtime') {
      for (const world of this.#worlds.values()) {
        this.#tell(view.name, { method: 'Runtime.executionContextCreated', params: world })
      }
    }
    answer({ result: {} })
  }

  #disable(view: View, domain: string, answer: (answer: Answer) => void): void {
    view.domains.delete(domain)
    const isOn = [...this.views.values()].some(({ domains }) => domains.has(domain))
    if (isOn) return answer({ result: {} })
    this.#ask(`${domain}.disable`, {}, answer)
  }

  /** Who leaves a domain as the last one switches it off. */
  hide(name: string): void {
    const view = this.views.get(name)
    if (view === undefined) return
    this.views.delete(name)
    for (const domain of view.domains) {
      const isOn = [...this.views.values()].some(({ domains }) => domains.has(domain))
      if (!isOn) this.#ask(`${domain}.disable`, {}, () => undefined)
    }
  }

  event({ method, params }: LineEvent): void {
    const shown = replaced(params, this.realId, this.id)
    this.#note(method, shown)
    const [domain = ''] = method.split('.')
    for (const { name, domains } of [...this.views.values()]) {
      if (ALWAYS.has(domain) || domains.has(domain)) this.#tell(name, { method, params: shown })
    }
  }

  #note(method: string, params: Fields): void {
    if (method === 'Runtime.executionContextCreated') {
      this.#worlds.set((params['context'] as Fields | undefined)?.['id'], params)
    }
    if (method === 'Runtime.executionContextDestroyed') {
      this.#worlds.delete(params['executionContextId'])
    }
    if (method === 'Runtime.executionContextsCleared') this.#worlds.clear()
    const frame = params['frame'] as Fields | undefined
    if (method === 'Page.frameNavigated' && frame?.['id'] === this.id) {
      this.#url = String(frame['url'])
    }
  }
}
