/** The pages of the inspector, named by the fragment of the address, which servers do not see. */

export type PageAddress =
  | { readonly page: 'list' | 'new' | 'reload-test' }
  | { readonly page: 'session'; readonly id: string; readonly link: string | null }

export function readPageAddress(hash: string): PageAddress {
  const [page = '', id = '', link = ''] = hash.replace(/^#\/?/, '').split('/').map(decode)
  if (page === 'session' && id !== '') return { page, id, link: null }
  if (page === 'link' && id !== '' && link !== '') return { page: 'session', id, link }
  if (page === 'new' || page === 'reload-test') return { page }
  return { page: 'list' }
}

export const sessionHash = (id: string): string => `#/session/${encodeURIComponent(id)}`

/** A malformed address leads to the list. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return ''
  }
}
