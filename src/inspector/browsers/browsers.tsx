/** The browsers of this node: their state, and the sessions on each with a picture. */
import { useEffect } from 'preact/hooks'
import { useNodes } from '../nodes/node-list.ts'
import { Ago, Empty, Problem, SessionName, Tag } from '../shared/parts.tsx'
import { plural } from '../shared/moment.ts'
import { usePolled } from '../shared/polled.ts'
import { href, sessionHref } from '../shared/router.ts'
import { api } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'
import { pageTitle } from '../shared/title.ts'
import {
  BROWSERS_MS,
  bytes,
  pagesOf,
  readBrowsers,
  type BrowserRow,
  type BrowserTenancy,
} from './browser-list.ts'
import { BrowserSession } from './browser-session.tsx'
import { Picture } from './picture.tsx'

const PICTURE_MS = 5_000
/** A key does not change. */
const NAME_MS = 600_000

export function Browsers({ path: [, session = ''] }: { readonly path: readonly string[] }) {
  return session === '' ? <AllBrowsers /> : <OneSession session={session} />
}

function AllBrowsers() {
  const nodes = useNodes()?.filter(({ isAlive }) => isAlive) ?? []
  return (
    <div class="page browsers">
      <header class="view-head">
        <h1>Browsers</h1>
      </header>
      {nodes.length < 2 ? (
        <NodeBrowsers node={null} />
      ) : (
        nodes.map(({ id }) => <NodeBrowsers key={id} node={id} />)
      )}
    </div>
  )
}

/** Each node runs browsers of its own. `node` null: there is one, or no other may be asked. */
function NodeBrowsers({ node }: { readonly node: string | null }) {
  const { value, problem } = usePolled(
    () => readBrowsers(node === null ? undefined : { node }),
    BROWSERS_MS,
    node ?? '',
  )
  const browsers = value?.browsers ?? []
  const isEmpty = value !== null && browsers.length === 0
  const named = node ?? value?.node ?? null
  return (
    <>
      {named === null ? null : <p class="node-name muted">Node {shownName(named)}</p>}
      {problem === null ? null : <Problem>{problem}</Problem>}
      {isEmpty && node === null ? <NoBrowsers /> : null}
      {isEmpty && node !== null ? <Empty>No browser runs on this node now.</Empty> : null}
      {browsers.map((browser) => (
        <Browser key={`${browser.name} ${browser.startedAt}`} browser={browser} />
      ))}
    </>
  )
}

function NoBrowsers() {
  return (
    <div class="empty-state">
      <p>No browser runs now.</p>
      <p class="muted">
        Start the server with <code>--browser chromium</code> and connect a client of the Chrome
        DevTools Protocol to <code>/cdp/chromium</code>. The browser starts with its first client,
        and stops a minute after the last has left.
      </p>
    </div>
  )
}

function Browser({ browser }: { readonly browser: BrowserRow }) {
  const { name, health, pid, memoryBytes, sessions, clients, pages, startedAt, open } = browser
  return (
    <section class="browser" aria-label={`Browser ${shownName(name)}`}>
      <div class="browser-head">
        <h2>{shownName(name)}</h2>
        <Tag tone={health === 'good' ? 'good' : 'bad'}>
          {health === 'good' ? 'healthy' : 'does not answer'}
        </Tag>
        <span class="muted">
          {[
            plural(sessions, 'session'),
            plural(clients, 'client'),
            plural(pages, 'page'),
            ...(memoryBytes === null ? [] : [bytes(memoryBytes)]),
            ...(pid === null ? [] : [`process ${pid}`]),
          ].join(' · ')}{' '}
          · started <Ago at={startedAt} />
        </span>
      </div>
      {open.length === 0 ? <Empty>No session uses it now.</Empty> : null}
      <div class="browser-cards">
        {open.map((tenancy) => (
          <SessionCard key={tenancy.session} tenancy={tenancy} />
        ))}
      </div>
    </section>
  )
}

function SessionCard({ tenancy }: { readonly tenancy: BrowserTenancy }) {
  const { session, key, clients } = tenancy
  const pages = pagesOf(tenancy)
  const [page] = pages
  return (
    <a class="browser-card" data-row href={href(['browsers', session])}>
      {page === undefined ? (
        <div class="picture none">no page</div>
      ) : (
        <Picture session={session} page={page} everyMs={PICTURE_MS} />
      )}
      <span class="browser-card-name">
        <SessionName id={session} name={key} />
      </span>
      <span class="muted small one-line">
        <bdi>{shownName(page?.title || page?.url || 'no page')}</bdi>
      </span>
      <span class="muted small">
        {plural(clients, 'client')} · {plural(pages.length, 'page')}
      </span>
    </a>
  )
}

function OneSession({ session }: { readonly session: string }) {
  const { value } = usePolled(() => api.session(session), NAME_MS, session)
  useEffect(() => {
    pageTitle.value = 'Browser session'
  }, [])
  return (
    <div class="page browsers">
      <header class="view-head">
        <a class="back" href={href(['browsers'])}>
          ← Browsers
        </a>
        <h1 class="one-line">
          <SessionName id={session} name={value?.key ?? null} />
        </h1>
        <span class="spring" />
        <a class="button" href={sessionHref(session)}>
          Open the session
        </a>
      </header>
      <BrowserSession session={session} />
    </div>
  )
}
