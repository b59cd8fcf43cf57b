/** What a person has chosen for all tabs of this browser. */
import { signal, type Signal } from '@preact/signals'

const PREFIX = 'holdfast-inspector:'

const known = new Map<string, Signal<boolean>>()

/** Kept in the browser; only for this tab if storage is disabled. */
export function preference(name: string, byDefault: boolean): Signal<boolean> {
  const stored = read(name)
  const value = signal(stored === null ? byDefault : stored === 'on')
  value.subscribe((isOn) => {
    if (read(name) !== null || isOn !== byDefault) write(name, isOn ? 'on' : 'off')
  })
  known.set(PREFIX + name, value)
  return value
}

window.addEventListener('storage', ({ key, newValue }) => {
  const value = known.get(key ?? '')
  if (value !== undefined && newValue !== null) value.value = newValue === 'on'
})

function read(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name)
  } catch {
    // Storage is disabled: nothing is kept.
    return null
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(PREFIX + name, value)
  } catch {
    // Storage is disabled or full: the choice is forgotten with the tab.
  }
}
