/** What the browsers hold now, in numbers and one by one: for people, metrics and tests. */
import type { Host } from './host.ts'

/** Browsers that run, browser sessions, clients, their sessions with targets, commands, pages. */
export type CdpCounts = Readonly<
  Record<'browsers' | 'sessions' | 'clients' | 'attached' | 'waiting' | 'pages', number>
>

/** One browser that runs. */
export type BrowserView = {
  readonly name: string
  /** Whose it is alone; null: it is shared. */
  readonly session: string | null
  readonly key: string | null
  /** `silent`: it was asked for a sign of life and has not given it yet. */
  readonly health: 'good' | 'silent'
  /** Null: somebody else runs it. */
  readonly pid: number | null
  readonly sessions: number
  readonly clients: number
  readonly pages: number
  readonly startedAt: number
  /** Of all its processes together; null where that is not known. */
  readonly memoryBytes: number | null
}

export function countsOf(hosts: readonly Host[]): CdpCounts {
  const sum = (count: (host: Host) => number): number =>
    hosts.reduce((total, host) => total + count(host), 0)
  return {
    browsers: hosts.length,
    sessions: sum(({ tenants }) => tenants.size),
    clients: sum(clientsOf),
    // Without the line's own, which listens for targets.
    attached: sum(({ link }) => link.sessions - 1),
    waiting: sum(({ link }) => link.waiting),
    pages: sum(pagesOf),
  }
}

export async function browserView(host: Host): Promise<BrowserView> {
  const { name, isOwn, startedAt, isSilent, tenants, browser } = host
  const [tenant] = isOwn ? tenants : []
  return {
    name,
    session: tenant?.session.id ?? null,
    key: tenant?.session.key ?? null,
    health: isSilent ? 'silent' : 'good',
    pid: browser.pid,
    sessions: tenants.size,
    clients: clientsOf(host),
    pages: pagesOf(host),
    startedAt,
    memoryBytes: await browser.memoryBytes(),
  }
}

function clientsOf({ tenants }: Host): number {
  return [...tenants].reduce((sum, { clients }) => sum + clients.size, 0)
}

function pagesOf({ targets }: Host): number {
  return targets.all().filter(({ type }) => type === 'page').length
}
