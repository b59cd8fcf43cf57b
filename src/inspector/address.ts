/** Where in the inspector one is: the fragment of the address, which no server gets to see. */

export type Place =
  | { readonly page: 'list' }
  | { readonly page: 'new' }
  | { readonly page: 'session'; readonly id: string; readonly link: string | null }
  | { readonly page: 'reload-test' }

export function readPlace(hash: string): Place {
  const [page = '', id = '', link = ''] = hash.replace(/^#\/?/, '').split('/').map(decode)
  if (page === 'session' && id !== '') return { page, id, link: null }
  if (page === 'link' && id !== '' && link !== '') return { page: 'session', id, link }
  if (page === 'new' || page === 'reload-test') return { page }
  return { page: 'list' }
}

export function sessionHash(id: string): string {
  return `#/session/${encodeURIComponent(id)}`
}

/** A damaged address leads to the list, not to an error. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return ''
  }
}
