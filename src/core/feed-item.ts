/** What followers of a session see, one after the other, and their positions. */
import type { SessionEvent } from './events.ts'
import { parseEvent } from './history.ts'
import type { StoredEvent } from './store.ts'

/** A part of the running turn's answer. `n` counts within the turn; the next message has it all. */
export type Delta = {
  readonly type: 'delta'
  readonly turn: string
  readonly n: number
  readonly text: string
}

/** A follower's position: after event `seq`, and after delta `delta` of the turn then running. */
export type Position = { readonly seq: number; readonly delta: number }

/**
 * What followers see: an event of the log or a delta, and the position after it. Its JSON is made
 * once for all of them, and an event from the store is parsed only when it is looked at.
 */
export class FeedItem {
  readonly seq: number
  readonly type: (SessionEvent | Delta)['type']
  /** 0 for an event. */
  readonly delta: number
  #event: SessionEvent | Delta | null
  #json: string | null

  constructor(seq: number, event: SessionEvent | Delta | StoredEvent, json: string | null = null) {
    const isStored = 'body' in event
    this.seq = seq
    this.type = isStored ? typeOf(event) : event.type
    this.delta = !isStored && event.type === 'delta' ? event.n : 0
    this.#event = isStored ? null : event
    this.#json = isStored ? event.body : json
  }

  get event(): SessionEvent | Delta {
    this.#event ??= parseEvent({ seq: this.seq, body: this.#json ?? '' })
    return this.#event
  }

  get json(): string {
    this.#json ??= JSON.stringify(this.#event)
    return this.#json
  }

  /** The same delta for a follower that has seen later events first. */
  after(seq: number): FeedItem {
    return seq === this.seq ? this : new FeedItem(seq, this.event, this.json)
  }
}

const TYPE = /^\{"type":"([\w.]+)"/

/** Events are written with their type first. */
export function typeOf(stored: StoredEvent): SessionEvent['type'] {
  const [, type] = TYPE.exec(stored.body) ?? []
  return (type as SessionEvent['type'] | undefined) ?? parseEvent(stored).type
}

/** Events about attachments and links: many, and most followers do not need them. */
export function isPresence(type: string): boolean {
  return type.startsWith('attachment.') || type.startsWith('link.')
}

/**
 * Whether followers see such events. Checkpoints of the output are not for them: they have had it
 * as deltas.
 */
export function isTold(type: string, presence: boolean): boolean {
  return type !== 'turn.output' && (presence || !isPresence(type))
}

/** The position after one more item. Deltas are counted anew with every turn. */
export function positionAfter({ delta }: Position, item: FeedItem): Position {
  const { seq, type, delta: n } = item
  if (n > 0) return { seq, delta: n }
  return { seq, delta: type === 'turn.started' ? 0 : delta }
}
