/**
 * Following a session from a position: what is in the log, then the running turn's output so far,
 * then live; no gap and no repeat (I4).
 *
 * A follower is only a position. It is never sent anything: it reads on when woken, from the tail
 * in memory if that reaches back far enough and from the store if not. So a slow one costs
 * nothing. Followers at the same position get the same array, so that a door encodes it once for
 * all of them; and they are woken once for all items that became ready together.
 */
import type { Clock } from './clock.ts'
import type { CoreContext } from './context.ts'
import type { SessionEvent } from './events.ts'
import { FeedItem, isTold, positionAfter, type Delta, type Position } from './feed-item.ts'
import { readableRow } from './history.ts'
import { PAGE_CHARS } from './store.ts'
import { isTerminal } from './turns.ts'

/** Ends a follower: what it uses of an `AbortSignal`. */
export interface StopSignal {
  readonly aborted: boolean
  addEventListener(type: 'abort', listener: () => void): void
  removeEventListener(type: 'abort', listener: () => void): void
}

/** A follower's position in the tail; valid as long as the tail was not rebuilt. */
type Cursor = { readonly build: number; readonly index: number }

/** Events read from the store: those that followers see, and the position after all of them. */
type Page = { readonly items: readonly FeedItem[]; readonly seq: number }

/** Pages that are kept for other followers at the same position. */
const PAGES_MAX = 8

/** The newest items for followers of one kind, in memory. */
class Tail {
  /** Whether these followers see attachments and links. */
  readonly presence: boolean
  /** Every event after this that they see is in the tail. */
  floor: number
  followers = 0
  readonly waiting = new Set<Follower>()
  /** They will be woken, or are just being woken. */
  isDue = false
  /** Something was added since they were woken. */
  hasNews = false
  /** Not before this, or 0. */
  restUntil = 0
  readonly pages = new Map<number, Promise<Page>>()
  /** Events, and every delta that no message has replaced yet, as they came. */
  #items: FeedItem[] = []
  #events = 0
  /** How many items have left the front of this build of the tail. */
  #dropped = 0
  #build = 0
  /** What was returned last, for other followers at the same position. */
  #slice: (Cursor & { readonly end: number; readonly items: readonly FeedItem[] }) | null = null
  #catchUp: (Position & Cursor & { readonly items: readonly FeedItem[] }) | null = null

  constructor(presence: boolean, floor: number) {
    this.presence = presence
    this.floor = floor
  }

  get cursor(): Cursor {
    return { build: this.#build, index: this.#dropped + this.#items.length }
  }

  /**
   * Adds an event; true if a follower has to be woken. Without followers the tail keeps no events:
   * they are in the log.
   */
  add(item: FeedItem, itemsMax: number): boolean {
    if (!isTold(item.type, this.presence)) return false
    if (this.followers === 0) {
      this.floor = item.seq
      return false
    }
    this.#items.push(item)
    this.#events += 1
    if (this.#events > itemsMax) this.#trim(itemsMax / 2)
    return true
  }

  addDelta(item: FeedItem): void {
    this.#items.push(item)
  }

  reaches(cursor: Cursor | null): cursor is Cursor {
    return cursor !== null && cursor.build === this.#build && cursor.index >= this.#dropped
  }

  /** What came after a cursor, or after a position if there is no cursor that is good. */
  after(position: Position, cursor: Cursor | null): readonly FeedItem[] {
    return this.reaches(cursor) ? this.#since(cursor.index) : this.#afterPosition(position)
  }

  #since(index: number): readonly FeedItem[] {
    const { build, index: end } = this.cursor
    const last = this.#slice
    if (last?.build === build && last.index === index && last.end === end) return last.items
    const items = this.#items.slice(index - this.#dropped)
    this.#slice = { build, index, end, items }
    return items
  }

  #afterPosition({ seq, delta }: Position): readonly FeedItem[] {
    const { build, index } = this.cursor
    const last = this.#catchUp
    const isSame = last?.build === build && last.index === index
    if (isSame && last.seq === seq && last.delta === delta) return last.items
    const items = itemsAfter(this.#items, { seq, delta })
    this.#catchUp = { seq, delta, build, index, items }
    return items
  }

  /**
   * A message contains the deltas before it: a follower that has not read them does not need them.
   * Turns that end while they wait replace nothing.
   */
  replaceDeltas(turn: string): void {
    const isReplaced = ({ delta, event }: FeedItem): boolean =>
      delta > 0 && 'turn' in event && event.turn === turn
    if (this.#items.some(isReplaced)) this.#rebuild(this.#items.filter((item) => !isReplaced(item)))
  }

  /** The last follower has gone. */
  forget(): void {
    this.floor = this.#items.findLast(({ delta }) => delta === 0)?.seq ?? this.floor
    this.pages.clear()
    this.#rebuild(this.#items.filter(({ delta }) => delta > 0))
  }

  wake(): void {
    if (this.waiting.size === 0) return
    const waiting = [...this.waiting]
    this.waiting.clear()
    for (const follower of waiting) follower.advance()
  }

  #rebuild(items: FeedItem[]): void {
    this.#items = items
    this.#events = items.reduce((count, { delta }) => (delta === 0 ? count + 1 : count), 0)
    this.#build += 1
    this.#dropped = 0
    this.#slice = null
    this.#catchUp = null
  }

  /** Drops the older events. Deltas stay: they are in no log. */
  #trim(keep: number): void {
    let drop = 0
    for (; this.#events > keep && this.#items[drop]?.delta === 0; drop += 1) {
      this.floor = this.#items[drop]?.seq ?? this.floor
      this.#events -= 1
    }
    this.#items.splice(0, drop)
    this.#dropped += drop
    if (this.#events > keep) this.#trimAmongDeltas(this.#events - keep)
  }

  /** A follower that has not read these events reads them in the log, before the deltas. */
  #trimAmongDeltas(drop: number): void {
    let left = drop
    const kept = this.#items.filter(({ delta, seq }) => {
      if (delta > 0 || left === 0) return true
      left -= 1
      this.floor = seq
      return false
    })
    this.#rebuild(kept)
  }
}

/** From so many followers on they are woken in rounds, with a pause between two rounds. */
const ROUNDS_FROM = 64
const REST_MS_MAX = 50

export type FollowerOptions = { readonly presence?: boolean; readonly attachment?: string }

type FeedContext = Pick<CoreContext, 'store' | 'limits'> & {
  readonly clock: Pick<Clock, 'after' | 'monotonic'>
}

export class Feed {
  readonly #session: string
  readonly #context: FeedContext
  readonly #all: Tail
  readonly #withoutPresence: Tail
  /** The last event that was published. */
  seq: number
  #deltas = 0
  readonly #byAttachment = new Map<string, Follower>()
  /** Nothing more will come, for this reason. */
  ended: { readonly error: unknown } | null = null

  constructor(session: string, seq: number, context: FeedContext) {
    this.#session = session
    this.#context = context
    this.#all = new Tail(true, seq)
    this.#withoutPresence = new Tail(false, seq)
    this.seq = seq
  }

  get followers(): number {
    return this.#all.followers + this.#withoutPresence.followers
  }

  publish(event: SessionEvent, json: string): void {
    this.seq = event.seq
    const item = new FeedItem(event.seq, event, json)
    const replaces = 'turn' in event && (event.type === 'message.added' || isTerminal(event))
    for (const tail of [this.#all, this.#withoutPresence]) {
      if (replaces && this.#deltas > 0) tail.replaceDeltas(event.turn)
      if (tail.add(item, this.#context.limits.tailItemsMax)) this.#wakeSoon(tail)
    }
    if (event.type === 'turn.started') this.#deltas = 0
  }

  delta(turn: string, text: string): void {
    this.#deltas += 1
    const delta: Delta = { type: 'delta', turn, n: this.#deltas, text }
    const item = new FeedItem(this.seq, delta)
    for (const tail of [this.#all, this.#withoutPresence]) {
      tail.addDelta(item)
      this.#wakeSoon(tail)
    }
  }

  /** Nothing more will come: followers end after what there is, or fail with `error`. */
  end(error: unknown = null): void {
    this.ended ??= { error }
    this.#all.wake()
    this.#withoutPresence.wake()
  }

  /**
   * What follows `from`, in batches of all that is ready; ends with the session, or by `signal`.
   */
  follow(
    from: Position,
    signal?: StopSignal,
    { presence = true, attachment }: FollowerOptions = {},
  ): AsyncGenerator<readonly FeedItem[]> {
    const tail = presence ? this.#all : this.#withoutPresence
    const follower = new Follower(this, tail, { from, signal, attachment })
    if (attachment !== undefined) this.#byAttachment.set(attachment, follower)
    return follower
  }

  /** It does not follow any more; another one of the same attachment may. */
  left(attachment: string, follower: Follower): void {
    if (this.#byAttachment.get(attachment) === follower) this.#byAttachment.delete(attachment)
  }

  /** The position up to which an attachment has all that it follows; null: it does not follow. */
  cursorOf(attachment: string): number | null {
    return this.#byAttachment.get(attachment)?.seq ?? null
  }

  /** A page that many read is read once. */
  replay(after: number, tail: Tail): Promise<Page> {
    const known = tail.pages.get(after)
    if (known !== undefined) return known
    const page = this.#read(after, tail)
    tail.pages.set(after, page)
    const [oldest] = tail.pages.keys()
    if (tail.pages.size > PAGES_MAX && oldest !== undefined) tail.pages.delete(oldest)
    return page
  }

  async #read(after: number, tail: Tail): Promise<Page> {
    let keeps = false
    try {
      const { pageEvents } = this.#context.limits
      const { row, events } = await this.#context.store.read(this.#session, after, pageEvents)
      readableRow(row, this.#session)
      // What is durable but not yet published comes with its own publication.
      const published = events.filter((stored) => stored.seq <= this.seq)
      const items = published.map((stored) => new FeedItem(stored.seq, stored))
      const chars = events.reduce((sum, { body }) => sum + body.length, 0)
      keeps = published.length === pageEvents && chars <= PAGE_CHARS
      const told = items.filter(({ type }) => isTold(type, tail.presence))
      return { items: told, seq: published.at(-1)?.seq ?? after }
    } finally {
      // One that is not full will have more in it the next time.
      if (!keeps) tail.pages.delete(after)
    }
  }

  /** Once for all items that are ready; many followers not before the pause is over. */
  #wakeSoon(tail: Tail): void {
    tail.hasNews = true
    if (tail.isDue || tail.waiting.size === 0) return
    tail.isDue = true
    const rest = tail.restUntil === 0 ? 0 : tail.restUntil - this.#context.clock.monotonic()
    this.#context.clock.after(Math.max(0, rest), () => this.#wake(tail))
  }

  /**
   * Waking many followers blocks the event loop. It is limited to 1/8 of wall time; items in
   * between are delivered in one batch.
   */
  #wake(tail: Tail): void {
    const isRound = tail.waiting.size >= ROUNDS_FROM
    const begin = isRound ? this.#context.clock.monotonic() : 0
    tail.hasNews = false
    tail.isDue = isRound
    tail.restUntil = 0
    tail.wake()
    if (!isRound) return
    this.#context.clock.after(0, () => {
      const end = this.#context.clock.monotonic()
      tail.isDue = false
      tail.restUntil = end + Math.min(7 * (end - begin), REST_MS_MAX)
      if (tail.hasNews) this.#wakeSoon(tail)
    })
  }
}

type FollowerStart = {
  readonly from: Position
  readonly signal: StopSignal | undefined
  readonly attachment: string | undefined
}

type FollowerResult = IteratorResult<readonly FeedItem[], undefined>

/** No generator: there may be many followers, and one that waits should take little memory. */
class Follower implements AsyncGenerator<readonly FeedItem[], undefined> {
  readonly #feed: Feed
  readonly #tail: Tail
  readonly #signal: StopSignal | undefined
  readonly #attachment: string | undefined
  #position: Position
  #cursor: Cursor | null = null
  #state: 'new' | 'following' | 'over' = 'new'
  #settle: (result: FollowerResult | Promise<FollowerResult>) => void = ignore
  #stop: () => void = ignore

  constructor(feed: Feed, tail: Tail, { from, signal, attachment }: FollowerStart) {
    this.#feed = feed
    this.#tail = tail
    this.#position = from
    this.#signal = signal
    this.#attachment = attachment
  }

  next(): Promise<FollowerResult> {
    if (this.#state === 'new') this.#begin()
    return new Promise((settle) => {
      this.#settle = settle
      this.advance()
    })
  }

  return(): Promise<FollowerResult> {
    this.#leave()
    return Promise.resolve({ value: undefined, done: true })
  }

  async throw(error: unknown): Promise<never> {
    this.#leave()
    throw error
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** One that waits has all that there is, what it does not see included. */
  get seq(): number {
    return this.#tail.waiting.has(this) ? this.#feed.seq : this.#position.seq
  }

  /** Gives what is ready, or waits to be woken. `hasRead`: the store has nothing more for it. */
  advance(hasRead = false): void {
    const tail = this.#tail
    const position = this.#position
    const isOver = this.#state === 'over' || this.#signal?.aborted === true
    if (isOver) return this.#settle(this.return())
    if (!hasRead && !tail.reaches(this.#cursor) && position.seq < tail.floor) return this.#replay()
    // It may have read in the store what is durable, but not published yet.
    const isAhead = position.seq > this.#feed.seq
    const items = isAhead ? [] : tail.after(position, this.#cursor)
    this.#cursor = isAhead ? null : tail.cursor
    this.#position = items.reduce(positionAfter, position)
    const { ended } = this.#feed
    if (items.length > 0) this.#settle({ value: items, done: false })
    else if (ended === null) tail.waiting.add(this)
    else this.#settle(ended.error === null ? this.return() : this.throw(ended.error))
  }

  #replay(): void {
    const before = this.#position
    this.#feed.replay(before.seq, this.#tail).then(
      ({ items, seq }) => {
        this.#cursor = null
        this.#position = { ...items.reduce(positionAfter, before), seq }
        if (items.length > 0) this.#settle({ value: items, done: false })
        else this.advance(seq === before.seq)
      },
      (error: unknown) => this.#settle(this.throw(error)),
    )
  }

  #begin(): void {
    this.#state = 'following'
    this.#tail.followers += 1
    if (this.#signal === undefined) return
    this.#stop = () => this.#leave()
    this.#signal.addEventListener('abort', this.#stop)
  }

  #leave(): void {
    const tail = this.#tail
    const wasFollowing = this.#state === 'following'
    this.#state = 'over'
    if (this.#attachment !== undefined) this.#feed.left(this.#attachment, this)
    if (!wasFollowing) return
    this.#signal?.removeEventListener('abort', this.#stop)
    tail.followers -= 1
    if (tail.followers === 0) tail.forget()
    if (tail.waiting.delete(this)) this.advance()
  }
}

function ignore(): void {}

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
