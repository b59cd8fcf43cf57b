/** All sessions: filtered, in the order of their last activity, kept up to date. */
import { useEffect, useMemo, useRef } from 'preact/hooks'
import type { SessionRowView } from '../../wire/views.ts'
import { Button, Empty, Problem, Select } from '../shared/parts.tsx'
import { address, href, setQuery } from '../shared/router.ts'
import { VirtualList, type ListHandle } from '../shared/virtual-list.tsx'
import { hasText, readFilters, type SessionFilters } from './filters.ts'
import { SessionRow } from './row.tsx'
import { SessionList } from './session-list.ts'

const STATES = [
  ['open', 'Open'],
  ['closed', 'Closed'],
  ['all', 'All'],
] as const

const ROW_HEIGHT = 44

export function Sessions() {
  const filters = readFilters(address.value.query)
  const list = useList(filters)
  const handle = useRef<ListHandle | null>(null)
  const rows = list.rows.value.filter((row) => hasText(row, filters.text))
  const held = list.held.value.size
  // What is not read yet may match too.
  useEffect(() => {
    if (rows.length < 40 && !list.isWhole.value && !list.isReading.value) void list.readMore()
  })
  return (
    <section class="sessions">
      <header class="view-head">
        <h1>Sessions</h1>
        <Count list={list} shown={rows.length} />
        <span class="spring" />
        <a class="button primary new" href={href(['new'])}>
          New session
        </a>
      </header>
      <Filters filters={filters} />
      {list.problem.value === '' ? null : <Problem>{list.problem.value}</Problem>}
      {held === 0 ? null : (
        <Button
          class="held"
          onClick={() => {
            list.release()
            handle.current?.scrollToIndex(0, 'start')
          }}
        >
          ↑ {held} changed
        </Button>
      )}
      <div class="row-head" aria-hidden="true">
        <span>Status</span>
        <span>Key</span>
        <span class="cell-agent">Agent</span>
        <span class="cell-labels">Labels</span>
        <span class="cell-events">Events</span>
        <span>Active</span>
      </div>
      {rows.length === 0 && list.isWhole.value ? <Empty>No sessions here.</Empty> : null}
      <VirtualList<SessionRowView>
        items={rows}
        keyOf={({ id }) => id}
        estimate={ROW_HEIGHT}
        isEven
        class="list"
        label="Sessions"
        handle={handle}
        onNearEnd={() => void list.readMore()}
        onScrolled={(isAtStart) => list.hold(!isAtStart)}
        render={(row) => <SessionRow row={row} />}
      />
    </section>
  )
}

function useList(filters: SessionFilters): SessionList {
  const { state, label } = filters
  const list = useMemo(() => new SessionList(filters), [state, label])
  useEffect(() => () => list.stop(), [list])
  return list
}

function Count({ list, shown }: { readonly list: SessionList; readonly shown: number }) {
  const more = list.isWhole.value ? '' : '+'
  return (
    <span class="muted" role="status">
      {shown.toLocaleString()}
      {more}
    </span>
  )
}

function Filters({ filters: { state } }: { readonly filters: SessionFilters }) {
  const { q = '', label = '' } = address.value.query
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <input
        type="search"
        class="search"
        placeholder="Key, id, agent or label"
        aria-label="Show only sessions whose key, id, agent or labels have this"
        value={q}
        onInput={(event) => setQuery({ q: event.currentTarget.value }, { replace: true })}
      />
      <Select
        aria-label="Show only sessions in this state"
        options={STATES}
        value={state}
        onChange={(value) => setQuery({ state: value })}
      />
      <input
        class="label-filter"
        placeholder="label:value"
        aria-label="Show only sessions with this label"
        value={label}
        onInput={(event) => setQuery({ label: event.currentTarget.value }, { replace: true })}
      />
    </form>
  )
}
