/** What this tab remembers over a reload: the token, links, and what was typed and not sent. */
import { signal, type Signal } from '@preact/signals'
import { useMemo } from 'preact/hooks'

const PREFIX = 'holdfast-inspector:'

/** Null too if storage is disabled, so that a reload asks again. */
export function recall(name: string): string | null {
  try {
    return sessionStorage.getItem(PREFIX + name)
  } catch {
    return null
  }
}

export function remember(name: string, value: string): void {
  try {
    if (value === '') sessionStorage.removeItem(PREFIX + name)
    else sessionStorage.setItem(PREFIX + name, value)
  } catch {
    // Storage is disabled or full: the page works, and forgets on a reload.
  }
}

const drafts = new Map<string, Signal<string>>()

/** A text that a person types: the same in every view, and after a reload. */
export function draft(name: string): Signal<string> {
  const known = drafts.get(name)
  if (known !== undefined) return known
  const text = signal(recall(`draft:${name}`) ?? '')
  text.subscribe((value) => {
    if (value !== (recall(`draft:${name}`) ?? '')) remember(`draft:${name}`, value)
  })
  drafts.set(name, text)
  return text
}

export const useDraft = (name: string): Signal<string> => useMemo(() => draft(name), [name])
