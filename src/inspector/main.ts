/**
 * The inspector: a page on the client library and the HTTP API. It stays attached to the sessions
 * that were opened last, so that opening another one does not end a session that lives only while
 * it has a holder.
 */
import { readPageAddress, sessionHash, type PageAddress } from './address.ts'
import { Api, recall, remember } from './api.ts'
import { createForm } from './forms.ts'
import { byId, element, fill } from './element.ts'
import { sessionList } from './list.ts'
import { reloadTest } from './reload-test.ts'
import { SessionPage } from './session.ts'

const ATTACHED_MAX = 8

class Inspector {
  readonly #api = new Api()
  readonly #view = byId('view')
  readonly #list = sessionList(this.#api, byId('sessions'), byId('server'))
  /** In the order in which they were shown, the last one last. */
  readonly #sessions = new Map<string, SessionPage>()
  #reloadTest: HTMLElement | null = null
  #shown: string | null = null

  show(): void {
    const address = readPageAddress(location.hash)
    const id = address.page === 'session' ? address.id : null
    if (address.page === 'session' && address.link !== null) hideLink(address.id, address.link)
    const link = id === null ? null : recall(`link:${id}`)
    document.body.dataset['view'] = address.page
    this.#list.watch(link === null)
    this.#list.mark(id)
    const current = address.page === 'reload-test' ? address.page : 'sessions'
    for (const item of document.querySelectorAll<HTMLElement>('[data-page]')) {
      item.ariaCurrent = item.dataset['page'] === current ? 'page' : null
    }
    const { hash } = location
    if (this.#shown === hash) return
    const isFirst = this.#shown === null
    this.#shown = hash
    this.#render(address, link)
    if (!isFirst) this.#view.focus()
  }

  #render(address: PageAddress, link: string | null): void {
    if (address.page !== 'session') document.title = 'Holdfast'
    const go = ({ id }: { readonly id: string }): void => {
      this.#list.refresh()
      location.hash = sessionHash(id)
    }
    switch (address.page) {
      case 'list':
        return fill(this.#view, welcome())
      case 'new':
        return fill(this.#view, createForm(this.#api, go))
      case 'reload-test':
        this.#reloadTest ??= reloadTest(this.#api)
        return fill(this.#view, this.#reloadTest)
      case 'session': {
        const { id } = address
        const page =
          this.#sessions.get(id) ?? new SessionPage({ id, link, api: this.#api, started: go })
        this.#keep(id, page)
        fill(this.#view, page.element)
        return page.shown()
      }
    }
  }

  #keep(id: string, page: SessionPage): void {
    this.#sessions.delete(id)
    this.#sessions.set(id, page)
    for (const [other, oldest] of this.#sessions) {
      if (this.#sessions.size <= ATTACHED_MAX) break
      oldest.leave()
      this.#sessions.delete(other)
    }
  }
}

/** Removes the secret from the address bar and the history before anything else happens. */
function hideLink(id: string, link: string): void {
  history.replaceState(null, '', sessionHash(id))
  remember(`link:${id}`, link)
}

function welcome(): HTMLElement {
  const words = 'Choose a session to see its conversation, its log and its attachments, or '
  const create = element('a', { href: '#/new' }, 'start a new one')
  return element('div.page', element('h1', 'Sessions'), element('p.muted', words, create, '.'))
}

const inspector = new Inspector()
window.addEventListener('hashchange', () => inspector.show())
inspector.show()
