/** Keys that work in every view, unless a person writes or has turned them off. */
import { go, href } from '../shared/router.ts'
import { overlay } from './overlays.ts'
import { preference } from './preferences.ts'

/** Keys without Control: people who speak to their computer may press them by mistake. */
export const hasSingleKeys = preference('single-keys', true)

export const KEYS: readonly (readonly [keys: string, meaning: string])[] = [
  ['Ctrl K', 'Go to a view or session, or do something'],
  ['/', 'Filter'],
  ['j, k', 'Next, previous in a list; Return opens it'],
  ['?', 'This help'],
  ['Escape', 'Close what lies over the view'],
]

const ROWS = 'main :is([data-row], .session-row, .log-line)'
const WRITTEN_IN = 'input, textarea, select, [contenteditable]'

/** The returned function ends it. */
export function followKeys(): () => void {
  document.addEventListener('keydown', onKey)
  return () => document.removeEventListener('keydown', onKey)
}

function onKey(event: KeyboardEvent): void {
  const { key, ctrlKey, metaKey, altKey, target } = event
  if (event.defaultPrevented || event.isComposing || altKey) return
  if ((ctrlKey || metaKey) && key.toLowerCase() === 'k') {
    if (document.querySelector('dialog[open]') === null) overlay.value = 'palette'
    return event.preventDefault()
  }
  if (ctrlKey || metaKey || !hasSingleKeys.value) return
  if (target instanceof Element && target.closest(WRITTEN_IN) !== null) return
  if (document.querySelector('dialog[open]') !== null) return
  if (singleKey(key)) event.preventDefault()
}

/** Whether the key means something. */
function singleKey(key: string): boolean {
  switch (key) {
    case '/':
      focusFilter()
      return true
    case 'j':
      return focusRow(1)
    case 'k':
      return focusRow(-1)
    case '?':
      overlay.value = 'help'
      return true
    default:
      return false
  }
}

const filterOfView = (): HTMLElement | null => document.querySelector('main input[type=search]')

let isFilterWanted = false

/** Of this view; else of the list of sessions. */
function focusFilter(): void {
  const filter = filterOfView()
  if (filter !== null) return filter.focus()
  isFilterWanted = true
  go(href(['sessions']))
}

/** For the frame, when another view is shown. */
export function focusView(main: HTMLElement): void {
  const target = isFilterWanted ? filterOfView() : null
  isFilterWanted = false
  const shown = target ?? main
  shown.focus()
}

function focusRow(step: 1 | -1): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>(ROWS)].sort(
    (one, other) => one.getBoundingClientRect().top - other.getBoundingClientRect().top,
  )
  const at = rows.findIndex((row) => row.contains(document.activeElement))
  const next = at === -1 ? rows.find(isInView) : rows[at + step]
  next?.focus()
  next?.scrollIntoView({ block: 'nearest' })
  return rows.length > 0
}

function isInView(row: HTMLElement): boolean {
  const { top, bottom } = row.getBoundingClientRect()
  return bottom > 0 && top < innerHeight
}
