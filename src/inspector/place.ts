/**
 * What this tab remembers of a session besides what the client keeps: the link it came by, and that
 * it held a session which does not outlive its connection.
 */

const LINK = 'holdfast-inspector:link:'
const HELD = 'holdfast-inspector:held:'

export function keepLink(session: string, link: string): void {
  write(LINK + session, link)
}

export function linkOf(session: string): string | null {
  return read(LINK + session)
}

/** A page that holds a session of the policy `none`: after a reload its place is gone. */
export function markHeld(session: string): void {
  write(HELD + session, 'none')
}

/** Whether it was marked, once: who opens the session again does so on purpose. */
export function takeHeld(session: string): boolean {
  const held = read(HELD + session) !== null
  remove(HELD + session)
  return held
}

function read(key: string): string | null {
  try {
    return sessionStorage.getItem(key)
  } catch {
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

function remove(key: string): void {
  try {
    sessionStorage.removeItem(key)
  } catch {
    // It could not be written either.
  }
}
