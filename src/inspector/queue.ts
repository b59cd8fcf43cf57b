/**
 * The queue of a session, each entry with a button that cancels it. Waiting requests are not in the
 * log, so the queue is polled while a turn runs.
 */
import { principalText, type SessionView } from '../wire/views.ts'
import { ApiError, type Api } from './api.ts'
import { button, element, fill, setText, tag } from './element.ts'
import { clockTime, fullTime } from './moment.ts'

type QueueEntry = SessionView['queued'][number]

const MODES: Readonly<Record<QueueEntry['busy'], string | null>> = {
  queue: null,
  interrupt: 'stops the running turn',
  collect: 'joins others',
}

export class QueueView {
  readonly #api: Api
  readonly #session: string
  readonly #fail: (message: string) => void
  readonly #title = element('h2')
  readonly #list = element('ol')
  readonly element = element('section.queue', { hidden: true }, this.#title, this.#list)
  #rows: readonly QueueEntry[] = []
  #isReading = false
  #mayCancel = false
  /** The rendered state: without a change nothing is rendered, so that a button keeps its focus. */
  #shown = ''

  constructor(api: Api, session: string, fail: (message: string) => void) {
    this.#api = api
    this.#session = session
    this.#fail = fail
  }

  /** `isBusy`: a turn runs, so others may wait. `mayCancel`: this page may cancel them. */
  show(isBusy: boolean, mayCancel: boolean): void {
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
      this.#rows = (await this.#api.session(this.#session)).queued
    } catch {
      // The page shows that the server cannot be reached, or that the session has ended.
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
    setText(this.#title, `Waiting for their turn (${this.#rows.length})`)
    fill(this.#list, ...this.#rows.map((row) => this.#item(row)))
  }

  #item(row: QueueEntry): HTMLElement {
    const { position, since, state, by, busy } = row
    const id = row.state === 'queued' ? row.turn : row.request
    const mode = MODES[busy]
    const cancel = button('Cancel', () => void this.#cancel(id, cancel), {
      'aria-label': `Cancel ${id}`,
    })
    const from = since === null ? '' : `since ${clockTime(since)} `
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
      this.#mayCancel ? cancel : null,
    )
  }

  async #cancel(id: string, pressed: HTMLButtonElement): Promise<void> {
    pressed.disabled = true
    try {
      await this.#api.cancel(this.#session, id)
    } catch (error) {
      // An entry that has left the queue meanwhile disappears from the list.
      const hasLeft = error instanceof ApiError && error.code === 'turn_unknown'
      if (!hasLeft) this.#fail((error as Error).message)
      pressed.disabled = false
    }
    await this.#read()
  }
}

const MEANINGS = {
  waiting: 'Not admitted yet: its caller waits, and may still be refused',
  queued: 'In the log: it survives a crash',
} as const
