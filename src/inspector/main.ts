/**
 * The inspector: a page on the client library and the HTTP interface, and nothing else.
 *
 * It stays attached to the sessions that were opened last, so that looking at another one does not
 * end a session that lives only as long as somebody holds it.
 */
import { Access } from './access.ts'
import { readPlace, sessionHash, type Place } from './address.ts'
import { Api } from './api.ts'
import { createForm } from './create.ts'
import { byId, element, fill } from './element.ts'
import { SessionList } from './list.ts'
import { keepLink, linkOf } from './place.ts'
import { ReloadTest } from './reload-test.ts'
import { SessionPage } from './session.ts'

const HELD_MAX = 8

class Inspector {
  readonly #access = new Access()
  readonly #api = new Api(this.#access)
  readonly #view = byId('view')
  readonly #list = new SessionList(this.#api, byId('sessions'), byId('server'))
  /** In the order in which they were looked at, the last one last. */
  readonly #held = new Map<string, SessionPage>()
  #reloadTest: ReloadTest | null = null
  #shown: string | null = null

  start(): void {
    window.addEventListener('hashchange', () => this.#show())
    this.#show()
  }

  #show(): void {
    const place = readPlace(location.hash)
    if (place.page === 'session' && place.link !== null) hideLink(place.id, place.link)
    const link = place.page === 'session' ? linkOf(place.id) : null
    document.body.dataset['view'] = place.page
    this.#list.watch(link === null)
    this.#list.mark(place.page === 'session' ? place.id : null)
    markNavigation(place)
    const key = location.hash
    if (this.#shown === key) return
    const isFirst = this.#shown === null
    this.#shown = key
    this.#render(place, link)
    if (!isFirst) this.#view.focus()
  }

  #render(place: Place, link: string | null): void {
    if (place.page !== 'session') document.title = 'Holdfast'
    switch (place.page) {
      case 'list':
        return fill(this.#view, welcome())
      case 'new':
        return fill(
          this.#view,
          createForm(this.#api, ({ id }) => this.#go(id)),
        )
      case 'reload-test':
        this.#reloadTest ??= new ReloadTest(this.#access)
        return fill(this.#view, this.#reloadTest.element)
      case 'session': {
        const page = this.#hold(place.id, link)
        fill(this.#view, page.element)
        return page.shown()
      }
    }
  }

  #go(id: string): void {
    this.#list.refresh()
    location.hash = sessionHash(id)
  }

  #hold(id: string, link: string | null): SessionPage {
    const { api, access } = { api: this.#api, access: this.#access }
    const started = ({ id: next }: { readonly id: string }): void => this.#go(next)
    const page = this.#held.get(id) ?? new SessionPage({ id, link, access, api, started })
    this.#held.delete(id)
    this.#held.set(id, page)
    for (const [other, held] of this.#held) {
      if (this.#held.size <= HELD_MAX) break
      held.leave()
      this.#held.delete(other)
    }
    return page
  }
}

/** The secret leaves the address bar, and with it the history, before anything else happens. */
function hideLink(id: string, link: string): void {
  history.replaceState(null, '', sessionHash(id))
  keepLink(id, link)
}

function markNavigation({ page }: Place): void {
  const current = page === 'reload-test' ? page : 'sessions'
  for (const link of document.querySelectorAll<HTMLElement>('[data-page]')) {
    if (link.dataset['page'] === current) link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
}

function welcome(): HTMLElement {
  return element(
    'div',
    { class: 'page' },
    element('h1', {}, 'Sessions'),
    element(
      'p',
      { class: 'muted' },
      'Choose a session to see what is said in it, its log and who is attached, or ',
      element('a', { href: '#/new' }, 'start a new one'),
      '.',
    ),
  )
}

new Inspector().start()
