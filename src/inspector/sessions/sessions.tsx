/** All sessions: filtered and sorted by the server, and kept up to date. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { EvenList } from '../shared/even-list.tsx'
import { may } from '../shared/me.ts'
import { Button, Empty, Problem } from '../shared/parts.tsx'
import { address, href } from '../shared/router.ts'
import type { ListHandle } from '../shared/virtual-list.tsx'
import { FilterBar } from './filter-bar.tsx'
import { readFilters, type SessionFilters } from './filters.ts'
import { SessionRow } from './row.tsx'
import { SessionList } from './session-list.ts'

const ROW_HEIGHT = 44
/** What is typed is asked for when a person pauses. */
const TYPING_MS = 150

export function Sessions() {
  const wanted = readFilters(address.value.query)
  const list = useList(wanted)
  const handle = useRef<ListHandle | null>(null)
  const rows = list.rows.value
  const held = list.held.value.size
  return (
    <section class="sessions">
      <header class="view-head">
        <h1>Sessions</h1>
        <Count list={list} />
        <span class="spring" />
        <a class="button primary new" href={href(['new'])}>
          New session
        </a>
      </header>
      <FilterBar filters={wanted} isAdmin={may('admin') === true} />
      {list.problem.value === '' ? null : <Problem>{list.problem.value}</Problem>}
      {held === 0 ? null : (
        <Button
          class="held"
          onClick={() => {
            list.release()
            handle.current?.scrollToIndex(0, 'start')
          }}
        >
          ↑ {held.toLocaleString()} changed
        </Button>
      )}
      <div class="row-head" aria-hidden="true">
        <span>Status</span>
        <span>Key</span>
        <span class="cell-agent">Agent</span>
        <span class="cell-labels">Labels</span>
        <span class="cell-clients">Clients</span>
        <span>Active</span>
      </div>
      {rows.length === 0 && list.isWhole.value ? <Empty>No sessions here.</Empty> : null}
      <EvenList
        key={JSON.stringify(list.filters)}
        items={rows}
        keyOf={({ id }) => id}
        height={ROW_HEIGHT}
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

/** The list of the filters that were last wanted for a moment. */
function useList(wanted: SessionFilters): SessionList {
  const name = JSON.stringify(wanted)
  const [settled, setSettled] = useState(name)
  useEffect(() => {
    if (name === settled) return
    const isTyped =
      JSON.stringify({ ...(JSON.parse(settled) as object), ...typedIn(wanted) }) === name
    const timer = setTimeout(() => setSettled(name), isTyped ? TYPING_MS : 0)
    return () => clearTimeout(timer)
  }, [name, settled])
  const list = useMemo(() => new SessionList(JSON.parse(settled) as SessionFilters), [settled])
  useEffect(() => () => list.stop(), [list])
  return list
}

function typedIn({ text, agent, principal, labels }: SessionFilters): Partial<SessionFilters> {
  return { text, agent, principal, labels }
}

function Count({ list }: { readonly list: SessionList }) {
  const count = list.count.value
  const isSearching = list.isReading.value && list.rows.value.length === 0
  return (
    <span class="muted" role="status">
      {count === null || count === undefined
        ? null
        : `${count.atLeast.toLocaleString()}${count.isExact ? '' : '+'}`}
      {isSearching ? ' searching …' : null}
    </span>
  )
}
