/** The timeline's own reading of the log: from its end as far back as the shown time reaches. */
import { effect, signal, untracked } from '@preact/signals'
import { api } from '../../shared/server.ts'
import type { SessionModel } from '../session-model.ts'
import { TimelineData } from './timeline-data.ts'

/** Events that are folded at most: a browser has to draw them. */
const EVENTS_MAX = 200_000

export class TimelineModel {
  readonly data = new TimelineData()
  /** Grows when there is more to draw. */
  readonly version = signal(0)
  readonly isReading = signal(false)
  readonly problem = signal('')
  /** The position before the first event that was read; 0: all were. */
  readonly from = signal(0)
  readonly #session: SessionModel
  #end = 0
  #stop: () => void = () => undefined

  constructor(session: SessionModel) {
    this.#session = session
  }

  /** Follows what happens, until the returned function is called. */
  follow(): () => void {
    this.#stop = effect(() => {
      const { log } = this.#session
      const events = log.events.value
      untracked(() => {
        if (this.#end === 0) this.from.value = log.from.peek()
        const first = events.findIndex(({ seq }) => seq > this.#end)
        if (first === -1) return
        this.#end = events.at(-1)?.seq ?? 0
        if (this.data.add(events.slice(first))) this.version.value += 1
      })
    })
    return () => this.#stop()
  }

  get isFull(): boolean {
    return this.data.count >= EVENTS_MAX
  }

  /** Reads the page before what is known, if it may. */
  async readEarlier(): Promise<void> {
    const from = this.from.peek()
    const isGuest = this.#session.access.link !== null
    if (from === 0 || isGuest || this.isFull || this.isReading.peek()) return
    this.isReading.value = true
    try {
      const page = await api.eventsBefore(this.#session.id, from + 1)
      this.data.add(page.events)
      this.from.value = page.hasMore ? (page.nextBefore ?? 1) - 1 : 0
      this.version.value += 1
      this.problem.value = ''
    } catch (error) {
      this.problem.value = (error as Error).message
    }
    this.isReading.value = false
  }
}
