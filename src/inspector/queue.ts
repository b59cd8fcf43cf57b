/**
 * The queue of a session, each entry with a button that cancels it. Waiting requests are not in the
 * log, so the queue is polled while a turn runs.
 */
import { principalText, type SessionView } from '../wire/views.ts'
import { ApiError, type Api } from './api.ts'
import { button, element, fill, setText, tag } from './element.ts'
import { clockTime, fullTime } from './moment.ts'

type QueueEntry = SessionView['queued'][number]

const MODES = { queue: null, interrupt: 'stops the running turn', collect: 'joins others' } as const

const MEANINGS = {
  waiting: 'Not admitted yet: its caller waits, and may still be refused',
  queued: 'In the log: it survives a crash',
} as const

export function queueView(api: Api, session: string, fail: (message: string) => void) {
  const title = element('h2')
  const list = element('ol')
  const view = element('section.queue', { hidden: true }, title, list)
  let rows: readonly QueueEntry[] = []
  let isReading = false
  let mayCancel = false
  // The rendered state: without a change nothing is rendered, so that a button keeps its focus.
  let shown = ''

  async function read(): Promise<void> {
    if (isReading) return
    isReading = true
    try {
      rows = (await api.session(session)).queued
    } catch {
      // The page shows that the server cannot be reached, or that the session has ended.
      rows = []
    }
    isReading = false
    render()
  }

  function render(): void {
    const next = JSON.stringify([rows, mayCancel])
    if (next === shown) return
    shown = next
    view.hidden = rows.length === 0
    setText(title, `Waiting for their turn (${rows.length})`)
    fill(list, ...rows.map(item))
  }

  function item(row: QueueEntry): HTMLElement {
    const { position, since, state, by, busy } = row
    const id = row.state === 'queued' ? row.turn : row.request
    const mode = MODES[busy]
    const from = since === null ? '' : `since ${clockTime(since)} `
    const stop = button('Cancel', () => void cancel(id, stop), { 'aria-label': `Cancel ${id}` })
    return element(
      'li',
      { 'data-id': id, 'data-state': state },
      element('span.seq', String(position)),
      tag(state, { title: MEANINGS[state] }),
      mode === null ? null : tag(mode),
      element('code', { title: id }, id.slice(0, 8)),
      element(
        'span.muted.small',
        { title: since === null ? null : fullTime(since) },
        `${from}by ${principalText(by) ?? 'unknown'}`,
      ),
      mayCancel ? stop : null,
    )
  }

  async function cancel(id: string, pressed: HTMLButtonElement): Promise<void> {
    pressed.disabled = true
    try {
      await api.cancel(session, id)
    } catch (error) {
      // An entry that has left the queue meanwhile disappears from the list.
      const hasLeft = error instanceof ApiError && error.code === 'turn_unknown'
      if (!hasLeft) fail((error as Error).message)
      pressed.disabled = false
    }
    await read()
  }

  return {
    element: view,
    /** `isBusy`: a turn runs, so others may wait. `maySteer`: this page may cancel them. */
    show(isBusy: boolean, maySteer: boolean): void {
      mayCancel = maySteer
      if (isBusy || rows.length > 0) void read()
      render()
    },
    clear(): void {
      rows = []
      render()
    },
  }
}
