/**
 * The questions that wait for this client's answer, and its answers on their way.
 *
 * A welcome has all asks that wait at the log's position then; the log itself is read from an
 * earlier one. So what it tells of asks up to that position is history, and opens nothing.
 *
 * An answer that was sent twice, because the connection was lost before its reply, may be refused
 * as too late although it was the first of the two that settled the ask: the log says which. It
 * says so once: an answer that is sent after that is certainly too late.
 */
import type { Ask, SessionEvent, Welcome } from '../wire/frames.ts'
import type { HoldfastClientError } from './endings.ts'
import { deferred, type Deferred, type Settle } from './requests.ts'

type PendingAnswer = {
  readonly ask: string
  /** What it says, as JSON: a copy of this page may have answered from the same place. */
  readonly json: string
  readonly done: Deferred<void>
  /** Whether this answer settled the ask; null until the log has said so. */
  isOwn: boolean | null
  /** As too late, of an answer that was sent twice. */
  refusal: HoldfastClientError | null
}

/** Asks whose end is remembered: the newest. Far fewer can wait at one time. */
const SETTLED_MAX = 1_024

export class Asks {
  #kinds: readonly string[]
  #open: readonly Ask[] = []
  /** Up to here the log is history. */
  #known = 0
  readonly #answers = new Set<PendingAnswer>()
  readonly #settled = new Set<string>()

  constructor(kinds: readonly string[]) {
    this.#kinds = kinds
  }

  /** From the next welcome on the client answers these. */
  setKinds(kinds: readonly string[]): void {
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
    const { seq, ask: id, turn, kind, question, options, deadline, onNobody } = event
    const { data, detail, accepts } = event
    const known = seq <= this.#known || this.#open.some((open) => open.id === id)
    if (known || !this.#kinds.includes(kind)) return null
    const ask = { id, turn, kind, question, options, deadline, onNobody }
    const added = {
      ...ask,
      ...(data === undefined ? {} : { data }),
      ...(detail === undefined ? {} : { detail }),
      ...(accepts === undefined ? {} : { accepts }),
    }
    this.#open = [...this.#open, added]
    return added
  }

  answer(ask: string, said: unknown): { readonly done: Promise<void>; readonly settle: Settle } {
    const isOwn = this.#settled.has(ask) ? false : null
    const done = deferred<void>()
    const answer = { ask, json: JSON.stringify(said), done, isOwn, refusal: null }
    this.#answers.add(answer)
    const settle: Settle = {
      taken: () => this.#finish(answer, null),
      refused: (error, again) => {
        const isDoubtful = again && error.code === 'ask_settled'
        if (isDoubtful) this.#judge(answer, error)
        else this.#finish(answer, error)
      },
    }
    return { done: done.promise, settle }
  }

  /**
   * The log says what settled an ask; `own`: the answer, if it came from this client's place.
   * Returns whether the ask was open here.
   */
  settled(ask: string, own: unknown): boolean {
    for (const answer of this.#answers) {
      if (answer.ask !== ask) continue
      answer.isOwn = own !== undefined && JSON.stringify(own) === answer.json
      if (answer.refusal !== null) this.#judge(answer, answer.refusal)
    }
    this.#settled.add(ask)
    const [oldest] = this.#settled
    if (this.#settled.size > SETTLED_MAX && oldest !== undefined) this.#settled.delete(oldest)
    const before = this.#open
    this.#open = before.filter(({ id }) => id !== ask)
    return this.#open.length < before.length
  }

  /** The log will not say which of two answers settled an ask. */
  endAnswers(error: HoldfastClientError): void {
    for (const answer of this.#answers) if (answer.refusal !== null) this.#finish(answer, error)
    this.#settled.clear()
  }

  end(error: HoldfastClientError): boolean {
    this.endAnswers(error)
    const wereOpen = this.#open.length > 0
    this.#open = []
    return wereOpen
  }

  #judge(answer: PendingAnswer, refusal: HoldfastClientError): void {
    answer.refusal = refusal
    if (answer.isOwn !== null) this.#finish(answer, answer.isOwn ? null : refusal)
  }

  #finish(answer: PendingAnswer, error: HoldfastClientError | null): void {
    this.#answers.delete(answer)
    if (error === null) answer.done.resolve()
    else answer.done.reject(error)
  }
}
