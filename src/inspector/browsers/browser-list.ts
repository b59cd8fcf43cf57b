/** The browsers of a node, with the sessions on them and their pages. */
import { api } from '../shared/server.ts'

export type BrowserPage = {
  readonly id: string
  readonly type: string
  readonly title: string
  readonly url: string
}

/** A session on a browser. */
export type BrowserTenancy = {
  readonly session: string
  readonly key: string | null
  readonly clients: number
  readonly pages: readonly BrowserPage[]
}

export type BrowserRow = {
  readonly name: string
  /** Whose it is alone; null: shared. */
  readonly session: string | null
  readonly health: 'good' | 'silent'
  readonly pid: number | null
  readonly sessions: number
  readonly clients: number
  readonly pages: number
  readonly startedAt: number
  readonly memoryBytes: number | null
  readonly open: readonly BrowserTenancy[]
}

export type BrowserList = { readonly node: string | null; readonly browsers: readonly BrowserRow[] }

export const BROWSERS_MS = 3_000

type Where = { readonly node: string } | { readonly session: string }

/** Of a node, of the node that has a session, or of the node that answers. */
export function readBrowsers(where?: Where): Promise<BrowserList> {
  const query = where === undefined ? '' : `?${new URLSearchParams(where).toString()}`
  return api.json(`/v1/browsers${query}`)
}

/** Null: no browser of the node has it. */
export function tenancyOf({ browsers }: BrowserList, session: string) {
  for (const browser of browsers) {
    const tenancy = browser.open.find((open) => open.session === session)
    if (tenancy !== undefined) return { browser, tenancy }
  }
  return null
}

/** Its pages that a person can look at; workers and the like have no picture. */
export const pagesOf = ({ pages }: BrowserTenancy): readonly BrowserPage[] =>
  pages.filter(({ type }) => type === 'page')

/** "1.2 GB", "340 MB". */
export function bytes(count: number): string {
  const megabytes = count / 1_048_576
  return megabytes < 1_000
    ? `${Math.round(megabytes)} MB`
    : `${Math.round(megabytes / 102.4) / 10} GB`
}
