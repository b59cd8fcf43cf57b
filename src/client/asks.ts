/**
 * The questions that wait for this client's answer.
 *
 * A welcome has all that wait at the log's position then; the log itself is read from an earlier
 * one. So what it tells of asks up to that position is history, and opens nothing.
 */
import type { Ask, SessionEvent, Welcome } from '../wire/frames.ts'

export class Asks {
  #kinds: readonly string[]
  #open: readonly Ask[] = []
  /** Up to here the log is history. */
  #known = 0

  constructor(kinds: readonly string[]) {
    this.#kinds = kinds
  }

  /** From the next welcome on it answers these. */
  answer(kinds: readonly string[]): void {
    this.#kinds = kinds
  }

  get open(): readonly Ask[] {
    return this.#open
  }

  /** Returns the asks that are new; null if there is no change at all. */
  welcome({ asks, session }: Welcome): readonly Ask[] | null {
    const before = this.#open.map(({ id }) => id)
    this.#open = asks.filter(({ kind }) => this.#kinds.includes(kind))
    this.#known = session.seq
    const fresh = this.#open.filter(({ id }) => !before.includes(id))
    return fresh.length === 0 && this.#open.length === before.length ? null : fresh
  }

  /** Returns the ask that is new, if the client answers its kind. */
  opened(event: Extract<SessionEvent, { readonly type: 'ask.opened' }>): Ask | null {
    const { seq, ask: id, turn, kind, question, options, deadline, onNobody, data } = event
    const known = seq <= this.#known || this.#open.some((open) => open.id === id)
    if (known || !this.#kinds.includes(kind)) return null
    const ask = { id, turn, kind, question, options, deadline, onNobody }
    const added = data === undefined ? ask : { ...ask, data }
    this.#open = [...this.#open, added]
    return added
  }

  /** Returns whether it was open here. */
  settled(ask: string): boolean {
    const before = this.#open
    this.#open = before.filter(({ id }) => id !== ask)
    return this.#open.length < before.length
  }

  /** Returns whether any was open. */
  end(): boolean {
    const wereOpen = this.#open.length > 0
    this.#open = []
    return wereOpen
  }
}
