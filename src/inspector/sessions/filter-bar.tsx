/** The filters and the order of the list: each is in the address, so that Back undoes it. */
import { useEffect, useState } from 'preact/hooks'
import { Button, Select } from '../shared/parts.tsx'
import { address, setQuery } from '../shared/router.ts'
import { api } from '../shared/server.ts'
import type { SessionFilters } from './filters.ts'

const STATES = [
  ['open', 'Open'],
  ['closed', 'Closed'],
  ['all', 'Open and closed'],
] as const

const STATUSES = [
  ['', 'Any status'],
  ['running', 'Running'],
  ['queued', 'Queued'],
  ['waiting', 'Waiting for an answer'],
  ['failed', 'Failed'],
  ['idle', 'Idle'],
] as const

const ORDERS = [
  ['activity desc', 'Last active first'],
  ['activity asc', 'Longest inactive first'],
  ['created desc', 'Newest first'],
  ['created asc', 'Oldest first'],
] as const

type FilterBarProps = { readonly filters: SessionFilters; readonly isAdmin: boolean }

export function FilterBar({ filters, isAdmin }: FilterBarProps) {
  const { state, status, sort, order } = filters
  const { query } = address.value
  const isFiltered = ['state', 'status', 'agent', 'principal', 'label', 'q'].some(
    (name) => (query[name] ?? '') !== '',
  )
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <Typed
        name="q"
        class="search"
        type="search"
        placeholder="Search keys"
        label="Text in the key"
      />
      <Select
        aria-label="Show only sessions in this state"
        options={STATES}
        value={state}
        onChange={(value) =>
          setQuery({ state: value, ...(value === 'open' ? {} : { status: '' }) })
        }
      />
      <Select
        aria-label="Show only sessions with this status"
        options={STATUSES}
        value={status}
        disabled={state === 'closed'}
        onChange={(value) => setQuery({ status: value })}
      />
      <Typed
        name="agent"
        class="agent-filter"
        placeholder="Agent"
        label="Agent"
        list="agent-names"
      />
      <AgentNames />
      <Typed name="label" class="label-filter" placeholder="label:value" label="Labels" />
      {isAdmin ? (
        <Typed name="principal" class="owner-filter" placeholder="Owner" label="Owner" />
      ) : null}
      <Select
        aria-label="Sort sessions"
        options={ORDERS}
        value={`${sort} ${order}`}
        onChange={(value) => {
          const [by = '', to = ''] = value.split(' ')
          setQuery({ sort: by === 'activity' ? '' : by, order: to === 'desc' ? '' : to })
        }}
      />
      {isFiltered ? (
        <Button
          kind="plain"
          class="clear"
          onClick={() =>
            setQuery({ state: '', status: '', agent: '', principal: '', label: '', q: '' })
          }
        >
          Clear
        </Button>
      ) : null}
    </form>
  )
}

type TypedProps = {
  /** Of the parameter in the address. */
  readonly name: string
  readonly class: string
  readonly placeholder: string
  readonly label: string
  readonly type?: 'text' | 'search'
  readonly list?: string
}

/** Letter by letter, in one step of the history. */
function Typed({ name, label, type = 'text', ...rest }: TypedProps) {
  return (
    <input
      {...rest}
      type={type}
      aria-label={`Show only sessions by this: ${label}`}
      maxLength={1_000}
      autocomplete="off"
      spellcheck={false}
      value={address.value.query[name] ?? ''}
      onInput={(event) => setQuery({ [name]: event.currentTarget.value }, { replace: true })}
    />
  )
}

function AgentNames() {
  const [names, setNames] = useState<readonly string[]>([])
  useEffect(() => {
    let isGone = false
    api.agents().then(
      (agents) => isGone || setNames(agents.map(({ name }) => name)),
      // Without them a name can be typed as well.
      (_error: unknown) => undefined,
    )
    return () => {
      isGone = true
    }
  }, [])
  return (
    <datalist id="agent-names">
      {names.map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  )
}
