/** What the browsers hold now, in numbers and one by one: for people, metrics and tests. */
import { memoryOf } from '../../browsers/index.ts'
import type { BrowserSession } from './browser-session.ts'
import type { BrowserHost } from './host.ts'

/** Browsers that run, browser sessions, clients, their sessions with targets, commands, pages. */
export type CdpCounts = Readonly<
  Record<'browsers' | 'sessions' | 'clients' | 'attached' | 'waiting' | 'pages', number>
>

/** One browser that runs. */
export type BrowserView = {
  readonly name: string
  /** The session that it belongs to; null: it is shared. */
  readonly session: string | null
  readonly key: string | null
  /** `silent`: it was pinged and has not answered yet. */
  readonly health: 'good' | 'silent'
  /** Null: Holdfast has not started it. */
  readonly pid: number | null
  readonly sessions: number
  readonly clients: number
  readonly pages: number
  readonly startedAt: number
  /** Of all its processes together; null where that is not known. */
  readonly memoryBytes: number | null
}

export function countsOf(
  hosts: readonly BrowserHost[],
  sessions: readonly BrowserSession[],
): CdpCounts {
  const sum = (count: (host: BrowserHost) => number): number =>
    hosts.reduce((total, host) => total + count(host), 0)
  return {
    browsers: hosts.length,
    sessions: sessions.length,
    clients: clientsOf(sessions),
    attached: sum(({ link }) => link.sessions),
    waiting: sum(({ link }) => link.unanswered),
    pages: sum(pagesOf),
  }
}

export async function browserView(
  host: BrowserHost,
  sessions: readonly BrowserSession[],
): Promise<BrowserView> {
  const { facts, isSilent, browser } = host
  const { name, isOwn, startedAt } = facts
  const own = isOwn ? sessions[0]?.session : undefined
  return {
    name,
    session: own?.id ?? null,
    key: own?.key ?? null,
    health: isSilent ? 'silent' : 'good',
    pid: browser.pid ?? null,
    sessions: sessions.length,
    clients: clientsOf(sessions),
    pages: pagesOf(host),
    startedAt,
    memoryBytes: await memoryOf(browser),
  }
}

function clientsOf(sessions: readonly BrowserSession[]): number {
  return sessions.reduce((sum, { tenant }) => sum + tenant.clients.size, 0)
}

function pagesOf({ targets }: BrowserHost): number {
  return targets.all().filter(({ type }) => type === 'page').length
}
