/**
 * Following a session from a position: what is in the log, then the running turn's output so far,
 * then live; no gap and no repeat (I4).
 *
 * A follower is only a position. It is never sent anything: it reads on when woken, from the tail in
 * memory if that reaches back far enough and from the store if not. So a slow one costs nothing.
 */
import { parseEvent, readableRow } from './history.ts'
import type { Limits } from './limits.ts'
import type { SessionEvent } from './session.ts'
import type { Store } from './store.ts'

/** A part of the running turn's answer. `n` counts within the turn; the message that follows has it all. */
export type Delta = {
  readonly type: 'delta'
  readonly turn: string
  readonly n: number
  readonly text: string
}

/** Where a follower stands: after event `seq`, and after delta `delta` of the turn then running. */
export type Position = { readonly seq: number; readonly delta: number }

/** One thing to tell a follower. `json` is made once, for all who follow. */
export class FeedItem {
  readonly seq: number
  /** 0 for an event. */
  readonly delta: number
  readonly event: SessionEvent | Delta
  #json: string | null

  constructor(seq: number, event: SessionEvent | Delta, json: string | null = null) {
    this.seq = seq
    this.delta = event.type === 'delta' ? event.n : 0
    this.event = event
    this.#json = json
  }

  get json(): string {
    this.#json ??= JSON.stringify(this.event)
    return this.#json
  }
}

export class Feed {
  readonly #session: string
  readonly #store: Store
  readonly #limits: Limits
  /** Every event after `#floor`, and every delta that no message has replaced, in order. */
  #tail: FeedItem[] = []
  #floor: number
  #seq: number
  #deltas = 0
  #followers = 0
  #wake: (() => void)[] = []
  #end: { readonly error: unknown } | null = null

  constructor(session: string, seq: number, store: Store, limits: Limits) {
    this.#session = session
    this.#store = store
    this.#limits = limits
    this.#floor = seq
    this.#seq = seq
  }

  get followers(): number {
    return this.#followers
  }

  publish(event: SessionEvent, json: string): void {
    this.#seq = event.seq
    if (event.type === 'turn.started') this.#deltas = 0
    if (this.#followers > 0) this.#tail.push(new FeedItem(event.seq, event, json))
    else this.#forget(event)
    if (this.#tail.length > this.#limits.tailItemsMax) this.#trim()
    this.#wakeAll()
  }

  delta(turn: string, text: string): void {
    this.#deltas += 1
    const delta: Delta = { type: 'delta', turn, n: this.#deltas, text }
    this.#tail.push(new FeedItem(this.#seq, delta))
    this.#wakeAll()
  }

  /** Nothing more will come: followers end after what there is, or fail with `error`. */
  end(error: unknown = null): void {
    this.#end ??= { error }
    this.#wakeAll()
  }

  /** What follows `from`, in batches of all that is ready; ends with the session, or by `signal`. */
  async *follow(from: Position, signal?: AbortSignal): AsyncGenerator<readonly FeedItem[]> {
    let position = from
    const woken = (): void => this.#wakeAll()
    this.#followers += 1
    signal?.addEventListener('abort', woken)
    try {
      while (signal?.aborted !== true) {
        const items =
          position.seq < this.#floor ? await this.#replay(position) : this.#after(position)
        const last = items.at(-1)
        if (last !== undefined) {
          position = last
          yield items
        } else if (this.#end === null) {
          await new Promise<void>((wake) => this.#wake.push(wake))
        } else if (this.#end.error === null) {
          return
        } else {
          throw this.#end.error
        }
      }
    } finally {
      signal?.removeEventListener('abort', woken)
      this.#followers -= 1
      if (this.#followers === 0) this.#trim(0)
    }
  }

  async #replay({ seq }: Position): Promise<readonly FeedItem[]> {
    const { row, events } = await this.#store.read(this.#session, seq, this.#limits.pageEvents)
    readableRow(row, this.#session)
    // What is durable but not yet published comes with its own publication.
    return events
      .filter((stored) => stored.seq <= this.#seq)
      .map((stored) => new FeedItem(stored.seq, parseEvent(stored), stored.body))
  }

  #after({ seq, delta }: Position): readonly FeedItem[] {
    const first = this.#tail.findLastIndex(
      (item) => item.seq < seq || (item.seq === seq && item.delta <= delta),
    )
    return this.#tail.slice(first + 1)
  }

  /** Without followers only deltas are kept; a message, and the end of its turn, replaces them. */
  #forget(event: SessionEvent): void {
    this.#floor = event.seq
    if (event.type === 'message.added' || event.type === 'turn.started') this.#tail = []
    else if (this.#tail.length > 0 && event.type.startsWith('turn.')) this.#tail = []
  }

  /** Drops the oldest, but no delta that is still all there is of the running turn's answer. */
  #trim(keep = this.#limits.tailItemsMax / 2): void {
    const message = this.#tail.findLastIndex(({ event }) => event.type === 'message.added')
    const turn = this.#tail.findLastIndex(({ event }) => event.type.startsWith('turn.'))
    const replaced = Math.max(message, turn)
    let drop = 0
    while (this.#tail.length - drop > keep) {
      const item = this.#tail[drop]
      if (item === undefined || (item.delta > 0 && drop > replaced)) break
      drop += 1
      if (item.delta === 0) this.#floor = item.seq
    }
    this.#tail = this.#tail.slice(drop)
  }

  #wakeAll(): void {
    if (this.#wake.length === 0) return
    const wake = this.#wake
    this.#wake = []
    for (const wakeOne of wake) wakeOne()
  }
}
