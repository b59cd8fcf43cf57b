/** A caller's handle on a turn: await it for the result, iterate it for the answer as it comes. */
import { AnswerText } from './answer-text.ts'
import type { FeedItem } from './feed.ts'
import type { LiveSession } from './live.ts'
import type { Principal } from './state.ts'
import { turnSeq, type TurnRecord } from './turn-record.ts'
import { isTerminal } from './turns.ts'

/** Where a request came to be a turn. */
export type Admission = { readonly live: LiveSession; readonly turn: string }

export type CallerPresence = {
  readonly signal?: AbortSignal
  /**
   * What the caller's going away does to an admitted turn. I10: nothing, unless it asked for that.
   */
  readonly onDisconnect?: 'continue' | 'cancel'
}

export class TurnHandle implements PromiseLike<TurnRecord>, AsyncIterable<string> {
  /** Settles when the turn has started or was found by its key, or with the refusal. */
  readonly admission: Promise<Admission>
  readonly #finished: Promise<TurnRecord>

  constructor(admission: Promise<Admission>, presence: CallerPresence, by: Principal) {
    this.admission = admission
    this.#finished = this.#finish(presence, by)
    // A caller that only iterates gets the failure there.
    this.#finished.catch(() => undefined)
  }

  // oxlint-disable-next-line unicorn/no-thenable -- to be awaited is what it is for
  then<Value = TurnRecord, Reason = never>(
    onfulfilled?: ((record: TurnRecord) => Value | PromiseLike<Value>) | null,
    onrejected?: ((reason: unknown) => Reason | PromiseLike<Reason>) | null,
  ): Promise<Value | Reason> {
    return this.#finished.then(onfulfilled, onrejected)
  }

  async #finish(presence: CallerPresence, by: Principal): Promise<TurnRecord> {
    const { live, turn } = await this.admission
    const signal = presence.onDisconnect === 'cancel' ? presence.signal : undefined
    if (signal === undefined) return live.finished(turn)
    // The caller is gone; the turn's own end is in the log.
    const cancel = (): void => void live.cancel(turn, 'caller_gone', by).catch(() => undefined)
    if (signal.aborted) cancel()
    signal.addEventListener('abort', cancel)
    return live.finished(turn).finally(() => signal.removeEventListener('abort', cancel))
  }

  /** The turn's own events and deltas, from its beginning to its end. */
  async *feed(signal?: AbortSignal): AsyncGenerator<readonly FeedItem[]> {
    const { live, turn } = await this.admission
    const begin = (turnSeq(turn) ?? 1) - 1
    for await (const items of live.follow({ seq: begin, delta: 0 }, signal)) {
      const own = items.filter(({ event }) => 'turn' in event && event.turn === turn)
      const end = own.findIndex(({ event }) => isTerminal(event))
      if (own.length > 0) yield end < 0 ? own : own.slice(0, end + 1)
      if (end >= 0) return
    }
  }

  /** The answer in parts as they come: together they are the texts of the turn's messages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    const answer = new AnswerText()
    for await (const items of this.feed()) {
      for (const { event } of items) {
        if (event.type === 'delta') yield answer.delta(event.text)
        if (event.type !== 'message.added') continue
        const rest = answer.message(event.text)
        if (rest !== '') yield rest
      }
    }
  }
}
