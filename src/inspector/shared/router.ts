/**
 * The address of what is shown, in the fragment of the page's address, which servers do not see:
 * `#/session/ID/log?event=12`. Views read the parts that are theirs and change them by `setQuery`.
 */
import { signal } from '@preact/signals'

export type PageAddress = {
  readonly path: readonly string[]
  readonly query: Readonly<Record<string, string>>
}

/** A value of undefined or '' is left out. */
export type Query = Readonly<Record<string, string | undefined>>

export function readAddress(hash: string): PageAddress {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s)
  return {
    path: path.split('/').map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  }
}

/** The fragment of an address, with its `#`. */
export function href(path: readonly string[], query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
  const search = new URLSearchParams(given as [string, string][]).toString()
  return `#/${path.map(encodeURIComponent).join('/')}${search === '' ? '' : `?${search}`}`
}

export const sessionHref = (id: string, tab?: string, query?: Query): string =>
  href(['session', id, ...(tab === undefined ? [] : [tab])], query)

/** A malformed address leads to Home. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return ''
  }
}

export const address = signal<PageAddress>({ path: [''], query: {} })

const update = (): void => {
  address.value = readAddress(location.hash)
}

/** Begins to follow the address bar. */
export function startRouter(): void {
  window.addEventListener('hashchange', update)
  update()
}

/** `replace`: Back does not return to the address before. */
export function go(to: string, { replace = false } = {}): void {
  if (location.hash === to) return
  if (replace) history.replaceState(null, '', to)
  else history.pushState(null, '', to)
  update()
}

/** Changes parts of the query; what is typed letter by letter gives one step of the history. */
export function setQuery(changes: Query, options: { readonly replace?: boolean } = {}): void {
  const { path, query } = address.peek()
  go(href(path, { ...query, ...changes }), options)
}
