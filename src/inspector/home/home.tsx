/** What runs, what waits for a person, and what failed lately, over all sessions. */
import { useEffect, useMemo } from 'preact/hooks'
import type { OpenAskView } from '../../wire/views.ts'
import { AskCard } from '../asks/ask-card.tsx'
import { canNotify, isNotifying, setNotifying } from '../frame/attention.ts'
import { inbox } from '../shared/feeds.ts'
import { may } from '../shared/me.ts'
import { Ago, Empty, SessionName } from '../shared/parts.tsx'
import { href, sessionHref } from '../shared/router.ts'
import { api } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'
import { readFilters } from '../sessions/filters.ts'
import { SessionRow } from '../sessions/row.tsx'
import { Charts } from './charts.tsx'
import { Machines } from './machines.tsx'
import { SessionList } from '../sessions/session-list.ts'

const SHOWN = 8

export function Home() {
  const list = useMemo(() => new SessionList(readFilters({ state: 'open' })), [])
  useEffect(() => () => list.stop(), [list])
  const rows = list.rows.value
  const busy = rows.filter(({ status }) => ['running', 'queued', 'waiting'].includes(status))
  const failed = rows.filter(({ status }) => status === 'failed')
  const asks = inbox.value
  return (
    <div class="page home">
      <header class="view-head">
        <h1>Home</h1>
        <span class="spring" />
        <a class="button primary" href={href(['new'])}>
          New session
        </a>
      </header>
      <div class="home-columns">
        <div class="home-work">
          <Inbox asks={asks} />
          <Rows title="Running now" rows={busy} empty="No turn runs." />
          <Rows
            title="Failed lately"
            rows={failed}
            empty="No session ended its last turn with an error."
          />
        </div>
        <div class="home-figures">
          <Charts />
          <Machines />
        </div>
      </div>
    </div>
  )
}

function Inbox({ asks }: { readonly asks: readonly OpenAskView[] }) {
  return (
    <section class="inbox" aria-labelledby="inbox-title">
      <div class="section-head">
        <h2 id="inbox-title">
          Waiting for an answer{' '}
          {asks.length === 0 ? null : <span class="count">{asks.length}</span>}
        </h2>
        <span class="spring" />
        {canNotify ? <NotifyButton /> : null}
      </div>
      {asks.length === 0 ? <Empty>Nothing waits for you.</Empty> : null}
      <div class="asks">
        {asks.map((ask) => (
          <AskCard
            key={`${ask.session.id} ${ask.id}`}
            ask={ask}
            session={ask.session.id}
            answer={(value) => api.answer(ask.session.id, ask.id, value)}
            mayAnswer={may('answer') !== false}
            mayEdit={may('edit') !== false}
          >
            <p class="ask-session">
              <a href={sessionHref(ask.session.id)}>
                <SessionName id={ask.session.id} name={ask.session.key} />
              </a>
              <span class="muted">
                {shownName(ask.session.agent)} · asked <Ago at={ask.openedAt} />
              </span>
            </p>
          </AskCard>
        ))}
      </div>
    </section>
  )
}

function NotifyButton() {
  return (
    <button
      type="button"
      class="button plain small"
      aria-pressed={isNotifying.value}
      onClick={() => void setNotifying(!isNotifying.peek())}
    >
      {isNotifying.value ? 'Notifications are on' : 'Notify me'}
    </button>
  )
}

type RowsProps = {
  readonly title: string
  readonly rows: SessionList['rows']['value']
  readonly empty: string
}

function Rows({ title, rows, empty }: RowsProps) {
  return (
    <section class="home-rows">
      <h2>
        {title} {rows.length === 0 ? null : <span class="count">{rows.length}</span>}
      </h2>
      {rows.length === 0 ? <Empty>{empty}</Empty> : null}
      {rows.slice(0, SHOWN).map((row) => (
        <SessionRow key={row.id} row={row} />
      ))}
    </section>
  )
}
