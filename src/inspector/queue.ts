/**
 * What waits for its turn, the next one first, each with a button that cancels it. Requests that
 * are not admitted leave nothing in the log, so the queue is read from the server again and again
 * while a turn runs.
 */
import { principalText, type SessionView } from '../wire/views.ts'
import { ApiError } from './api.ts'
import { element, fill, say } from './element.ts'
import { clockTime, fullTime } from './moment.ts'

type Row = SessionView['queued'][number]

export type QueueOwner = {
  readonly read: () => Promise<readonly Row[]>
  /** By the id of a turn, or of a request that waits. */
  readonly cancel: (id: string) => Promise<void>
  readonly fail: (message: string) => void
}

const MODES: Readonly<Record<Row['busy'], string | null>> = {
  queue: null,
  interrupt: 'stops what runs',
  collect: 'joins others',
}

export class Queue {
  readonly element: HTMLElement
  readonly #owner: QueueOwner
  readonly #title = element('h2', {})
  readonly #list = element('ol', {})
  #rows: readonly Row[] = []
  #isReading = false
  #mayCancel = false
  /** What is shown, to draw only what has changed: a button keeps its focus. */
  #shown = ''

  constructor(owner: QueueOwner) {
    this.#owner = owner
    this.element = element('section', { class: 'queue', hidden: true }, this.#title, this.#list)
  }

  /** `isBusy`: a turn runs, so others may wait. `mayCancel`: this page may take one back. */
  show({ isBusy, mayCancel }: { readonly isBusy: boolean; readonly mayCancel: boolean }): void {
    this.#mayCancel = mayCancel
    if (isBusy || this.#rows.length > 0) void this.#read()
    this.#render()
  }

  clear(): void {
    this.#rows = []
    this.#render()
  }

  async #read(): Promise<void> {
    if (this.#isReading) return
    this.#isReading = true
    try {
      this.#rows = await this.#owner.read()
    } catch {
      // The page tells that the server cannot be reached, or that the session is gone.
      this.#rows = []
    }
    this.#isReading = false
    this.#render()
  }

  #render(): void {
    const shown = JSON.stringify([this.#rows, this.#mayCancel])
    if (shown === this.#shown) return
    this.#shown = shown
    this.element.hidden = this.#rows.length === 0
    say(this.#title, `Waiting for their turn (${this.#rows.length})`)
    fill(this.#list, ...this.#rows.map((row) => this.#item(row)))
  }

  #item(row: Row): HTMLElement {
    const { position, since, state, by, busy } = row
    const id = row.state === 'queued' ? row.turn : row.request
    const mode = MODES[busy]
    const cancel = element('button', { type: 'button', 'aria-label': `Cancel ${id}` }, 'Cancel')
    cancel.addEventListener('click', () => void this.#cancel(id, cancel))
    return element(
      'li',
      { 'data-id': id, 'data-state': state },
      element('span', { class: 'seq' }, String(position)),
      element('span', { class: 'tag', title: MEANINGS[state] }, state),
      mode === null ? null : element('span', { class: 'tag' }, mode),
      element('code', { title: id }, id.slice(0, 8)),
      element(
        'span',
        { class: 'muted small', title: since === null ? null : fullTime(since) },
        [since === null ? '' : `since ${clockTime(since)}`, `by ${principalText(by) ?? 'unknown'}`]
          .join(' ')
          .trim(),
      ),
      this.#mayCancel ? cancel : null,
    )
  }

  async #cancel(id: string, button: HTMLButtonElement): Promise<void> {
    button.disabled = true
    try {
      await this.#owner.cancel(id)
    } catch (error) {
      // One that has left the queue meanwhile is not in the list any more.
      const isGone = error instanceof ApiError && error.code === 'turn_unknown'
      if (!isGone) this.#owner.fail(error instanceof Error ? error.message : String(error))
      button.disabled = false
    }
    await this.#read()
  }
}

const MEANINGS = {
  waiting: 'Not admitted: its caller waits, and may still be refused',
  queued: 'In the log: it survives a crash',
} as const
