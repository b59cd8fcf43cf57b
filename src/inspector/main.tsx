/** The inspector: a page on the client library and the HTTP API. `views.tsx` says what is where. */
import { render } from 'preact'
import { App } from './app.tsx'
import { remember } from './shared/memory.ts'
import { startClock } from './shared/moment.ts'
import { href, readAddress, sessionHref, startRouter } from './shared/router.ts'
import './style/inspector.css'

/**
 * Removes the secret of a link, to a session or to an ask, from the address bar and the history
 * before anything else.
 */
function hideLink(): void {
  const [page, id = '', link = ''] = readAddress(location.hash).path
  if (page === 'ask' && id !== '') {
    remember('ask-link', id)
    history.replaceState(null, '', href(['ask']))
  }
  if (page !== 'link' || id === '' || link === '') return
  remember(`link:${id}`, link)
  history.replaceState(null, '', sessionHref(id))
}

hideLink()
window.addEventListener('hashchange', hideLink)
startRouter()
startClock()
render(<App />, document.body)
