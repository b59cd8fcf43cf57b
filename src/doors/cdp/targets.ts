/** The targets of one browser: pages, frames, workers, and the browser context each is in. */
import type { BrowserEvent, Correspondent } from './link.ts'

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

/** Listens on the connection itself, where the browser tells of every target. */
export class Targets implements Correspondent {
  readonly upstream = ''
  readonly id = null
  readonly #infos = new Map<string, TargetInfo>()
  /** Those that are being closed because there are too many: for clients they never were. */
  readonly #unwanted = new Set<string>()
  /** The browser as a target, by the session in which somebody speaks with it. */
  readonly #browsers = new Map<unknown, string>()

  /** Told of each that is new. */
  onCreated: (info: TargetInfo) => void = () => undefined
  onDestroyed: (target: string) => void = () => undefined
  /** Told of each session of the door's own that the browser has ended. */
  onDetached: (session: string) => void = () => undefined

  get(target: string): TargetInfo | undefined {
    return this.#infos.get(target)
  }

  /** In the order in which they came. */
  all(): readonly TargetInfo[] {
    return [...this.#infos.values()]
  }

  learn(info: TargetInfo): void {
    if (!this.isUnwanted(info.targetId)) this.#infos.set(info.targetId, info)
  }

  isUnwanted(target: string): boolean {
    return this.#unwanted.has(target)
  }

  /** It is to be closed, and nobody is to hear of it. */
  disown(target: string): void {
    this.#infos.delete(target)
    this.#unwanted.add(target)
  }

  targetEvent({ method, params }: BrowserEvent): void {
    const info = targetInfoOf(params['targetInfo'])
    if (method === 'Target.targetDestroyed') this.#forget(String(params['targetId']))
    const isDescribed = method === 'Target.targetCreated' || method === 'Target.targetInfoChanged'
    if (isDescribed && info !== null) this.learn(info)
    if (method === 'Target.targetCreated' && info !== null) this.onCreated(info)
    const { sessionId } = params
    if (method === 'Target.detachedFromTarget') {
      this.#browsers.delete(sessionId)
      this.onDetached(String(sessionId))
    }
    if (method !== 'Target.attachedToTarget' || info?.type !== 'browser') return
    this.#browsers.set(sessionId, info.targetId)
  }

  #forget(target: string): void {
    this.#infos.delete(target)
    this.#unwanted.delete(target)
    this.onDestroyed(target)
  }

  /** What the browser itself is called as a target, for who speaks with it in this session. */
  browserOf(session: string): string | undefined {
    return this.#browsers.get(session)
  }

  pass(): void {
    // Nobody is behind it.
  }

  lose(): void {
    // What it learns of a target later is all that counts.
  }

  detached(): void {
    // The connection itself is no session.
  }

  settled(): void {
    // The door's own commands are not counted.
  }
}
