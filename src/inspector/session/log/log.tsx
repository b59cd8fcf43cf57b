/** The session's log: every event on one line, as JSON when it is opened. */
import { useMemo, useRef } from 'preact/hooks'
import type { SessionEvent } from '../../../client/index.ts'
import { eventSummary } from '../../../wire/views.ts'
import { beginningOf, useClipped } from '../../shared/clipped.tsx'
import { clockTime, fullTime } from '../../shared/moment.ts'
import { Button, CopyButton, Empty, Select } from '../../shared/parts.tsx'
import { address, sessionHref, setQuery } from '../../shared/router.ts'
import { shownName, shownText } from '../../shared/shown-text.ts'
import { VirtualList, type ListHandle } from '../../shared/virtual-list.tsx'
import type { SessionModel } from '../session-model.ts'
import { useJump } from '../jump.ts'

const KINDS = [
  ['', 'All events'],
  ['session.', 'Session'],
  ['turn.', 'Turns'],
  ['message.', 'Messages'],
  ['ask.', 'Asks'],
  ['attachment.', 'Attachments'],
  ['link.', 'Links'],
] as const

const ROW_HEIGHT = 30

export function Log({ model }: { readonly model: SessionModel }) {
  const { query } = address.value
  const { filter = '', kind = '', turn = '' } = query
  const handle = useRef<ListHandle | null>(null)
  const { history } = model
  const window = history.shown.value
  const all = window.events.value
  const events = useMemo(() => matching(all, { filter, kind, turn }), [all, filter, kind, turn])
  const opened = query['event'] ?? ''
  useJump(model, handle, {
    seq: Number(opened) || 0,
    find: () => events.findIndex(({ seq }) => seq >= Number(opened)),
  })
  const from = window.from.value
  return (
    <div class="log-view">
      <form class="log-filters filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input
          type="search"
          aria-label="Show only events that contain this"
          placeholder="Filter"
          value={filter}
          onInput={(event) => setQuery({ filter: event.currentTarget.value }, { replace: true })}
        />
        <Select
          aria-label="Show only events of this kind"
          options={KINDS}
          value={kind}
          onChange={(value) => setQuery({ kind: value })}
        />
        {turn === '' ? null : (
          <Button class="chip" onClick={() => setQuery({ turn: undefined })}>
            Turn {shownName(turn)} ✕
          </Button>
        )}
        <JumpBox />
        {history.isPast.value ? (
          <Button
            onClick={() => {
              setQuery({ event: undefined })
              history.showEnd()
            }}
          >
            ↓ To the end
          </Button>
        ) : null}
        <span class="muted small log-count">
          {events.length.toLocaleString()} of {all.length.toLocaleString()} events
          {from > 0 || history.isPast.value
            ? `, ${(from + 1).toLocaleString()} to ${window.end.toLocaleString()}`
            : ''}
        </span>
      </form>
      {events.length === 0 && from === 0 ? <Empty>No events match.</Empty> : null}
      <VirtualList<SessionEvent>
        key={window.id}
        items={events}
        keyOf={(event) => event.seq}
        estimate={ROW_HEIGHT}
        anchor="end"
        label="Log"
        class="log"
        handle={handle}
        onNearStart={() => void history.readEarlier()}
        onNearEnd={() => void history.readLater()}
        before={
          history.hasEarlier ? <p class="reading muted">Reading earlier events…</p> : undefined
        }
        render={(event) => (
          <LogEntry event={event} model={model} isOpen={opened === String(event.seq)} />
        )}
      />
    </div>
  )
}

function JumpBox() {
  const input = useRef<HTMLInputElement>(null)
  return (
    <label class="jump">
      <span class="muted small">Go to event</span>{' '}
      <input
        ref={input}
        type="number"
        min={1}
        aria-label="Go to event"
        onKeyDown={(event) => {
          if (event.key !== 'Enter') return
          event.preventDefault()
          const seq = event.currentTarget.value
          if (seq !== '') setQuery({ event: seq, filter: '', kind: '', turn: '' })
        }}
      />
    </label>
  )
}

type Filters = { readonly filter: string; readonly kind: string; readonly turn: string }

function matching(
  events: readonly SessionEvent[],
  { filter, kind, turn }: Filters,
): readonly SessionEvent[] {
  if (filter === '' && kind === '' && turn === '') return events
  const words = filter.toLowerCase()
  return events.filter((event) => {
    if (!event.type.startsWith(kind)) return false
    if (turn !== '' && !('turn' in event && event.turn === turn)) return false
    return words === '' || JSON.stringify(event).toLowerCase().includes(words)
  })
}

/** More of an event is shown on request. */
const EVENT_CHARS_MAX = 50_000

function WholeEvent({ event }: { readonly event: SessionEvent }) {
  const [beginning, more] = useClipped(JSON.stringify(event, null, 2), EVENT_CHARS_MAX)
  return (
    <>
      <pre tabIndex={0}>{shownText(beginning)}</pre>
      {more}
    </>
  )
}

type LogEntryProps = {
  readonly event: SessionEvent
  readonly model: SessionModel
  readonly isOpen: boolean
}

/** The address names the open one: it is a permalink, and Back closes it. */
function LogEntry({ event, model, isOpen }: LogEntryProps) {
  const { seq, at, type } = event
  const turn = 'turn' in event ? `${event.turn}  ` : ''
  const permalink = sessionHref(model.id, 'log', { event: String(seq) })
  return (
    <div class="log-entry" data-seq={seq} data-type={type} data-open={isOpen ? '' : undefined}>
      <button
        type="button"
        class="log-line"
        aria-expanded={isOpen}
        onClick={() => setQuery({ event: isOpen ? undefined : String(seq) })}
      >
        <span class="seq">{seq}</span>
        <span class="mono log-type">{type}</span>
        <span class="gist">{shownName(beginningOf(`${turn}${eventSummary(event)}`))}</span>
        <time title={fullTime(at)}>{clockTime(at)}</time>
      </button>
      {isOpen ? (
        <div class="log-whole">
          <div class="buttons">
            <CopyButton text={() => JSON.stringify(event, null, 2)}>Copy JSON</CopyButton>
            <CopyButton text={() => new URL(permalink, location.href).href}>Copy link</CopyButton>
          </div>
          <WholeEvent event={event} />
        </div>
      ) : null}
    </div>
  )
}
