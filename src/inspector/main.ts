/**
 * The inspector: a page on the client library and the HTTP API. It stays attached to the sessions
 * that were opened last, so that opening another one does not end a session that lives only while
 * it has a holder.
 */
import { Access } from './access.ts'
import { readPageAddress, sessionHash, type PageAddress } from './address.ts'
import { Api } from './api.ts'
import { createForm } from './create.ts'
import { byId, element, fill } from './element.ts'
import { SessionList } from './list.ts'
import { ReloadTest } from './reload-test.ts'
import { SessionPage } from './session.ts'
import { recall, remember } from './tab-storage.ts'

/** How many sessions the page stays attached to. */
const ATTACHED_MAX = 8

class Inspector {
  readonly #access = new Access()
  readonly #api = new Api(this.#access)
  readonly #view = byId('view')
  readonly #list = new SessionList(this.#api, byId('sessions'), byId('server'))
  /** In the order in which they were shown, the last one last. */
  readonly #sessions = new Map<string, SessionPage>()
  #reloadTest: ReloadTest | null = null
  #shown: string | null = null

  start(): void {
    window.addEventListener('hashchange', () => this.#show())
    this.#show()
  }

  #show(): void {
    const address = readPageAddress(location.hash)
    if (address.page === 'session' && address.link !== null) hideLink(address.id, address.link)
    const link = address.page === 'session' ? recall(`link:${address.id}`) : null
    document.body.dataset['view'] = address.page
    this.#list.watch(link === null)
    this.#list.mark(address.page === 'session' ? address.id : null)
    markNavigation(address)
    const key = location.hash
    if (this.#shown === key) return
    const isFirst = this.#shown === null
    this.#shown = key
    this.#render(address, link)
    if (!isFirst) this.#view.focus()
  }

  #render(address: PageAddress, link: string | null): void {
    if (address.page !== 'session') document.title = 'Holdfast'
    switch (address.page) {
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
        const page = this.#attach(address.id, link)
        fill(this.#view, page.element)
        return page.shown()
      }
    }
  }

  #go(id: string): void {
    this.#list.refresh()
    location.hash = sessionHash(id)
  }

  #attach(id: string, link: string | null): SessionPage {
    const page =
      this.#sessions.get(id) ??
      new SessionPage({
        id,
        link,
        access: this.#access,
        api: this.#api,
        started: (next) => this.#go(next.id),
      })
    this.#sessions.delete(id)
    this.#sessions.set(id, page)
    for (const [other, oldest] of this.#sessions) {
      if (this.#sessions.size <= ATTACHED_MAX) break
      oldest.leave()
      this.#sessions.delete(other)
    }
    return page
  }
}

/** Removes the secret from the address bar and the history before anything else happens. */
function hideLink(id: string, link: string): void {
  history.replaceState(null, '', sessionHash(id))
  remember(`link:${id}`, link)
}

function markNavigation({ page }: PageAddress): void {
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
      'Choose a session to see its conversation, its log and its attachments, or ',
      element('a', { href: '#/new' }, 'start a new one'),
      '.',
    ),
  )
}

new Inspector().start()
