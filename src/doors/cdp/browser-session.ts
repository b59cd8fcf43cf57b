/** A browser session: a session of Holdfast, what it owns of a browser, and its clients. */
import type { SessionHandle } from '../../core/index.ts'
import type { Seat } from './seat.ts'
import type { BrowserTenant } from './tenant.ts'

export class BrowserSession {
  readonly session: SessionHandle
  readonly tenant: BrowserTenant
  readonly seats = new Set<Seat>()
  /** Clients that are being admitted. */
  expected = 0

  constructor(session: SessionHandle, tenant: BrowserTenant) {
    this.session = session
    this.tenant = tenant
  }

  /** How many clients count for one that wants to enter; a vacant seat is free for some. */
  clientsFor(mayReturn: boolean): number {
    const seats = [...this.seats].filter((seat) => mayReturn || !seat.isVacant)
    return seats.length + this.expected
  }
}
