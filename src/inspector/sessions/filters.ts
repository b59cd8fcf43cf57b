/** What restricts and orders the list: in the address, the request, and of rows that change. */
import type { SessionRowView } from '../../wire/views.ts'
import type { ChangedRow } from '../shared/feeds.ts'

export type SessionFilters = {
  readonly state: string
  readonly status: string
  readonly agent: string
  readonly principal: string
  /** Each `name:value`. */
  readonly labels: readonly string[]
  /** A part of the key, in any case. */
  readonly text: string
  readonly sort: 'activity' | 'created'
  readonly order: 'desc' | 'asc'
}

/** Labels stand beside each other; a space within one is `%20`. */
export function readFilters(query: Readonly<Record<string, string>>): SessionFilters {
  const { state = 'open', status = '', agent = '', principal = '', q = '', label = '' } = query
  const labels = label.split(/\s+/).filter((one) => one.includes(':') && !one.startsWith(':'))
  return {
    // A closed session is doing nothing else.
    state: status === 'closed' ? 'closed' : state,
    status,
    agent: agent.trim(),
    principal: principal.trim(),
    labels: labels.map((one) => one.replaceAll(/%20/g, ' ').replaceAll(/%25/g, '%')),
    text: q.trim(),
    sort: query['sort'] === 'created' ? 'created' : 'activity',
    order: query['order'] === 'asc' ? 'asc' : 'desc',
  }
}

/** The parameters of `GET /v1/sessions`. */
export function listQuery(filters: SessionFilters): string[][] {
  const { state, status, agent, principal, labels, text, sort, order } = filters
  const given = { state: state === 'all' ? '' : state, status, agent, principal, q: text }
  return [
    ...Object.entries(given).filter(([, value]) => value !== ''),
    ...labels.map((label) => ['label', label]),
    ['sort', sort],
    ['order', order],
  ]
}

/** Whether a row that changed belongs to the list. */
export function matches(row: ChangedRow, filters: SessionFilters): row is SessionRowView {
  const { state, status, agent, principal, labels, text } = filters
  return (
    row.state !== 'erased' &&
    (state === 'all' || row.state === state) &&
    (status === '' || row.status === status) &&
    (agent === '' || row.agent === agent) &&
    (principal === '' || row.principal === principal) &&
    labels.every((label) => hasLabel(row, label)) &&
    (text === '' || (row.key ?? '').toLowerCase().includes(text.toLowerCase()))
  )
}

function hasLabel({ labels }: ChangedRow, label: string): boolean {
  const name = label.slice(0, label.indexOf(':'))
  return Object.hasOwn(labels, name) && labels[name] === label.slice(name.length + 1)
}

/** Negative: the first row stands before the other one. */
export function compareRows(
  one: SessionRowView,
  other: SessionRowView,
  { sort, order }: SessionFilters,
): number {
  const column = sort === 'activity' ? 'updatedAt' : 'createdAt'
  return order === 'asc' ? one[column] - other[column] : other[column] - one[column]
}

/** Whether the row has the text in its key, id, agent or labels. */
export function hasText({ key, id, agent, labels }: SessionRowView, text: string): boolean {
  const words = [key ?? '', id, agent, ...Object.entries(labels).flat()].join(' ').toLowerCase()
  return words.includes(text.toLowerCase())
}
