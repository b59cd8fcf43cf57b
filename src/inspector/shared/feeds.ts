/** What all views follow: the changes of sessions, and the asks that wait. Each is one stream. */
import { computed, signal } from '@preact/signals'
import type { OpenAskView, SessionRowView } from '../../wire/views.ts'
import { EventStream } from './event-stream.ts'
import { api } from './server.ts'

/** Why the lists are not up to date, in a sentence; null: they are. */
export const feedProblem = signal<string | null>(null)

/** A row of `/v1/changes`; a session whose log is gone has the state `erased`. */
export type ChangedRow = Omit<SessionRowView, 'state'> & {
  readonly state: SessionRowView['state'] | 'erased'
}

type ChangeListener = {
  readonly changed: (rows: readonly ChangedRow[]) => void
  /** The feed has begun anew: lists have to be read again. */
  readonly restarted: () => void
}

const listeners = new Set<ChangeListener>()
let changes: EventStream | null = null

/** Follows the sessions that change; the returned function ends that. */
export function followChanges(listener: ChangeListener): () => void {
  listeners.add(listener)
  changes ??= new EventStream(api, {
    path: '/v1/changes',
    onEvent: ({ name, data }) => {
      if (name !== 'changes') return
      const page = data as { readonly changes: readonly { readonly session: ChangedRow }[] }
      const rows = page.changes.map(({ session }) => session)
      if (rows.length > 0) for (const { changed } of [...listeners]) changed(rows)
    },
    onRestart: () => {
      for (const { restarted } of [...listeners]) restarted()
    },
    onProblem: (problem) => {
      feedProblem.value = problem
    },
  })
  return () => {
    listeners.delete(listener)
    if (listeners.size > 0) return
    changes?.stop()
    changes = null
    feedProblem.value = null
  }
}

const asksByName = signal<ReadonlyMap<string, OpenAskView>>(new Map())

/** All asks that wait, in the order in which they were opened. */
export const inbox = computed(() =>
  [...asksByName.value.values()].sort((one, other) => one.openedAt - other.openedAt),
)

/** Null: it was read. */
export const inboxProblem = signal<string | null>(null)

const nameOf = (session: string, ask: string): string => `${session} ${ask}`

/** All that waited when the stream began are known. */
export const isInboxRead = signal(false)

let asks: EventStream | null = null
let holders = 0

/** Follows the asks also while the page is hidden; the returned function ends that. */
export function holdAsks(): () => void {
  holders += 1
  asks?.wake()
  return () => {
    holders -= 1
    asks?.wake()
  }
}

/** A guest with a link may not read the asks of all sessions. */
export function followAsks(isWanted: boolean): void {
  if (!isWanted) {
    asks?.stop()
    asks = null
    return
  }
  asks ??= new EventStream(api, {
    path: '/v1/asks',
    onEvent: ({ name, data }) => {
      asksByName.value = afterEvent(asksByName.peek(), name, data)
      if (name === 'asks.listed') isInboxRead.value = true
    },
    onRestart: () => undefined,
    isHeld: () => holders > 0,
    onProblem: (problem) => {
      inboxProblem.value = problem
    },
  })
}

function afterEvent(
  known: ReadonlyMap<string, OpenAskView>,
  event: string,
  data: unknown,
): ReadonlyMap<string, OpenAskView> {
  if (event === 'asks.listed') {
    const { asks: listed } = data as { asks: readonly { session: string; ask: string }[] }
    const names = new Set(listed.map(({ session, ask }) => nameOf(session, ask)))
    return new Map([...known].filter(([name]) => names.has(name)))
  }
  const next = new Map(known)
  if (event === 'ask.opened') {
    const ask = data as OpenAskView
    next.set(nameOf(ask.session.id, ask.id), ask)
  } else if (event === 'ask.settled') {
    const { id, session } = data as { id: string; session: { id: string } }
    next.delete(nameOf(session.id, id))
  }
  return next
}
