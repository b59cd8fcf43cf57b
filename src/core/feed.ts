/**
 * Following a session from a position: what is in the log, then the running turn's output so far,
 * then live; no gap and no repeat (I4).
 *
 * A follower is only a position. It is never sent anything: it reads on when woken, from the tail
 * in memory if that reaches back far enough and from the store if not. So a slow one costs
 * nothing.
 */
import { parseEvent, readableRow } from './history.ts'
import type { Limits } from './limits.ts'
import type { SessionEvent } from './session.ts'
import type { Store } from './store.ts'
import { isTerminal } from './turns.ts'

/** A part of the running turn's answer. `n` counts within the turn; the next message has it all. */
export type Delta = {
  readonly type: 'delta'
  readonly turn: string
  readonly n: number
  readonly text: string
}

/** Where a follower stands: after event `seq`, and after delta `delta` of the turn then running. */
export type Position = { readonly seq: number; readonly delta: number }

/**
 * One thing to tell a follower, and the position after it. Its JSON is made once for all who
 * follow.
 */
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

  /** The same delta for a follower that has seen later events first. */
  after(seq: number): FeedItem {
    return seq === this.seq ? this : new FeedItem(seq, this.event, this.json)
  }
}

/** Where a follower stands in the tail; good as long as the tail was not rebuilt. */
type Cursor = { readonly build: number; readonly index: number }

export class Feed {
  readonly #session: string
  readonly #store: Store
  readonly #limits: Limits
  /** Every event after `#floor`, and every delta that no message has replaced yet, as they came. */
  #tail: FeedItem[] = []
  /** How many items have left the front of this build of the tail. */
  #dropped = 0
  #build = 0
  #floor: number
  #seq: number
  #deltas = 0
  #followers = 0
  /** What was handed out last. */
  #slice: (Cursor & { readonly end: number; readonly items: readonly FeedItem[] }) | null = null
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
    if ('turn' in event && (event.type === 'message.added' || isTerminal(event))) {
      this.#replaceDeltas(event.turn)
    }
    if (this.#followers === 0) this.#floor = event.seq
    else this.#tail.push(new FeedItem(event.seq, event, json))
    if (this.#tail.length > this.#limits.tailItemsMax) this.#trim()
    this.#wakeAll()
  }

  delta(turn: string, text: string): void {
    this.#deltas += 1
    this.#tail.push(new FeedItem(this.#seq, { type: 'delta', turn, n: this.#deltas, text }))
    this.#wakeAll()
  }

  /** Nothing more will come: followers end after what there is, or fail with `error`. */
  end(error: unknown = null): void {
    this.#end ??= { error }
    this.#wakeAll()
  }

  /**
   * What follows `from`, in batches of all that is ready; ends with the session, or by `signal`.
   */
  async *follow(from: Position, signal?: AbortSignal): AsyncGenerator<readonly FeedItem[]> {
    let position = from
    let cursor: Cursor | null = null
    const wake = (): void => this.#wakeAll()
    this.#followers += 1
    signal?.addEventListener('abort', wake)
    try {
      while (signal?.aborted !== true) {
        const replay: boolean = !this.#reaches(cursor) && position.seq < this.#floor
        const items = replay ? await this.#replay(position) : this.#after(position, cursor)
        cursor = replay || position.seq > this.#seq ? null : this.#cursor()
        position = items.reduce(positionAfter, position)
        if (items.length > 0) yield items
        else if (this.#end === null) await new Promise<void>((woken) => this.#wake.push(woken))
        else if (this.#end.error === null) return
        else throw this.#end.error
      }
    } finally {
      signal?.removeEventListener('abort', wake)
      this.#followers -= 1
      if (this.#followers === 0) this.#forgetEvents()
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

  #after(position: Position, cursor: Cursor | null): readonly FeedItem[] {
    // It has read in the store what is durable, but not published yet.
    if (position.seq > this.#seq) return []
    if (cursor !== null && this.#reaches(cursor)) return this.#since(cursor.index)
    return itemsAfter(this.#tail, position)
  }

  /** One array for all who stand at the same place, so that it is encoded once for all of them. */
  #since(index: number): readonly FeedItem[] {
    const [build, end] = [this.#build, this.#dropped + this.#tail.length]
    const last = this.#slice
    if (last?.build === build && last.index === index && last.end === end) return last.items
    const items = this.#tail.slice(index - this.#dropped)
    this.#slice = { build, index, end, items }
    return items
  }

  #reaches(cursor: Cursor | null): boolean {
    return cursor !== null && cursor.build === this.#build && cursor.index >= this.#dropped
  }

  #cursor(): Cursor {
    return { build: this.#build, index: this.#dropped + this.#tail.length }
  }

  /**
   * A message has all of the deltas before it; whoever has not read them does not need them. Turns
   * that end while they wait replace nothing.
   */
  #replaceDeltas(turn: string): void {
    const left = this.#tail.filter(({ event }) => event.type !== 'delta' || event.turn !== turn)
    if (left.length !== this.#tail.length) this.#rebuild(left)
  }

  /** With nobody following, what is in the log need not be in memory. */
  #forgetEvents(): void {
    this.#floor = this.#seq
    this.#rebuild(this.#tail.filter(({ delta }) => delta > 0))
  }

  #rebuild(tail: FeedItem[]): void {
    this.#tail = tail
    this.#build += 1
    this.#dropped = 0
  }

  /** Drops the older half of the events; deltas are all there is of them, and stay. */
  #trim(): void {
    const keep = this.#limits.tailItemsMax / 2
    let drop = 0
    while (this.#tail.length - drop > keep && this.#tail[drop]?.delta === 0) {
      this.#floor = this.#tail[drop]?.seq ?? this.#floor
      drop += 1
    }
    this.#tail.splice(0, drop)
    this.#dropped += drop
  }

  #wakeAll(): void {
    if (this.#wake.length === 0) return
    const wake = this.#wake
    this.#wake = []
    for (const wakeOne of wake) wakeOne()
  }
}

/** What a tail has for a follower: later events, and the deltas that it has not seen. */
function itemsAfter(tail: readonly FeedItem[], from: Position): readonly FeedItem[] {
  const items: FeedItem[] = []
  let position = from
  for (const item of tail) {
    const isDelta = item.delta > 0
    if (isDelta ? item.delta <= position.delta : item.seq <= position.seq) continue
    const next = isDelta ? item.after(Math.max(item.seq, position.seq)) : item
    items.push(next)
    position = positionAfter(position, next)
  }
  return items
}

/** Where a follower stands after one more item. Deltas are counted anew with every turn. */
export function positionAfter({ delta }: Position, item: FeedItem): Position {
  const { seq, event } = item
  if (event.type === 'delta') return { seq, delta: event.n }
  return { seq, delta: event.type === 'turn.started' ? 0 : delta }
}
