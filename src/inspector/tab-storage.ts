/** What the inspector keeps in this tab. A page without storage asks again after a reload. */

const PREFIX = 'holdfast-inspector:'

export function recall(name: string): string | null {
  try {
    return sessionStorage.getItem(PREFIX + name)
  } catch {
    // Storage is disabled.
    return null
  }
}

export function remember(name: string, value: string): void {
  try {
    sessionStorage.setItem(PREFIX + name, value)
  } catch {
    // Storage is disabled.
  }
}
