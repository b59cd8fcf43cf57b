/**
 * What a browser session shows: its pages, a picture of one, and using it by hand. The page that is
 * shown is `page` in the address.
 */
import { useState } from 'preact/hooks'
import { usePolled } from '../shared/polled.ts'
import { Button, CopyButton, Empty, Problem } from '../shared/parts.tsx'
import { plural } from '../shared/moment.ts'
import { may } from '../shared/me.ts'
import { address, href } from '../shared/router.ts'
import { shownName } from '../shared/shown-text.ts'
import {
  BROWSERS_MS,
  bytes,
  pagesOf,
  readBrowsers,
  tenancyOf,
  type BrowserPage,
  type BrowserRow,
  type BrowserTenancy,
} from './browser-list.ts'
import { PageByHand } from './page-by-hand.tsx'
import { Picture } from './picture.tsx'

const PICTURE_MS = 2_000

/** For a tab of a session, as well as for a view of its own. */
export function BrowserSession({ session }: { readonly session: string }) {
  const { value, problem } = usePolled(() => readBrowsers({ session }), BROWSERS_MS, session)
  if (value === null)
    return problem === null ? <Empty>Loading…</Empty> : <Problem>{problem}</Problem>
  const found = tenancyOf(value, session)
  if (found === null) return <Empty>No browser has this session now.</Empty>
  return <OpenBrowserSession {...found} />
}

type Found = { readonly browser: BrowserRow; readonly tenancy: BrowserTenancy }

function OpenBrowserSession({ browser, tenancy }: Found) {
  const pages = pagesOf(tenancy)
  const wanted = address.value.query['page']
  const page = pages.find(({ id }) => id === wanted) ?? pages[0]
  return (
    <div class="browser-session">
      <BrowserFacts browser={browser} tenancy={tenancy} />
      {page === undefined ? (
        <Empty>The session has no page open.</Empty>
      ) : (
        <>
          <PageTabs pages={pages} current={page} />
          <ShownPage key={page.id} session={tenancy.session} page={page} />
        </>
      )}
    </div>
  )
}

export function BrowserFacts({ browser, tenancy }: Found) {
  const { name, memoryBytes, session } = browser
  const facts = [
    `Browser ${shownName(name)}`,
    session === null ? 'shared' : 'of this session alone',
    plural(tenancy.clients, 'client'),
    plural(tenancy.pages.length, 'page'),
    ...(memoryBytes === null ? [] : [`${bytes(memoryBytes)} for the whole browser`]),
  ]
  return <p class="muted browser-facts">{facts.join(' · ')}</p>
}

function PageTabs({ pages, current }: { pages: readonly BrowserPage[]; current: BrowserPage }) {
  const { path, query } = address.value
  return (
    <nav class="page-tabs" aria-label="Pages">
      {pages.map((page) => (
        <a
          key={page.id}
          href={href(path, { ...query, page: page.id })}
          aria-current={page === current ? 'page' : undefined}
          title={shownName(page.url)}
        >
          <bdi>{shownName(page.title || page.url || 'a page')}</bdi>
        </a>
      ))}
    </nav>
  )
}

function ShownPage({ session, page }: { readonly session: string; readonly page: BrowserPage }) {
  const [isByHand, setByHand] = useState(false)
  if (isByHand) return <PageByHand session={session} page={page} onDone={() => setByHand(false)} />
  return (
    <>
      <div class="by-hand-bar">
        <span class="page-address mono">
          <bdi>{shownName(page.url)}</bdi>
        </span>
        <CopyButton text={page.url} label="Copy the address of the page">
          Copy
        </CopyButton>
        {may('talk') === false ? null : (
          <Button kind="primary" onClick={() => setByHand(true)}>
            Take over
          </Button>
        )}
      </div>
      <Picture session={session} page={page} everyMs={PICTURE_MS} />
    </>
  )
}
