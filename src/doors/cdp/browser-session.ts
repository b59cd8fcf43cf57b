/** A browser session: a session of Holdfast, what it owns of a browser, and its clients. */
import type { SessionHandle } from '../../core/index.ts'
import type { AttachedClient } from './attached-client.ts'
import type { BrowserTenant } from './tenant.ts'

export class BrowserSession {
  readonly session: SessionHandle
  readonly tenant: BrowserTenant
  readonly attachedClients = new Set<AttachedClient>()
  /** Clients that are being admitted. */
  expected = 0

  constructor(session: SessionHandle, tenant: BrowserTenant) {
    this.session = session
    this.tenant = tenant
  }

  /** How many clients count for one that enters: a stock client replaces a lost one. */
  clientsFor(mayReturn: boolean): number {
    const present = [...this.attachedClients].filter(({ isLost }) => mayReturn || !isLost)
    return present.length + this.expected
  }
}
