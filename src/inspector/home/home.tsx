/** What runs, what waits for a person, and what failed lately, over all sessions. */
import type { OpenAskView } from '../../wire/views.ts'
import { AskCard } from '../asks/ask-card.tsx'
import { canNotify, isNotifying, setNotifying } from '../frame/attention.ts'
import { inbox } from '../shared/feeds.ts'
import { may } from '../shared/me.ts'
import { Ago, Empty, SessionName } from '../shared/parts.tsx'
import { href, sessionHref } from '../shared/router.ts'
import { api } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'
import { SessionRow } from '../sessions/row.tsx'
import { Charts } from './charts.tsx'
import { Machines } from './machines.tsx'
import { useSessionsDoing, type SessionsDoing } from './sessions-doing.ts'

const SHOWN = 8
const BUSY = ['running', 'queued', 'waiting']
const FAILED = ['failed']

export function Home() {
  const [busy, failed] = [useSessionsDoing(BUSY, SHOWN), useSessionsDoing(FAILED, SHOWN)]
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
          <Rows title="Running now" found={busy} empty="No turn runs." />
          <Rows
            title="Failed lately"
            found={failed}
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
  readonly found: SessionsDoing | null
  readonly empty: string
}

function Rows({ title, found, empty }: RowsProps) {
  const rows = found?.rows ?? []
  return (
    <section class="home-rows">
      <h2>
        {title} {rows.length === 0 ? null : <span class="count">{found?.count}</span>}
      </h2>
      {found !== null && rows.length === 0 ? <Empty>{empty}</Empty> : null}
      {rows.map((row) => (
        <SessionRow key={row.id} row={row} />
      ))}
    </section>
  )
}
