/** The targets of one browser: pages, frames, workers, and the browser context each is in. */
import type { SessionListener } from './link.ts'
import type { CdpEvent } from './protocol.ts'

export type TargetInfo = {
  readonly targetId: string
  readonly type: string
  readonly title: string
  readonly url: string
  readonly browserContextId?: string
  readonly parentId?: string
  /** The page that opened it, with or without access to it. */
  readonly openerId?: string
  readonly canAccessOpener?: boolean
}

export function targetInfoOf(value: unknown): TargetInfo | null {
  if (typeof value !== 'object' || value === null) return null
  const { targetId, type } = value as Partial<TargetInfo>
  return typeof targetId === 'string' && typeof type === 'string' ? (value as TargetInfo) : null
}

/** Schemes of the browser's own pages, which have access to every page of the browser. */
const INTERNAL_URL = /^(view-source:)*(chrome|devtools|about:(?!(blank|srcdoc)($|[?#])))/i

/** Browsers drop spaces and control characters before and inside a scheme, so this does too. */
export function isInternalUrl(url: unknown): boolean {
  return typeof url === 'string' && INTERNAL_URL.test(url.replaceAll(/[\0-\x20]/g, ''))
}

/** Listens on the connection itself, where the browser reports every target. */
export class Targets implements SessionListener {
  readonly upstream = ''
  readonly id = null
  readonly unanswered = new Set<number>()
  readonly #infos = new Map<string, TargetInfo>()
  /** Targets that are being closed because there are too many: clients never see them. */
  readonly #unwanted = new Set<string>()
  /** The browser as a target, by the id of the session with it. */
  readonly #browsers = new Map<unknown, string>()

  onCreated: (info: TargetInfo) => void = () => undefined
  onDestroyed: (target: string) => void = () => undefined
  /** Called for each session of the door's own that the browser has ended. */
  onDetached: (session: string) => void = () => undefined

  get(target: string): TargetInfo | undefined {
    return this.#infos.get(target)
  }

  /** In the order in which they were created. */
  all(): readonly TargetInfo[] {
    return [...this.#infos.values()]
  }

  learn(info: TargetInfo): void {
    if (!this.isUnwanted(info.targetId)) this.#infos.set(info.targetId, info)
  }

  isUnwanted(target: string): boolean {
    return this.#unwanted.has(target)
  }

  /** The target will be closed, and no client gets an event. */
  disown(target: string): void {
    this.#infos.delete(target)
    this.#unwanted.add(target)
  }

  targetEvent({ method, params }: CdpEvent): void {
    const info = targetInfoOf(params['targetInfo'])
    const { sessionId } = params
    if (method === 'Target.targetDestroyed') this.#forget(String(params['targetId']))
    if (method === 'Target.detachedFromTarget') {
      this.#browsers.delete(sessionId)
      this.onDetached(String(sessionId))
    }
    if (info === null) return
    if (method === 'Target.attachedToTarget' && info.type === 'browser') {
      this.#browsers.set(sessionId, info.targetId)
    }
    if (method === 'Target.targetInfoChanged') this.learn(info)
    if (method !== 'Target.targetCreated') return
    this.learn(info)
    this.onCreated(info)
  }

  #forget(target: string): void {
    this.#infos.delete(target)
    this.#unwanted.delete(target)
    this.onDestroyed(target)
  }

  /** The id of the browser as a target, in a session with it. */
  browserOf(session: string): string | undefined {
    return this.#browsers.get(session)
  }
}
