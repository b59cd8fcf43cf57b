/** The list of sessions, newest first; it is refreshed while the page is visible. */
import type { SessionRowView } from '../wire/views.ts'
import { sessionHash } from './address.ts'
import { ApiError, type Api } from './api.ts'
import { element, fill, form, selectField, setText } from './element.ts'
import { age, fullTime } from './moment.ts'

const EVERY_MS = 2_000

const STATES = [
  ['open', 'Open'],
  ['closed', 'Closed'],
  ['', 'All'],
] as const

export function sessionList(api: Api, place: HTMLElement, status: HTMLElement) {
  const label = 'Show only sessions whose key or id contains this'
  const search = element('input', { type: 'search', placeholder: 'Key or id', 'aria-label': label })
  const state = selectField('state', STATES, { 'aria-label': 'Show only sessions in this state' })
  const create = element('a.button.new', { href: '#/new' }, 'New session')
  const list = element('ul.list')
  const items = new Map<string, ReturnType<typeof listItem>>()
  let sessions: readonly SessionRowView[] = []
  let current: string | null = null
  let timer: number | undefined
  let isWatched = false
  let isLoaded = false

  /** Reads the list soon, and then from time to time. */
  function refresh(ms = 0): void {
    clearTimeout(timer)
    if (!isWatched || document.hidden || !navigator.onLine) return
    timer = setTimeout(() => void load(), ms)
  }

  async function load(): Promise<void> {
    clearTimeout(timer)
    try {
      sessions = await find()
      isLoaded = true
      setText(status, '')
      render()
    } catch (error) {
      const words = error instanceof ApiError ? error.message : 'the list could not be read'
      setText(status, `${words.charAt(0).toUpperCase()}${words.slice(1)}`)
    }
    refresh(EVERY_MS)
  }

  /** Recent sessions whose key or id contains the text; else any session with this key. */
  async function find(): Promise<readonly SessionRowView[]> {
    const text = search.value.trim()
    const newest = await api.sessions({ state: state.value, key: '' })
    const matching = newest.filter(({ id, key }) => id.includes(text) || key?.includes(text))
    if (matching.length > 0 || text === '') return matching
    return api.sessions({ state: state.value, key: text })
  }

  function render(): void {
    const shown = new Set(sessions.map(({ id }) => id))
    for (const id of [...items.keys()]) if (!shown.has(id)) items.delete(id)
    sessions.forEach((session, index) => {
      const { id } = session
      const item = items.get(id) ?? listItem(id)
      items.set(id, item)
      item.show(session, id === current)
      // Items that do not move stay in the document, and keep the focus.
      const present = list.children[index]
      if (present !== item.element) list.insertBefore(item.element, present ?? null)
    })
    while (list.children.length > sessions.length) list.lastElementChild?.remove()
    if (sessions.length === 0 && isLoaded) list.append(element('li.none', 'No sessions here.'))
  }

  const filters = { class: 'filters', role: 'search' }
  fill(
    place,
    form(() => undefined, filters, search, state, create),
    list,
  )
  search.addEventListener('input', () => void load())
  state.addEventListener('change', () => void load())
  document.addEventListener('visibilitychange', () => refresh())
  window.addEventListener('online', () => refresh())
  window.addEventListener('offline', () => setText(status, 'Offline'))

  return {
    refresh,
    watch(isWanted: boolean): void {
      if (isWatched === isWanted) return
      isWatched = isWanted
      refresh()
    },
    mark(id: string | null): void {
      current = id
      render()
    },
  }
}

function listItem(id: string) {
  const title = element('span.title')
  const facts = element('span')
  const doing = element('span')
  const content = [title, element('span.facts', facts, doing)]
  const link = element('a', { href: sessionHash(id) }, ...content)
  const item = element('li', { 'data-session': id }, link)
  const show = (session: SessionRowView, isCurrent: boolean): void => {
    const { key, agent, state, status, seq, updatedAt } = session
    item.dataset['state'] = state
    item.dataset['status'] = status
    setText(title, key ?? id)
    title.classList.toggle('mono', key === null)
    setText(facts, `${agent} · ${seq} ${seq === 1 ? 'event' : 'events'}`)
    const since = `${status} · ${age(Date.now() - updatedAt)}`
    setText(doing, status === 'closed' ? status : since)
    doing.title = fullTime(updatedAt)
    link.ariaCurrent = isCurrent ? 'true' : null
  }
  return { element: item, show }
}
