/** What restricts the list of sessions: in the address, the request, and of rows that change. */
import type { SessionRowView } from '../../wire/views.ts'
import type { ChangedRow } from '../shared/feeds.ts'

export type SessionFilters = {
  readonly state: string
  /** A part of the key or id, or words of labels. */
  readonly text: string
  /** `name:value`. */
  readonly label: string
}

export function readFilters(query: Readonly<Record<string, string>>): SessionFilters {
  const { state = 'open', q = '', label = '' } = query
  return { state, text: q.trim(), label: label.trim() }
}

export function listQuery(
  { state, label }: SessionFilters,
  cursor: string | null,
  limit: number,
): Record<string, string> {
  return {
    limit: String(limit),
    ...(state === 'all' ? {} : { state }),
    ...(label === '' ? {} : { label }),
    ...(cursor === null ? {} : { cursor }),
  }
}

/** Whether a row that changed belongs to the list. */
export function matches(row: ChangedRow, filters: SessionFilters): row is SessionRowView {
  const { state, label } = filters
  if (row.state === 'erased' || (state !== 'all' && row.state !== state)) return false
  return label === '' || Object.entries(row.labels).some((pair) => pair.join(':') === label)
}

/** Whether the row has the text in its key, id, agent or labels. */
export function hasText({ key, id, agent, labels }: SessionRowView, text: string): boolean {
  const words = [key ?? '', id, agent, ...Object.entries(labels).flat()].join(' ').toLowerCase()
  return words.includes(text.toLowerCase())
}
