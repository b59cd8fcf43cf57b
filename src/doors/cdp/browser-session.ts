/** A browser session, and what the browsers hold now, for people, metrics and tests. */
import { memoryOf } from '../../browsers/index.ts'
import type { SessionHandle } from '../../core/index.ts'
import type { AttachedClient } from './attached-client.ts'
import type { BrowserHost } from './host.ts'
import type { BrowserTenant } from './tenant.ts'

/** A session of Holdfast, what it owns of a browser, and its clients. */
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

export type CdpCounts = Readonly<ReturnType<typeof countsOf>>

export function countsOf(hosts: readonly BrowserHost[], sessions: readonly BrowserSession[]) {
  return {
    browsers: hosts.length,
    sessions: sessions.length,
    clients: sum(sessions, clientsOf),
    /** Sessions of clients with targets. */
    attached: sum(hosts, ({ link }) => link.sessions),
    /** Commands without a reply. */
    waiting: sum(hosts, ({ link }) => link.unanswered),
    pages: sum(hosts, pagesOf),
  }
}

export type BrowserView = Readonly<Awaited<ReturnType<typeof browserView>>>

/** One browser that runs. */
export async function browserView(host: BrowserHost, sessions: readonly BrowserSession[]) {
  const { facts, isSilent, browser } = host
  const { name, isOwn, startedAt } = facts
  const own = isOwn ? sessions[0]?.session : undefined
  return {
    name,
    /** The session that it belongs to; null: it is shared. */
    session: own?.id ?? null,
    key: own?.key ?? null,
    /** `silent`: it was pinged and has not answered yet. */
    health: isSilent ? ('silent' as const) : ('good' as const),
    /** Null: Holdfast has not started it. */
    pid: browser.pid ?? null,
    sessions: sessions.length,
    clients: sum(sessions, clientsOf),
    pages: pagesOf(host),
    startedAt,
    /** Of all its processes together; null where that is not known. */
    memoryBytes: await memoryOf(browser),
  }
}

function sum<Item>(items: readonly Item[], count: (item: Item) => number): number {
  return items.reduce((total, item) => total + count(item), 0)
}

function clientsOf({ tenant }: BrowserSession): number {
  return tenant.clients.size
}

function pagesOf({ targets }: BrowserHost): number {
  return targets.all().filter(({ type }) => type === 'page').length
}
