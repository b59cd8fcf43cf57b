/** What this tab remembers of a session besides what the client keeps: the link it came by. */

const LINK = 'holdfast-inspector:link:'

export function keepLink(session: string, link: string): void {
  write(LINK + session, link)
}

export function linkOf(session: string): string | null {
  return read(LINK + session)
}

function read(key: string): string | null {
  try {
    return sessionStorage.getItem(key)
  } catch {
    // A page that may not remember begins anew.
    return null
  }
}

function write(key: string, value: string): void {
  try {
    sessionStorage.setItem(key, value)
  } catch {
    // A page that may not remember begins anew after a reload.
  }
}
