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

export class SessionList {
  readonly #api: Api
  readonly #status: HTMLElement
  readonly #list = element('ul.list')
  readonly #search = element('input', {
    type: 'search',
    placeholder: 'Key or id',
    'aria-label': 'Show only sessions whose key or id contains this',
    oninput: () => void this.#load(),
  })
  readonly #state = selectField('state', STATES, {
    'aria-label': 'Show only sessions in this state',
    onchange: () => void this.#load(),
  })
  readonly #rows = new Map<string, ListItem>()
  #sessions: readonly SessionRowView[] = []
  #current: string | null = null
  #timer: number | undefined
  #wanted = false
  #isLoaded = false

  constructor(api: Api, place: HTMLElement, status: HTMLElement) {
    this.#api = api
    this.#status = status
    const create = element('a.button.new', { href: '#/new' }, 'New session')
    const filters = { class: 'filters', role: 'search' }
    fill(
      place,
      form(() => undefined, filters, this.#search, this.#state, create),
      this.#list,
    )
    document.addEventListener('visibilitychange', () => this.refresh())
    window.addEventListener('online', () => this.refresh())
    window.addEventListener('offline', () => setText(status, 'Offline'))
  }

  /** Starts or stops refreshing. */
  watch(wanted: boolean): void {
    if (this.#wanted === wanted) return
    this.#wanted = wanted
    this.refresh()
  }

  /** Highlights the session that is open beside the list. */
  mark(id: string | null): void {
    this.#current = id
    this.#render()
  }

  /** Reads the list soon, and then from time to time. */
  refresh(ms = 0): void {
    clearTimeout(this.#timer)
    if (!this.#wanted || document.hidden || !navigator.onLine) return
    this.#timer = setTimeout(() => void this.#load(), ms)
  }

  async #load(): Promise<void> {
    clearTimeout(this.#timer)
    try {
      this.#sessions = await this.#find()
      this.#isLoaded = true
      setText(this.#status, '')
      this.#render()
    } catch (error) {
      const words = error instanceof ApiError ? error.message : 'the list could not be read'
      setText(this.#status, `${words.charAt(0).toUpperCase()}${words.slice(1)}`)
    }
    this.refresh(EVERY_MS)
  }

  /** Recent sessions whose key or id contains the text; else any session with this key. */
  async #find(): Promise<readonly SessionRowView[]> {
    const state = this.#state.value
    const text = this.#search.value.trim()
    const newest = await this.#api.sessions({ state, key: '' })
    const matching = newest.filter(({ id, key }) => id.includes(text) || key?.includes(text))
    if (matching.length > 0 || text === '') return matching
    return this.#api.sessions({ state, key: text })
  }

  #render(): void {
    const shown = new Set(this.#sessions.map(({ id }) => id))
    for (const id of [...this.#rows.keys()]) if (!shown.has(id)) this.#rows.delete(id)
    const rows = this.#sessions.map((session) => this.#row(session))
    // Rows that do not move stay in the document, and keep the focus.
    rows.forEach((row, index) => {
      const present = this.#list.children[index]
      if (present !== row) this.#list.insertBefore(row, present ?? null)
    })
    while (this.#list.children.length > rows.length) this.#list.lastElementChild?.remove()
    if (rows.length === 0 && this.#isLoaded) {
      this.#list.append(element('li.none', 'No sessions here.'))
    }
  }

  #row(session: SessionRowView): HTMLElement {
    const row = this.#rows.get(session.id) ?? new ListItem(session.id)
    this.#rows.set(session.id, row)
    row.show(session, session.id === this.#current)
    return row.element
  }
}

class ListItem {
  readonly element: HTMLLIElement
  readonly #link: HTMLAnchorElement
  readonly #title = element('span.title')
  readonly #facts = element('span')
  readonly #age = element('span')

  constructor(id: string) {
    const facts = element('span.facts', this.#facts, this.#age)
    this.#link = element('a', { href: sessionHash(id) }, this.#title, facts)
    this.element = element('li', { 'data-session': id }, this.#link)
  }

  show(session: SessionRowView, isCurrent: boolean): void {
    const { id, key, agent, state, status, seq, updatedAt } = session
    this.element.dataset['state'] = state
    this.element.dataset['status'] = status
    setText(this.#title, key ?? id)
    this.#title.classList.toggle('mono', key === null)
    setText(this.#facts, `${agent} · ${seq} ${seq === 1 ? 'event' : 'events'}`)
    const since = `${status} · ${age(Date.now() - updatedAt)}`
    setText(this.#age, status === 'closed' ? status : since)
    this.#age.title = fullTime(updatedAt)
    this.#link.ariaCurrent = isCurrent ? 'true' : null
  }
}
