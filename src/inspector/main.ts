/**
 * The inspector: a page on the client library and the HTTP API. It stays attached to the sessions
 * that were opened last, so that opening another one does not end a session that lives only while
 * it has a holder.
 */
import { readPageAddress, sessionHash, type PageAddress } from './address.ts'
import { Api, recall, remember } from './api.ts'
import { byId, element, fill } from './element.ts'
import { createForm } from './forms.ts'
import { sessionList } from './list.ts'
import { reloadTest } from './reload-test.ts'
import { sessionPage } from './session.ts'

const ATTACHED_MAX = 8

const api = new Api()
const view = byId('view')
const list = sessionList(api, byId('sessions'), byId('server'))
/** In the order in which they were shown, the last one last. */
const sessions = new Map<string, ReturnType<typeof sessionPage>>()
let test: HTMLElement | null = null
let shown: string | null = null

function show(): void {
  const address = readPageAddress(location.hash)
  const id = address.page === 'session' ? address.id : null
  if (address.page === 'session' && address.link !== null) hideLink(address.id, address.link)
  const link = id === null ? null : recall(`link:${id}`)
  document.body.dataset['view'] = address.page
  list.watch(link === null)
  list.mark(id)
  const current = address.page === 'reload-test' ? address.page : 'sessions'
  for (const item of document.querySelectorAll<HTMLElement>('[data-page]')) {
    item.ariaCurrent = item.dataset['page'] === current ? 'page' : null
  }
  const { hash } = location
  if (shown === hash) return
  const isFirst = shown === null
  shown = hash
  render(address, link)
  if (!isFirst) view.focus()
}

function render(address: PageAddress, link: string | null): void {
  if (address.page !== 'session') document.title = 'Holdfast'
  switch (address.page) {
    case 'list':
      return fill(view, welcome())
    case 'new':
      return fill(view, createForm(api, go))
    case 'reload-test':
      test ??= reloadTest(api)
      return fill(view, test)
    case 'session': {
      const { id } = address
      const page = sessions.get(id) ?? sessionPage({ id, link, api }, go)
      keep(id, page)
      fill(view, page.element)
      return page.shown()
    }
  }
}

function go({ id }: { readonly id: string }): void {
  list.refresh()
  location.hash = sessionHash(id)
}

function keep(id: string, page: ReturnType<typeof sessionPage>): void {
  sessions.delete(id)
  sessions.set(id, page)
  for (const [other, oldest] of sessions) {
    if (sessions.size <= ATTACHED_MAX) break
    oldest.leave()
    sessions.delete(other)
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

window.addEventListener('hashchange', show)
show()
