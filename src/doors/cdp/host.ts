/** One browser that runs, as the door sees it: the line to it, its targets, and its tenants. */
import type { Browser } from '../../browsers/index.ts'
import { Link } from './link.ts'
import { Targets } from './targets.ts'
import type { Tenant } from './tenant.ts'

export class Host {
  readonly link: Link
  readonly targets = new Targets()
  readonly tenants = new Set<Tenant>()
  /** Tenants that are about to be. */
  expected = 0
  /** Told when its last tenant has left. */
  onIdle: () => void = () => undefined

  constructor(browser: Pick<Browser, 'send'>) {
    this.link = new Link(browser)
  }

  /** Asks the browser to tell of every target. */
  async greet(): Promise<void> {
    this.link.open(this.targets)
    await this.link.command('Target.setDiscoverTargets', { discover: true, filter: [{}] })
  }

  /** Ends a session that the browser made and nobody here wants. Others' in that target stay. */
  detach(parent: string, sessionId: string): void {
    this.link.tell('Target.detachFromTarget', { sessionId }, parent)
  }
}
