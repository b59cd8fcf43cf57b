/**
 * The log of one session as this page has read it. The end is always known, and kept up to date.
 * What is shown is the end too, with as much before it as was read; or, after a jump into the past,
 * another part of the log, until a reader has read on to the end.
 */
import { computed, signal, type Signal } from '@preact/signals'
import type { SessionEvent } from '../../client/index.ts'
import { api } from '../shared/server.ts'
import { LogWindow } from './log-window.ts'

/** So much of a page is behind the event that a reader jumps to. */
const BEHIND_EVENTS = 128
/** A position behind the end of every log. */
const BEHIND_ALL = 999_999_999_999_999
/** A part of the log that has grown to twice as many events is cut to these. */
const KEPT_EVENTS = 5_000

export class LogHistory {
  /** The end of the log. */
  readonly latest = signal(new LogWindow())
  readonly shown: Signal<LogWindow> = signal(this.latest.peek())
  /** Whether what is shown ends before the log does. */
  readonly isPast = computed(() => this.shown.value !== this.latest.value)
  /** The log is being read, for the first time or further. */
  readonly isReading = signal(true)
  readonly #session: string
  readonly #isGuest: boolean
  #current: Promise<void> = Promise.resolve()
  readonly #failed: (error: Error) => void

  /** `isGuest`: a link admits to the socket only, which has no pages. */
  constructor(session: string, isGuest: boolean, failed: (error: Error) => void) {
    this.#session = session
    this.#isGuest = isGuest
    this.#failed = failed
  }

  /** There is more before what is shown, and this page may read it. */
  get hasEarlier(): boolean {
    return this.shown.value.from.value > 0 && !this.#isGuest
  }

  /** What has just happened. */
  append(events: readonly SessionEvent[]): void {
    const latest = this.latest.peek()
    latest.append(events)
    if (latest.size >= 2 * KEPT_EVENTS) latest.keepLast(KEPT_EVENTS)
  }

  /** The log follows again from its beginning. */
  restart(): void {
    this.latest.value = new LogWindow()
    this.showEnd()
  }

  /** Throws if it cannot be read. */
  async readEnd(): Promise<void> {
    await this.#readBefore(this.latest.peek(), BEHIND_ALL)
  }

  /** Reads the page before what is shown. */
  async readEarlier(): Promise<void> {
    const shown = this.shown.peek()
    const from = shown.from.peek()
    if (from === 0 || this.#isGuest) return
    await this.#read(async () => {
      await this.#readBefore(shown, from + 1)
      if (shown.size < 2 * KEPT_EVENTS) return
      if (!this.isPast.peek()) {
        this.latest.value = shown.copy()
        this.latest.peek().keepLast(KEPT_EVENTS)
      }
      shown.keepFirst(KEPT_EVENTS)
    })
  }

  /** Reads the page behind what is shown, until that meets the end. */
  async readLater(): Promise<void> {
    const shown = this.shown.peek()
    if (!this.isPast.peek()) return
    await this.#read(async () => {
      const { events } = await api.eventsAfter(this.#session, shown.end)
      shown.append(events)
      this.#join(shown)
      if (shown.size >= 2 * KEPT_EVENTS) shown.keepLast(KEPT_EVENTS)
    })
  }

  /** Shows a part of the log with this event in it. */
  async show(seq: number): Promise<void> {
    // What is being read now may have it, and is awaited in any case.
    await this.#current
    if (this.shown.peek().has(seq)) return
    if (this.latest.peek().has(seq) || this.#isGuest) return this.showEnd()
    await this.#read(async () => {
      const past = new LogWindow()
      await this.#readBefore(past, seq + BEHIND_EVENTS)
      this.shown.value = past
      this.#join(past)
    })
  }

  showEnd(): void {
    this.shown.value = this.latest.peek()
  }

  /** A part that has met the end of the log becomes it. */
  #join(past: LogWindow): void {
    const latest = this.latest.peek()
    if (past.end < latest.from.peek()) return
    const { end } = past
    past.append(latest.events.peek().filter(({ seq }) => seq > end))
    this.latest.value = past
  }

  async #read(read: () => Promise<void>): Promise<void> {
    if (this.isReading.peek()) return
    this.isReading.value = true
    this.#current = read().catch(this.#failed)
    await this.#current
    this.isReading.value = false
  }

  async #readBefore(window: LogWindow, before: number): Promise<void> {
    const { events, nextBefore = 0, hasMore } = await api.eventsBefore(this.#session, before)
    // It may have been cut meanwhile.
    if (window.size > 0 && window.from.peek() !== before - 1) return
    window.prepend(events, hasMore ? nextBefore - 1 : 0)
  }
}
