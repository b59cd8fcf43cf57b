/** One browser that runs, as the door sees it: the line to it, its targets, and its tenants. */
import type { Browser } from '../../browsers/index.ts'
import type { Clock } from '../../core/index.ts'
import type { Session } from './session.ts'
import { CDP_LIMITS } from './limits.ts'
import { Link } from './link.ts'
import { Targets, type TargetInfo } from './targets.ts'
import type { Tenant } from './tenant.ts'

/** A session that the browser made for a client, in a target that is not the client's. */
type Stray = { readonly parent: string; readonly session: string; readonly info: TargetInfo }

export class Host {
  readonly link: Link
  readonly targets = new Targets()
  readonly tenants = new Set<Tenant>()
  /** Tenants that are about to be. */
  expected = 0
  /** Told when its last tenant has left. */
  onIdle: () => void = () => undefined
  readonly #clock: Clock
  /** Strays that wait until their target's owner has set it up, by target. */
  readonly #strays = new Map<string, (() => void)[]>()

  constructor(browser: Pick<Browser, 'send'>, clock: Clock) {
    this.link = new Link(browser)
    this.#clock = clock
    this.targets.onGone = (target) => this.ran(target)
  }

  /** Asks the browser to tell of every target, and who it is. */
  async greet(): Promise<void> {
    this.link.open(this.targets)
    await this.link.command('Target.setDiscoverTargets', { discover: true, filter: [{}] })
  }

  detach(parent: string, sessionId: string): void {
    this.link.tell('Target.detachFromTarget', { sessionId }, parent)
  }

  /**
   * A client that attaches to all new targets is attached to others' too, which it never hears of.
   * If the owner has yet to set the target up, leaving now would let it run too early.
   */
  letGo({ parent, session, info }: Stray): void {
    const leave = (): void => this.detach(parent, session)
    if (!this.#isAwaited(info)) return leave()
    const waiting = this.#strays.get(info.targetId) ?? []
    if (waiting.length === 0) {
      this.#strays.set(info.targetId, waiting)
      this.#clock.after(CDP_LIMITS.setUpMs, () => this.ran(info.targetId))
    }
    waiting.push(leave)
  }

  /** The target's owner has let it run, or it is gone. */
  ran(target: string): void {
    const waiting = this.#strays.get(target) ?? []
    this.#strays.delete(target)
    for (const leave of waiting) leave()
  }

  #isAwaited(info: TargetInfo): boolean {
    const owner = [...this.tenants].find((tenant) => tenant.owns(info))
    if (owner === undefined) return false
    return [...owner.clients].some(({ root, isAway }) => !isAway && waits(root))
  }
}

function waits(session: Session): boolean {
  if (session.autoAttach?.wait === true && session.isBrowser) return true
  return [...session.children.values()].some((child) => child.isBrowser && waits(child))
}
